"""All logs of a data folder."""

import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from reference.protocol.primitives import NO_UUID, BrokerEpoch, Offset
from reference.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    read_offsets,
    read_topic_id,
    write_offsets,
    write_topic_id,
)
from reference.storage.config import LogConfig
from reference.storage.disk import Disk
from reference.storage.errors import CorruptFile, StorageError
from reference.storage.folder_names import folder_name
from reference.storage.log_directory import CHECKPOINT_INTERVAL_MS, METADATA_TOPIC_ID, LogDirectory
from reference.storage.posix_disk import PosixDisk
from reference.storage.segment_checksums import SEGMENT_CHECKSUMS
from reference.storage.simulated_disk import SimulatedDisk
from tests.storage.breaking_disk import BreakingDisk
from tests.storage.logs import NOW, append, offsets
from tests.storage.test_cleaning import put

ROOT = Path("/data")
CONFIG = LogConfig(segment_bytes=500)
A, B = UUID(int=10), UUID(int=11)


def manager(disk: Disk, folder: Path = ROOT) -> LogDirectory:
    made = LogDirectory(disk, folder)
    made.load(NOW)
    return made


def test_a_clean_end_and_the_next_start(disk: SimulatedDisk) -> None:
    first = manager(disk)
    assert first.last_broker_epoch is None
    first.broker_epoch = BrokerEpoch(42)
    log = first.get_or_create("a", 0, A, CONFIG, NOW)
    assert first.get_or_create("a", 0, A, CONFIG, NOW) is log
    for _ in range(10):
        append(log, 2)
    log.advance_log_start_offset(Offset(3))
    first.shut_down({("a", 0): Offset(20)}, NOW)
    assert disk.exists(ROOT / CLEAN_SHUTDOWN)
    assert read_offsets(disk, ROOT / RECOVERY_POINTS) == {("a", 0): 20}

    second = manager(disk)
    assert second.last_broker_epoch == 42
    assert not disk.exists(ROOT / CLEAN_SHUTDOWN)
    assert second.high_watermark(("a", 0)) == 20
    assert second.high_watermark(("other", 0)) == 0
    log = second.get_or_create("a", 0, A, CONFIG, NOW)
    assert (log.recovered_bytes, log.log_start_offset, log.topic_id) == (0, 3, A)
    assert offsets(log) == list(range(3, 20))


def test_an_incarnation_without_an_epoch_hands_on_that_of_the_clean_end_before_and_of_no_crash() -> None:
    disk = SimulatedDisk()
    registered = manager(disk)
    registered.broker_epoch = BrokerEpoch(42)
    append(registered.get_or_create("a", 0, A, CONFIG, NOW), 2)
    registered.shut_down({}, NOW)
    for _ in range(2):
        unregistered = manager(disk)
        assert unregistered.last_broker_epoch == 42
        unregistered.shut_down({}, NOW)
    manager(disk)
    manager(disk).shut_down({}, NOW)
    assert manager(disk).last_broker_epoch == -1


