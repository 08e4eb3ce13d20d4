"""Several log directories: the place of a new log, and directories that are offline, missing or hold a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from reference.protocol.primitives import BrokerEpoch, LeaderEpoch, Offset
from reference.storage.config import LogConfig
from reference.storage.errors import CorruptFile, StorageError
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.simulated_disk import SimulatedDisk
from tests.storage.logs import NOW, append, offsets

CONFIG = LogConfig(segment_bytes=500)
TOPIC, OTHER = UUID(int=1000), UUID(int=1001)
IDS = UUID(int=101), UUID(int=102), UUID(int=103)
KEY = ("t", 0)


class World:
    """Disks that survive the managers."""

    def __init__(self, count: int = 3) -> None:
        self.disks = [SimulatedDisk() for _ in range(count)]

    def start(self, load: bool = True) -> LogManager:
        made = LogManager([LogDirectory(disk, Path(f"/{slot}"), id=IDS[slot]) for slot, disk in enumerate(self.disks)])
        if load:
            made.load(NOW)
        return made


def place(logs: LogManager, partition: int = 0, topic_id: UUID = TOPIC, **arguments: Any) -> int:
    """The index of the directory in which a log is opened or created."""
    logs.get_or_create(("t", partition), topic_id, CONFIG, NOW, **arguments)
    holder = logs.holder(("t", partition))
    assert holder is not None
    return logs.directories.index(holder)


def test_a_new_log_is_made_in_the_directory_with_the_fewest_whatever_the_metadata_log_adds() -> None:
    logs = World().start()
    logs.metadata_log(NOW)
    assert [place(logs, index) for index in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_a_new_log_is_made_where_the_metadata_assign_it_and_where_an_operator_wants_it() -> None:
    logs = World().start()
    assert place(logs, 0, assigned=IDS[2]) == 2
    assert place(logs, 1, assigned=UUID(int=0)) == 0
    assert place(logs, 2, assigned=UUID(int=999)) == 1, "a directory that was replaced"
    logs.prefer(("t", 3), logs.directories[0])
    assert place(logs, 3, assigned=IDS[1]) == 0


def test_a_log_is_found_again_where_it_is() -> None:
    world = World()
    first = world.start()
    assert place(first, assigned=IDS[1]) == 1
    append(first.directories[1].logs[KEY])
    first.shut_down({KEY: Offset(1)}, NOW, BrokerEpoch(7))
    again = world.start()
    assert place(again, assigned=IDS[2]) == 1, "the metadata learn later where it is"
    assert again.had(KEY) and again.high_watermark(KEY) == 1
    assert again.last_broker_epoch == 7


def test_a_clean_end_counts_only_where_all_directories_had_the_same() -> None:
    world = World(2)
    world.start().shut_down({}, NOW, BrokerEpoch(7))
    assert world.start().last_broker_epoch == 7
    logs = world.start()
    assert logs.last_broker_epoch is None
    logs.shut_down({}, NOW, BrokerEpoch(8))
    world.disks[1].failure = OSError(5, "broken")
    assert world.start().last_broker_epoch is None


def test_a_partition_in_two_directories_is_refused_by_name() -> None:
    world = World()
    for slot in (0, 2):
        world.disks[slot].make_folder(Path(f"/{slot}/t-0"))
        world.disks[slot].write_file(Path(f"/{slot}/t-0/00000000000000000000.log"), b"")
    with pytest.raises(CorruptFile, match=r"t-0 is in both /0 and /2"):
        world.start()


def test_a_metadata_log_in_another_directory_than_the_configured_one_is_refused() -> None:
    world = World()
    world.disks[1].make_folder(Path("/1/__cluster_metadata-0"))
    with pytest.raises(CorruptFile, match=r"/1/__cluster_metadata-0 is not in /0"):
        world.start()


def test_a_missing_metadata_log_is_refused_where_another_directory_has_logs_and_no_voter_a_copy() -> None:
    world = World(2)
    first = world.start()
    append(first.get_or_create(KEY, TOPIC, CONFIG, NOW, IDS[1]))
    first.shut_down({}, NOW, None)
    with pytest.raises(CorruptFile, match="/0 has no metadata log, and /1/t-0 is there"):
        world.start().metadata_log(NOW, is_only_copy=True)
    world.start().metadata_log(NOW)


def test_while_a_directory_is_offline_a_log_that_may_be_in_it_is_not_made() -> None:
    world = World()
    logs = world.start()
    world.disks[1].failure = OSError(5, "broken")
    assert logs.has_failed and logs.take_failed() == [logs.directories[1]] and not logs.has_failed
    assert logs.failure is None
    with pytest.raises(CorruptFile, match="t-0 may be in /1, which is offline"):
        place(logs, 0, assigned=IDS[1])
    with pytest.raises(CorruptFile, match="t-0 may be in /1"):
        place(logs, 0, is_new=False)
    assert [place(logs, 1), place(logs, 2, assigned=IDS[2])] == [0, 2]


@pytest.mark.parametrize("failed", [[0], [1, 2, 0]])
def test_the_end_is_near_when_the_metadata_directory_or_the_last_one_has_failed(failed: list[int]) -> None:
    world = World()
    logs = world.start()
    for slot in failed:
        assert logs.failure is None
        world.disks[slot].failure = OSError(5, "broken")
    assert logs.failure is not None and "broken" in logs.failure


def test_a_directory_that_cannot_be_read_at_the_start_is_offline_unless_it_is_that_of_the_metadata() -> None:
    world = World()
    world.disks[2].read_only = True
    logs = world.start()
    assert [each.id for each in logs.live] == [*IDS[:2]] and not logs.has_failed
    world.disks[0].failure = OSError(5, "broken")
    with pytest.raises(StorageError):
        world.start(load=False).load(NOW)


def moving(world: World) -> LogManager:
    """A log of ten records in the first directory, and its copy with all of them in the second."""
    logs = world.start()
    log = logs.get_or_create(KEY, TOPIC, CONFIG, NOW, IDS[0])
    copy = logs.directories[1].open_future(KEY, TOPIC, CONFIG, NOW)
    for _ in range(10):
        append(log)
    while copy.log_end_offset < 10:
        found = log.read(copy.log_end_offset, 1 << 20).records
        assert not isinstance(found, bytes)
        copy.append_as_follower(found.read(), NOW)
    return logs


def test_a_copy_takes_the_place_of_its_log() -> None:
    world = World(2)
    logs = moving(world)
    assert logs.holder(KEY) is logs.directories[0] and logs.future_holder(KEY) is logs.directories[1]
    log = logs.replace_with_future(KEY, Offset(7), NOW)
    assert world.start().directories[1].high_watermark(KEY) == 7
    assert logs.holder(KEY) is logs.directories[1] and logs.future_holder(KEY) is None
    append(log)
    assert offsets(log) == [*range(11)] and log.folder == Path("/1/t-0")
    logs.tick(NOW + 200_000)
    assert [name for name in world.disks[0].list_folder(Path("/0")) if name.startswith("t-0")] == []
    logs.shut_down({KEY: Offset(11)}, NOW, BrokerEpoch(1))
    again = world.start()
    assert place(again, assigned=IDS[1]) == 1
    assert offsets(again.directories[1].logs[KEY]) == [*range(11)] and again.high_watermark(KEY) == 11


def test_a_copy_knows_the_epoch_of_a_leader_that_has_appended_nothing() -> None:
    world = World(2)
    logs = moving(world)
    logs.directories[0].logs[KEY].assign_epoch_start(LeaderEpoch(7), Offset(10))
    log = logs.replace_with_future(KEY, Offset(10), NOW)
    assert log.end_offset_for_epoch(LeaderEpoch(7)) == (7, 10)
    assert log.end_offset_for_epoch(LeaderEpoch(6)) == (0, 10)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_copy_survives_a_restart(is_clean: bool) -> None:
    world = World(2)
    logs = moving(world)
    if is_clean:
        logs.shut_down({}, NOW, BrokerEpoch(1))
    again = world.start()
    assert place(again, assigned=IDS[0]) == 0
    copy = again.directories[1].open_future(KEY, TOPIC, CONFIG, NOW)
    assert copy.log_end_offset == 10 and copy.folder.name.endswith("-future")


def test_a_crash_between_the_two_renames_leaves_a_copy_that_becomes_the_log() -> None:
    world = World(2)
    logs = moving(world)
    logs.directories[1].logs[KEY].flush(NOW)
    logs.directories[0].delete(KEY, NOW)
    again = world.start()
    assert place(again, assigned=IDS[1]) == 1
    assert offsets(again.directories[1].logs[KEY]) == [*range(10)] and again.future_holder(KEY) is None


def test_a_copy_whose_log_is_gone_is_no_log_until_the_metadata_say_so() -> None:
    world = World(2)
    logs = moving(world)
    logs.directories[0].delete(KEY, NOW)
    again = world.start()
    assert place(again, assigned=UUID(int=999)) == 0, "its disk was replaced: an empty one begins, as Kafka's"
    assert again.directories[0].logs[KEY].log_end_offset == 0
    again.delete(KEY, NOW)
    assert again.future_holder(KEY) is not None, "one that is not open stays"


def test_a_topic_that_is_deleted_takes_the_copy_along() -> None:
    world = World(2)
    logs = moving(world)
    logs.delete(KEY, NOW)
    assert logs.holder(KEY) is None and logs.future_holder(KEY) is None
    assert place(logs, topic_id=OTHER, assigned=IDS[1]) == 1
    assert logs.directories[1].logs[KEY].log_end_offset == 0


def test_no_log_is_made_once_the_last_directory_has_failed() -> None:
    """One request may name several new partitions. Found by a simulated run: groups, ZooKeeper, five nodes, seed 41750002."""
    world = World(count=1)
    logs = world.start()
    world.disks[0].failure = OSError(30, "read-only")
    logs.take_failed()
    for index in (0, 1):
        with pytest.raises(StorageError, match=f"t-{index}"):
            place(logs, index)
