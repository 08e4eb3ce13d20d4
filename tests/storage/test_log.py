"""One partition's log: appending, rolling, cutting, keeping, flushing.

Offsets, epochs, reads, look-ups by time and truncation are compared with a model (`test_log_machine`) and with Kafka's log
(`test_logs_beside_kafka`).
"""

from dataclasses import replace
from pathlib import Path

import pytest

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import LeaderEpoch, Offset
from reference.protocol.records.batch import BatchHeader, build, read_all_records, read_batches, read_header
from reference.protocol.records.compression import Codec
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.record import Record
from reference.storage.config import LogConfig
from reference.storage.errors import LogError, StorageError
from reference.storage.log import Log, LogSlice, PendingFlush
from reference.storage.posix_disk import PosixDisk
from reference.storage.recovery import PreviousRun
from reference.storage.segment import Segment
from reference.storage.segment_list import LogIdentity
from reference.storage.simulated_disk import SimulatedDisk
from tests.storage.breaking_disk import BreakingDisk
from tests.storage.logs import FOLDER, NOW, T_0, append, append_as, batch, end_transaction, names, offsets, open_log


def headers(log: Log) -> list[BatchHeader]:
    data = log.read(log.log_start_offset, 1 << 20).records
    return [found.header for found in read_batches(data if isinstance(data, bytes) else data.read())]


# ---- appending


def test_only_place_and_epoch_of_a_batch_change() -> None:
    """FET-15, FET-16."""
    log = open_log()
    append(log, 5)
    sent = batch(3, codec=Codec.ZSTD)
    before = bytes(sent)
    log.append_as_leader(sent, LeaderEpoch(9), NOW)
    data = log.read(Offset(5), 1 << 20).records
    assert not isinstance(data, bytes)
    stored = data.read()
    assert stored[16:] == before[16:]
    assert read_header(stored)[:3] == (5, len(before) - 12, 9)


def test_a_batch_begins_where_it_was_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    """For batches that this process appended, the file is read only for an offset within a batch."""
    log = open_log()
    for count in (3, 1, 4):
        append(log, count)
    assert [log.batch_start(Offset(offset)) for offset in range(9)] == [0, 0, 0, 3, 4, 4, 4, 4, 8]
    monkeypatch.setattr(Segment, "header_at", lambda *_: pytest.fail("the file was read"))
    assert [log.batch_start(Offset(offset)) for offset in (3, 4, 8)] == [3, 4, 8]


def test_bytes_that_must_not_change_are_copied() -> None:
    log = open_log()
    append(log)
    sent = bytes(batch(2))
    log.append_as_leader(sent, LeaderEpoch(4), NOW)
    assert read_header(sent).base_offset == 0
    assert offsets(log) == [0, 1, 2]


def test_log_append_time() -> None:
    """ACK-10."""
    log = open_log(config=LogConfig(message_timestamp_type="LogAppendTime"))
    info = append(log, 2, time=5, now=NOW + 7)
    assert (info.log_append_time, info.max_timestamp) == (NOW + 7, NOW + 7)
    data = log.read(Offset(0), 1 << 20).records
    assert not isinstance(data, bytes)
    assert {record.timestamp for record in read_all_records(data.read())} == {NOW + 7}
    assert append(open_log(), time=NOW - 5).log_append_time == -1


def test_configuration_changes_while_running() -> None:
    """ACK-11, PRD-13."""
    log = open_log()
    append(log)
    log.config = replace(log.config, compression_type="gzip")
    append(log)
    log.config = replace(log.config, cleanup_policy="compact")
    keyless = build([Record(Offset(0), NOW, None, b"v")])
    with pytest.raises(RecordsError) as refused:
        log.append_as_leader(keyless, LeaderEpoch(0), NOW)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert [header.codec for header in headers(log)] == [Codec.NONE, Codec.GZIP]