def test_damage_after_a_clean_end_is_reported_at_each_start_until_an_operator_decides(disk: SimulatedDisk) -> None:
    first = manager(disk)
    for topic in ("a", "b"):
        log = first.get_or_create(topic, 0, A, CONFIG, NOW)
        ends = [append(log, 2)[1] for _ in range(3)]
    first.shut_down({}, NOW)
    size = disk.size_of(ROOT / "a-0" / f"{0:020d}.log")
    disk.map_file(ROOT / "a-0" / f"{0:020d}.log").write_at(size * 2 // 3 + 8, bytes(4))
    for _ in range(2):
        with pytest.raises(CorruptFile, match=f"a-0/{0:020d}.log .* at byte {size * 2 // 3} of {size}"):
            manager(disk)
    disk.remove(ROOT / CLEAN_SHUTDOWN)
    with pytest.raises(CorruptFile, match=r"a-0: .* is not the file"):
        manager(disk).get_or_create("a", 0, A, CONFIG, NOW)
    disk.remove(ROOT / SEGMENT_CHECKSUMS)
    decided = manager(disk)
    logs = [decided.get_or_create(topic, 0, A, CONFIG, NOW) for topic in ("a", "b")]
    assert [log.log_end_offset for log in logs] == [4, ends[-1] + 1]


def test_after_a_crash_logs_are_recovered(disk: SimulatedDisk) -> None:
    first = manager(disk)
    log = first.get_or_create("a", 0, A, CONFIG, NOW)
    append(log, 5)
    second = manager(disk)
    assert second.last_broker_epoch is None
    assert second.get_or_create("a", 0, A, CONFIG, NOW).recovered_bytes > 0


def test_a_topic_of_the_same_name_is_another_topic(disk: SimulatedDisk) -> None:
    append(manager(disk).get_or_create("a", 0, A, CONFIG, NOW), 5)
    second = manager(disk)
    log = second.get_or_create("a", 0, B, CONFIG, NOW)
    assert (log.log_end_offset, log.topic_id) == (0, B)
    assert any(name.endswith("-stray") for name in disk.list_folder(ROOT))
    manager(disk)
    assert any(name.endswith("-stray") for name in disk.list_folder(ROOT))


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_folder_that_lost_its_topics_id_is_not_read_as_another_topics(disk: SimulatedDisk, is_flushed: bool) -> None:
    """Its topic may have been deleted, and another one made under its name, while the broker was down. Kafka puts it aside."""
    first = manager(disk)
    append(first.get_or_create("a", 0, A, CONFIG, NOW), 5)
    if is_flushed:
        first.shut_down({("a", 0): Offset(5)}, NOW)
    disk.remove(ROOT / "a-0" / PARTITION_METADATA)
    second = manager(disk)
    log = second.get_or_create("a", 0, B, CONFIG, NOW)
    assert (log.log_end_offset, log.topic_id, second.high_watermark(("a", 0))) == (0, B, 0)
    assert any(name.endswith("-stray") for name in disk.list_folder(ROOT))


def test_a_folder_that_lost_its_topics_id_is_the_topics_where_its_checksums_say_so(disk: SimulatedDisk) -> None:
    first = manager(disk)
    append(first.get_or_create("a", 0, A, CONFIG, NOW), 5)
    first.shut_down({("a", 0): Offset(5)}, NOW)
    disk.remove(ROOT / "a-0" / PARTITION_METADATA)
    second = manager(disk)
    log = second.get_or_create("a", 0, A, CONFIG, NOW)
    assert (log.log_end_offset, log.topic_id, second.high_watermark(("a", 0))) == (5, A, 5)
    assert read_topic_id(disk, ROOT / "a-0") == A


@pytest.mark.parametrize("has_checksums", [True, False])
def test_a_folder_that_names_another_topic_by_damage_is_not_put_aside(disk: SimulatedDisk, has_checksums: bool) -> None:
    """An empty log would be served in its place. Kafka refuses the partition (InconsistentTopicIdException) where the topic exists."""
    first = manager(disk)
    append(first.get_or_create("a", 0, A, CONFIG, NOW), 5)
    if has_checksums:
        first.shut_down({("a", 0): Offset(5)}, NOW)
    write_topic_id(disk, ROOT / "a-0", B)
    second = manager(disk)
    second.has_topic = lambda id: not has_checksums and id in (A, B)
    with pytest.raises(CorruptFile, match=r"/a-0/partition.metadata names .*: restore it"):
        second.get_or_create("a", 0, A, CONFIG, NOW)
    write_topic_id(disk, ROOT / "a-0", A)
    assert second.get_or_create("a", 0, A, CONFIG, NOW).log_end_offset == 5


def test_a_folder_that_names_no_topic_is_damaged(disk: SimulatedDisk) -> None:
    append(manager(disk).get_or_create("a", 0, A, CONFIG, NOW), 5)
    write_topic_id(disk, ROOT / "a-0", NO_UUID)
    with pytest.raises(CorruptFile, match=r"partition.metadata in a-0 names no topic"):
        manager(disk).get_or_create("a", 0, A, CONFIG, NOW)


@pytest.mark.parametrize("topic", ["a", "t" * 249])
def test_deletion_waits_and_survives_a_restart(topic: str, tmp_path: Path) -> None:
    disk = PosixDisk()
    first = manager(disk, tmp_path)
    log = first.get_or_create(topic, 3, A, CONFIG, NOW)
    append(log, 5)
    held = log.read(Offset(0), 1 << 20).records
    assert not isinstance(held, bytes)
    first.delete((topic, 3), NOW)
    (deleted,) = [name for name in disk.list_folder(tmp_path) if name.endswith("-delete")]
    assert len(deleted) <= 255
    assert first.get_or_create(topic, 3, B, CONFIG, NOW).log_end_offset == 0
    first.tick(NOW + 59_999)
    assert disk.exists(tmp_path / deleted)
    first.tick(NOW + 70_000)
    assert not disk.exists(tmp_path / deleted)
    assert len(held.read()) == len(held)
    first.delete((topic, 3), NOW)
    manager(disk, tmp_path)
    assert not [name for name in disk.list_folder(tmp_path) if name.endswith("-delete")]


def test_a_log_whose_deletion_the_disk_refuses_is_deleted_later(disk: SimulatedDisk) -> None:
    first = manager(disk)
    log = first.get_or_create("a", 0, A, CONFIG, NOW)
    append(log, 5)
    disk.read_only = True
    with pytest.raises(StorageError):
        first.delete(("a", 0), NOW)
    assert first.logs["a", 0] is log and log.log_end_offset == 5
    disk.read_only = False
    first.delete(("a", 0), NOW)
    assert first.get_or_create("a", 0, A, CONFIG, NOW).log_end_offset == 0


def test_a_kill_gives_a_new_topic_no_high_watermark_of_a_deleted_one(disk: SimulatedDisk) -> None:
    """It would be above what is committed; the next checkpoint of high watermarks comes seconds later."""
    first = manager(disk)
    append(first.get_or_create("a", 0, A, CONFIG, NOW), 5)
    first.checkpoint_high_watermarks({("a", 0): Offset(5)})
    first.delete(("a", 0), NOW)
    append(first.get_or_create("a", 0, B, CONFIG, NOW), 5)
    assert manager(disk).high_watermark(("a", 0)) == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_checkpoints_of_a_deleted_log_are_removed_with_it(disk: SimulatedDisk, is_clean: bool) -> None:
    """Also if nothing else in the checkpoints has changed."""
    first = manager(disk)
    log = first.get_or_create("a", 0, A, CONFIG, NOW)
    for _ in range(20):
        append(log)
    log.flush(NOW)
    first.tick(NOW + 60_000)
    first.delete(("a", 0), NOW + 60_000)
    if is_clean:
        first.shut_down({}, NOW + 60_000)
    else:
        first.tick(NOW + 130_000)
    second = manager(disk)
    assert second.get_or_create("a", 0, A, CONFIG, NOW).log_end_offset == 0


def test_checkpoints_are_written_from_time_to_time(disk: SimulatedDisk) -> None:
    first = manager(disk)
    log = first.get_or_create("a", 0, A, CONFIG, NOW)
    append(log, 2)
    log.flush()
    append(log, 2)
    log.advance_log_start_offset(Offset(1))
    first.tick(NOW + 59_000)
    assert not disk.exists(ROOT / RECOVERY_POINTS)
    assert first.next_deadline() <= NOW + 60_000
    first.tick(NOW + 60_000)
    assert read_offsets(disk, ROOT / RECOVERY_POINTS) == {("a", 0): 2}
    assert read_offsets(disk, ROOT / LOG_START_OFFSETS) == {("a", 0): 1}
    first.checkpoint_high_watermarks({("a", 0): Offset(4)})
    assert read_offsets(disk, ROOT / HIGH_WATERMARKS) == {("a", 0): 4}
    assert manager(disk).get_or_create("a", 0, A, CONFIG, NOW).log_start_offset == 1


def test_a_truncation_lowers_the_checkpoint_first(disk: SimulatedDisk) -> None:
    first = manager(disk)
    log = first.get_or_create("a", 0, A, CONFIG, NOW)
    append(log, 2)
    append(log, 2)
    log.flush()
    first.tick(NOW + 60_000)
    log.truncate_to(Offset(2))
    assert read_offsets(disk, ROOT / RECOVERY_POINTS) == {("a", 0): 2}


def test_a_log_that_started_over_beside_a_deleted_segment_is_taken_up_after_a_crash(disk: SimulatedDisk) -> None:
    """The deleted segment waits for its removal, and is older than the log's new start."""
    first = manager(disk)
    log = first.get_or_create("a", 0, A, CONFIG, NOW)
    for _ in range(20):
        append(log, 2)
    log.flush()
    first.tick(NOW + 60_000)
    log.advance_log_start_offset(Offset(10))
    assert log.delete_old_segments(NOW + 60_000, log.log_end_offset) == 1
    log.truncate_fully_and_start_at(Offset(1_000), NOW + 60_000)
    assert any(name.endswith(".log.deleted") for name in disk.list_folder(log.folder))
    again = manager(disk).get_or_create("a", 0, A, CONFIG, NOW)
    assert (again.log_start_offset, again.log_end_offset) == (1_000, 1_000)


@pytest.mark.parametrize("start", [25, 1_000], ids=["within the log", "above its end"])
def test_a_log_whose_start_over_is_cut_short_is_taken_up(start: int) -> None:
    """A follower does so whose leader has deleted records that it lacks."""
    found: set[tuple[int, int]] = set()
    for changes in range(40):
        disk = BreakingDisk()
        first = manager(disk)
        log = first.get_or_create("a", 0, A, CONFIG, NOW)
        for _ in range(20):
            append(log, 2)
        log.flush()
        first.tick(NOW + 60_000)
        disk.changes_left = changes
        with suppress(StorageError):
            log.truncate_fully_and_start_at(Offset(start), NOW + 60_000)
        disk.changes_left = None
        again = manager(disk).get_or_create("a", 0, A, CONFIG, NOW)
        found.add((again.log_start_offset, again.log_end_offset))
        assert offsets(again) == [*range(again.log_start_offset, again.log_end_offset)]
    assert found == {(0, 40), (0, 30), (0, 20), (0, 10), (start, start)}


def test_logs_that_were_not_opened_stay_as_they_are(disk: SimulatedDisk) -> None:
    first = manager(disk)
    for topic in ("a", "b"):
        append(first.get_or_create(topic, 0, A, CONFIG, NOW), 3)
    first.shut_down({("a", 0): Offset(3), ("b", 0): Offset(3)}, NOW)
    second = manager(disk)
    second.get_or_create("a", 0, A, CONFIG, NOW)
    second.shut_down({("a", 0): Offset(3)}, NOW)
    third = manager(disk)
    assert third.high_watermark(("b", 0)) == 3
    log = third.get_or_create("b", 0, A, CONFIG, NOW)
    assert (log.recovered_bytes, log.log_end_offset) == (0, 3)


def test_a_clean_end_recovers_what_a_crash_left_and_no_metadata_name(disk: SimulatedDisk) -> None:
    append(manager(disk).get_or_create("b", 0, B, CONFIG, NOW), 3)
    second = manager(disk)
    second.get_or_create("a", 0, A, CONFIG, NOW)
    second.shut_down({}, NOW)
    assert disk.exists(ROOT / CLEAN_SHUTDOWN)
    assert read_offsets(disk, ROOT / RECOVERY_POINTS) == {("a", 0): 0, ("b", 0): 3}
    log = manager(disk).get_or_create("b", 0, B, CONFIG, NOW)
    assert (log.topic_id, log.recovered_bytes, log.log_end_offset) == (B, 0, 3)


@pytest.mark.parametrize("other", ["lost+found", "b-0", "backup"])
def test_a_folder_without_a_log_does_not_make_an_end_unclean(disk: SimulatedDisk, other: str) -> None:
    manager(disk)
    disk.make_folder(ROOT / other)
    second = manager(disk)
    second.get_or_create("a", 0, A, CONFIG, NOW)
    second.shut_down({}, NOW)
    assert disk.exists(ROOT / CLEAN_SHUTDOWN)


@pytest.mark.parametrize("left", [None, b"rubbish"], ids=["missing", "damaged"])
def test_an_end_is_not_called_clean_while_a_crashed_log_waits(disk: SimulatedDisk, left: bytes | None) -> None:
    append(manager(disk).get_or_create("b", 0, B, CONFIG, NOW), 3)
    if left is None:
        disk.remove(ROOT / "b-0" / PARTITION_METADATA)
    else:
        disk.write_file(ROOT / "b-0" / PARTITION_METADATA, left)
    second = manager(disk)
    second.get_or_create("a", 0, A, CONFIG, NOW)
    second.shut_down({}, NOW)
    assert not disk.exists(ROOT / CLEAN_SHUTDOWN)


def test_an_end_on_a_broken_disk_is_not_called_clean(disk: SimulatedDisk) -> None:
    first = manager(disk)
    append(first.get_or_create("a", 0, A, CONFIG, NOW), 3)
    disk.read_only = True
    with pytest.raises(StorageError):
        first.shut_down({}, NOW)
    disk.read_only = False
    assert not disk.exists(ROOT / CLEAN_SHUTDOWN)


def test_damaged_checkpoints_are_taken_for_empty(disk: SimulatedDisk) -> None:
    first = manager(disk)
    append(first.get_or_create("a", 0, A, CONFIG, NOW), 3)
    first.shut_down({("a", 0): Offset(3)}, NOW)
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        disk.write_file(ROOT / name, b"rubbish")
    said: list[str] = []
    second = LogDirectory(disk, ROOT, lambda level, message: said.append(f"{level}: {message}"))
    second.load(NOW)
    assert len(said) == 2
    assert [sum(name in line for line in said) for name in (RECOVERY_POINTS, HIGH_WATERMARKS)] == [1, 1]
    assert second.get_or_create("a", 0, A, CONFIG, NOW).log_end_offset == 3


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_directory_with_unreadable_log_starts_is_refused(disk: SimulatedDisk, is_clean: bool) -> None:
    """Kafka takes the log directory offline, too."""
    first = manager(disk)
    log = first.get_or_create("a", 0, A, CONFIG, NOW)
    append(log, 3)
    log.advance_log_start_offset(Offset(2))
    first.shut_down({("a", 0): Offset(3)}, NOW)
    if not is_clean:
        disk.remove(ROOT / CLEAN_SHUTDOWN)
    disk.write_file(ROOT / LOG_START_OFFSETS, b"rubbish")
    for _ in range(2):
        with pytest.raises(CorruptFile, match=f"/{ROOT.name}: {LOG_START_OFFSETS} .* deleted records are served again"):
            manager(disk)
    disk.remove(ROOT / LOG_START_OFFSETS)
    assert offsets(manager(disk).get_or_create("a", 0, A, CONFIG, NOW)) == [0, 1, 2]


def test_after_a_clean_end_no_log_begins_beyond_its_end(disk: SimulatedDisk) -> None:
    """A number that is too high would remove all segments. After a crash it may be right: the log's end is lost."""
    first = manager(disk)
    append(first.get_or_create("a", 0, A, CONFIG, NOW), 3)
    first.shut_down({("a", 0): Offset(3)}, NOW)
    write_offsets(disk, ROOT / LOG_START_OFFSETS, {("a", 0): Offset(4)})
    for _ in range(2):
        with pytest.raises(CorruptFile, match=f"a-0 ends at offset 3, and begins at 4 by {LOG_START_OFFSETS}"):
            manager(disk)
    write_offsets(disk, ROOT / LOG_START_OFFSETS, {("a", 0): Offset(1)})
    assert offsets(manager(disk).get_or_create("a", 0, A, CONFIG, NOW)) == [1, 2]


@pytest.mark.parametrize("has_checksums", [True, False])
@pytest.mark.parametrize("damage", [b"0\n1\na 0", None])
def test_a_compacted_log_is_whole_without_its_recovery_point(damage: bytes | None, has_checksums: bool) -> None:
    """Where a compaction took the end of a segment, the next one does not begin there; nothing was lost. Without checksums it is
    Kafka's folder, whose operator has removed the file to have all logs recovered."""
    disk = SimulatedDisk()
    config = replace(CONFIG, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
    made = manager(disk)
    made.cleaner.stable_end = lambda key: made.logs[key].log_end_offset
    log = made.get_or_create("a", 0, A, config, NOW)
    for number in range(3):
        put(log, *((f"{number} {index}", "x" * 20) for index in range(11)))
        put(log, ("again and again", str(number)))
        log.roll(NOW)
    log.flush()
    for number in range(20):
        made.cleaner.tick(NOW + number)
    kept = offsets(log)
    assert len(kept) == 34
    made.tick(NOW + CHECKPOINT_INTERVAL_MS)
    disk.remove(ROOT / RECOVERY_POINTS)
    if not has_checksums:
        disk.remove(ROOT / SEGMENT_CHECKSUMS)
    if damage is not None:
        disk.write_file(ROOT / RECOVERY_POINTS, damage)

    again = manager(disk).get_or_create("a", 0, A, config, NOW)
    assert again.lost_bytes == 0
    assert offsets(again) == kept


def test_the_upkeep_reports_what_was_repaired() -> None:
    disk, said = SimulatedDisk(), list[str]()
    directory = LogDirectory(disk, ROOT, lambda level, message: said.append(f"{level}: {message}"))
    directory.load(NOW)
    log = directory.get_or_create("a", 0, A, CONFIG, NOW)
    directory.tick(NOW)
    assert said == []
    log.repairs.append("an index was damaged")
    directory.tick(NOW + 1_000_000)
    assert len(said) == 1 and "a-0" in said[0] and "an index was damaged" in said[0]
    directory.tick(NOW + 2_000_000)
    assert len(said) == 1


def test_a_new_log_survives_a_power_failure_once_it_is_flushed() -> None:
    for seed in range(20):
        disk = SimulatedDisk()
        first = manager(disk)
        disk.sync_folder(Path("/"))
        log = first.get_or_create("a", 0, A, CONFIG, NOW)
        append(log, 3)
        log.flush()
        disk.lose_power(random.Random(seed))
        assert offsets(manager(disk).get_or_create("a", 0, A, CONFIG, NOW)) == [0, 1, 2]


def test_the_quorums_log(disk: SimulatedDisk) -> None:
    log = manager(disk).metadata_log(NOW)
    assert (log.folder.name, log.topic_id) == ("__cluster_metadata-0", METADATA_TOPIC_ID)
    assert folder_name("x-y", 3) == "x-y-3"