def test_a_batch_that_fits_no_segment() -> None:
    """PRD-08."""
    log = open_log(config=LogConfig(segment_bytes=200))
    with pytest.raises(LogError) as refused:
        append(log, size=200)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_a_follower_refuses_what_does_not_follow() -> None:
    log = open_log()
    log.append_as_follower(build([Record(Offset(10), NOW, None, b"v")], leader_epoch=LeaderEpoch(0)), NOW)
    with pytest.raises(LogError):
        log.append_as_follower(build([Record(Offset(10), NOW, None, b"v")], leader_epoch=LeaderEpoch(0)), NOW)
    damaged = build([Record(Offset(11), NOW, None, b"v")], leader_epoch=LeaderEpoch(0))
    damaged[-1] ^= 1
    with pytest.raises(RecordsError):
        log.append_as_follower(damaged, NOW)
    assert log.log_end_offset == 11


# ---- rolling


def test_a_segment_ends_at_its_size() -> None:
    size = len(batch())
    log = open_log(config=LogConfig(segment_bytes=2 * size))
    for _ in range(5):
        append(log)
    assert names(log, ".log") == [f"{base:020d}.log" for base in (0, 2, 4)]
    assert offsets(log) == [0, 1, 2, 3, 4]


def test_a_segment_ends_at_its_age_by_records() -> None:
    log = open_log(config=LogConfig(segment_ms=100))
    for time in (0, 100, 101, 150):
        append(log, time=NOW + time, now=NOW)
    assert names(log, ".log") == [f"{base:020d}.log" for base in (0, 2)]


def test_a_segment_without_timestamps_ends_by_the_clock() -> None:
    log = open_log(config=LogConfig(segment_ms=100))
    for now in (0, 100, 101):
        append(log, time=-1, now=NOW + now)
    assert names(log, ".log") == [f"{base:020d}.log" for base in (0, 2)]


def test_a_segment_ends_with_its_index() -> None:
    log = open_log(config=LogConfig(segment_index_bytes=36, index_interval_bytes=0))
    for _ in range(7):
        append(log)
    # Four entries fit the offset index; the first batch of a segment has none.
    assert names(log, ".log") == [f"{base:020d}.log" for base in (0, 5)]


def test_relative_offsets_have_31_bits() -> None:
    log = open_log()
    append(log)
    for base in (2**31 - 1, 2**31):
        log.append_as_follower(build([Record(base, NOW, None, b"v")], leader_epoch=LeaderEpoch(0)), NOW)
    assert log.segment_count == 2
    assert offsets(log) == [0, 2**31 - 1, 2**31]


def test_closed_indexes_are_trimmed(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(index_interval_bytes=0, segment_index_bytes=1200))
    for step in range(3):
        append(log, time=NOW + step)
    assert disk.size_of(FOLDER / f"{0:020d}.index") == 1200
    log.roll(NOW)
    assert disk.size_of(FOLDER / f"{0:020d}.index") == 16
    assert disk.size_of(FOLDER / f"{0:020d}.timeindex") == 24
    log.roll(NOW)
    assert log.segment_count == 2, "an empty segment is not rolled"


# ---- reading


def test_a_slice_outlives_its_segment(tmp_path: Path) -> None:
    log = Log(PosixDisk(), tmp_path / "t-0", LogConfig(retention_ms=0, file_delete_delay_ms=0), NOW, T_0)
    append(log, 2)
    held = log.read(Offset(0), 1 << 20).records
    assert not isinstance(held, bytes)
    before = held.read()
    log.delete_old_segments(NOW + 10, Offset(2))
    log.tick(NOW + 20)
    assert names(log, ".log") == [f"{2:020d}.log"]
    assert held.read() == before
    assert held.fileno() > 0
    held.release()
    with pytest.raises(ValueError, match="released"):
        held.read()


def test_logs_with_more_segments_than_may_be_open_read_roll_and_delete(tmp_path: Path) -> None:
    disk = PosixDisk(most_open_files=2, most_open_maps=2)
    config = LogConfig(segment_bytes=200, retention_ms=0, file_delete_delay_ms=0)
    logs = [Log(disk, tmp_path / f"t-{index}", config, NOW, LogIdentity("t", index)) for index in range(4)]
    held: list[tuple[LogSlice, bytes]] = []
    for _ in range(6):
        for log in logs:
            append(log, 2)
            records = log.read(log.log_end_offset - 1, 1 << 20).records
            assert isinstance(records, LogSlice)
            held.append((records, records.read()))
    for log in logs:
        assert log.segment_count > 2 and [*offsets(log, 0)] == [*range(12)]
        log.flush(NOW)
        log.delete_old_segments(NOW + 10, Offset(12))
        log.tick(NOW + 20)
        assert names(log, ".log") == [f"{12:020d}.log"]
    assert all(each.read() == before for each, before in held), "who reads a segment goes on when it is gone"
    for log in logs:
        append(log, 1)
        log.close()
        again = Log(disk, log.folder, config, NOW, LogIdentity("t", log.partition), PreviousRun(Offset(12), clean=True))
        assert (again.log_start_offset, again.log_end_offset) == (12, 13)
    assert disk.failure is None


# ---- cutting and keeping


def test_retention_closes_the_active_segment_first() -> None:
    """RET-01."""
    log = open_log(config=LogConfig(retention_ms=100))
    append(log, 3)
    assert log.delete_old_segments(NOW + 100, Offset(3)) == 0
    assert log.delete_old_segments(NOW + 101, Offset(2)) == 0, "the high watermark is below it (RET-06)"
    assert log.delete_old_segments(NOW + 101, Offset(3)) == 1
    assert (log.log_start_offset, log.log_end_offset, log.segment_count, log.size_bytes) == (3, 3, 1, 0)
    assert append(log)[:2] == (3, 3)


def test_deleted_files_wait_for_their_delay(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(retention_ms=0, file_delete_delay_ms=60_000))
    append(log)
    log.delete_old_segments(NOW + 1, Offset(1))
    assert f"{0:020d}.log.deleted" in disk.list_folder(FOLDER)
    assert log.next_deadline() <= NOW + 60_001
    log.tick(NOW + 60_000)
    assert names(log, ".deleted")
    log.tick(NOW + 60_001)
    assert not names(log, ".deleted")


# ---- flushing


def test_flush_by_messages() -> None:
    log = open_log(config=LogConfig(flush_messages=3))
    append(log, 2)
    assert log.recovery_point == 0
    append(log, 1)
    assert log.recovery_point == 3


def test_flush_by_time() -> None:
    log = open_log(config=LogConfig(flush_ms=50))
    append(log)
    assert log.next_deadline() == NOW + 50
    log.tick(NOW + 49)
    assert log.recovery_point == 0
    log.tick(NOW + 50)
    assert log.recovery_point == 1


def test_closed_segments_are_flushed_and_may_be_so_in_a_thread() -> None:
    log = open_log()
    waiting: list[PendingFlush] = []
    log.run_flush = waiting.append
    append(log, 2)
    log.roll(NOW)
    append(log)
    log.tick(NOW)
    log.tick(NOW)
    assert len(waiting) == 1
    assert log.recovery_point == 0
    waiting[0].run()
    waiting[0].finish()
    assert log.recovery_point == 2


def test_a_truncation_outruns_a_flush() -> None:
    log = open_log()
    waiting: list[PendingFlush] = []
    log.run_flush = waiting.append
    append(log, 2)
    log.roll(NOW)
    log.tick(NOW)
    log.truncate_to(Offset(0))
    waiting[0].finish()
    assert log.recovery_point == 0


# ---- a disk that refuses


def test_a_cut_forgets_no_transaction_whose_marker_stays_above_the_high_watermark() -> None:
    log = open_log()
    append_as(log, 1, 0, transactional=True)
    end_transaction(log, 1, commit=False)
    log.roll(NOW)
    append(log)
    assert log.last_stable_offset(Offset(1)) == 0
    log.truncate_to(Offset(2))
    assert log.last_stable_offset(Offset(1)) == 0, "another leader could still decide otherwise"
    assert log.last_stable_offset(Offset(2)) == 2


def test_a_cut_that_did_not_begin_moves_no_start() -> None:
    disk = BreakingDisk()
    log = open_log(disk)
    append(log, 2)
    append(log)
    log.advance_log_start_offset(Offset(1))
    disk.changes_left = 0
    with pytest.raises(StorageError):
        log.truncate_to(Offset(1))
    disk.changes_left = None
    assert (log.log_start_offset, log.log_end_offset) == (1, 3)
