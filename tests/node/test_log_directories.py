"""A node with two log directories: what it serves when one fails, and how a replica moves from one to the other.

`tests/tools/test_log_directories.py` has the same cases for Apache Kafka.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from linearizability.damage import reference as own
from linearizability.damage.content import make_batch, offset_at, produce
from linearizability.damage.reference import NoAnswer, Started
from reference.controller.directory_ids import LOST
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.primitives import NEVER, NodeId
from reference.storage.log_directory import LogDirectory
from reference.storage.simulated_disk import SimulatedDisk

NODE = NodeId(1)
FIRST, SECOND = ("plain", 0), ("plain", 1)
"""The partitions of `plain`: the first is made in the first directory, the second in the second."""
OTHER = Path("/other")
OTHER_ID = uuid.UUID(int=4712)


class World:
    """Two disks, and the nodes that run on them one after the other."""

    def __init__(self) -> None:
        self.home, self.other = SimulatedDisk(), SimulatedDisk()
        self.home.make_folder(own.HOME)
        self.other.make_folder(OTHER)
        self.now = own.NOW
        self.other_id = OTHER_ID

    def start(self) -> Started:
        self.now += 100_000
        self.home.failure = self.other.failure = None
        other = LogDirectory(self.other, OTHER, id=self.other_id)
        return Started(self.home, self.now, [other])

    def names(self, disk: SimulatedDisk) -> list[str]:
        folder = own.HOME if disk is self.home else OTHER
        return [name for name in disk.list_folder(folder) if name.startswith("plain")]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def started(world: World) -> Started:
    started = world.start()
    config = CreateTopicsRequest.CreatableTopicConfig(name="flush.messages", value="1")
    topic = CreateTopicsRequest.CreatableTopic(name="plain", num_partitions=2, replication_factor=1, configs=[config])
    started.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    started.tick(100)
    assert (world.names(world.home), world.names(world.other)) == (["plain-0"], ["plain-1"])
    for place in (FIRST, SECOND):
        write(started, place, 4)
    return started


def write(started: Started, place: tuple[str, int], count: int) -> None:
    for _ in range(count):
        produce(started.ask, place, make_batch(0, 0, own.NOW))


def end_of(started: Started, place: tuple[str, int]) -> int | str:
    return offset_at(started.ask, place, -1)


def leaders(started: Started) -> list[int]:
    topics = started.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="plain")]), 9).topics
    return [each.leader_id for each in sorted(topics[0].partitions, key=lambda each: each.partition_index)]


def described(started: Started) -> dict[str, Any]:
    found = started.ask(DescribeLogDirsRequest(topics=None), 4).results
    return {
        each.log_dir: each.error_code
        or sorted((part.partition_index, part.is_future_key) for topic in each.topics for part in topic.partitions)
        for each in found
    }


def move(started: Started, path: Path, index: int, *before: Path) -> int:
    """Move a partition of `plain`; `before` are directories that the request names before the last one."""
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="plain", partitions=[index])
    dirs = [AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(each), topics=[topic]) for each in (*before, path)]
    (result,) = started.ask(AlterReplicaLogDirsRequest(dirs=dirs), 2).results[0].partitions
    return result.error_code


def test_the_size_of_a_partition_is_that_of_its_segments(world: World, started: Started) -> None:
    found = started.ask(DescribeLogDirsRequest(topics=None), 4).results
    sizes = {each.log_dir: part.partition_size for each in found for topic in each.topics for part in topic.partitions}
    assert sizes == {
        str(folder): disk.size_of(folder / f"plain-{index}" / f"{0:020}.log")
        for index, (disk, folder) in enumerate(((world.home, own.HOME), (world.other, OTHER)))
    }


# ---- a directory that fails


def test_a_directory_that_fails_is_offline_and_the_other_goes_on(world: World, started: Started) -> None:
    world.other.flushes_fail = True
    with pytest.raises(Exception, match="KAFKA_STORAGE_ERROR"):
        write(started, SECOND, 1)
    world.other.flushes_fail = False
    started.tick(10)
    assert not started.node.is_broken
    write(started, FIRST, 1)
    assert "KAFKA_STORAGE_ERROR" in str(end_of(started, SECOND))
    for _ in range(3):
        started.tick(100)
    assert started.node.image.brokers[NODE].directories == [own.DIRECTORY], "the heartbeat has named the other"
    assert leaders(started) == [1, -1]
    assert described(started) == {str(own.HOME): [(0, False)], str(OTHER): ErrorCode.KAFKA_STORAGE_ERROR}
    assert move(started, OTHER, 0) == move(started, own.HOME, 1) == ErrorCode.KAFKA_STORAGE_ERROR
    again = world.start()
    for _ in range(3):
        again.tick(100)
    assert leaders(again) == [1, 1] and end_of(again, SECOND) in (12, 15)


@pytest.mark.parametrize("first", ["home", "other"])
def test_the_node_ends_with_the_directory_of_the_metadata_log(world: World, started: Started, first: str) -> None:
    disk = world.home if first == "home" else world.other
    disk.read_only = True
    with pytest.raises((NoAnswer, Exception)):
        write(started, FIRST if first == "home" else SECOND, 1)
    assert started.node.is_broken == (first == "home")


def test_a_new_topic_is_made_in_the_directory_that_works(world: World, started: Started) -> None:
    world.other.failure = OSError(5, "broken")
    for _ in range(3):
        started.tick(100)
    topic = CreateTopicsRequest.CreatableTopic(name="late", num_partitions=3, replication_factor=1)
    started.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    for index in range(3):
        write(started, ("late", index), 1)
    assert [name for name in world.home.list_folder(own.HOME) if name.startswith("late")] == [
        "late-0",
        "late-1",
        "late-2",
    ]


def test_a_broker_whose_failed_directory_no_controller_takes_note_of_ends(world: World, started: Started) -> None:
    asked = started.node.channel.ask
    started.node.channel.ask = lambda purpose, body, answered, now: answered(None, now)
    world.other.failure = OSError(5, "broken")
    for _ in range(29):
        started.tick(1_000)
    assert not started.node.is_broken
    for _ in range(3):
        started.tick(1_000)
    assert started.node.is_broken and "failed log directory" in started.node.failure
    started.node.channel.ask = asked


def test_a_replica_whose_log_is_damaged_is_reported_so_that_another_may_lead(world: World, started: Started) -> None:
    started.node.shut_down(started.now)
    name = OTHER / "plain-1" / "00000000000000000000.log"
    world.other.remove(name)
    world.other.sync_folder(name.parent)
    world.other.remove(OTHER / ".kafka_cleanshutdown")
    again = world.start()
    for _ in range(3):
        again.tick(100)
    assert again.node.image.topics["plain"].partitions[1].directory_of(NODE) == LOST
    assert leaders(again) == [1, -1] and end_of(again, FIRST) == 12


# ---- a disk that was replaced


def test_a_directory_of_another_id_has_its_replicas_assigned_to_it_and_led_again(
    world: World, started: Started
) -> None:
    started.node.shut_down(started.now)
    world.other, world.other_id = SimulatedDisk(), uuid.UUID(int=4713)
    world.other.make_folder(OTHER)
    again = world.start()
    for _ in range(5):
        again.tick(100)
    assert [again.node.image.topics["plain"].partitions[index].directory_of(NODE) for index in (0, 1)] == [
        own.DIRECTORY,
        world.other_id,
    ]
    assert leaders(again) == [1, 1] and end_of(again, FIRST) == 12 and end_of(again, SECOND) == 0
    end = again.node.image.end_offset
    for _ in range(40):
        again.tick(100)
    assert again.node.image.end_offset == end, "nothing is reported twice"


# ---- moves


def test_a_replica_moves_while_it_is_written_to(world: World, started: Started) -> None:
    assert move(started, OTHER, 0) == ErrorCode.NONE
    assert described(started)[str(OTHER)] == [(0, True), (1, False)]
    write(started, FIRST, 2)
    for _ in range(10):
        started.tick(100)
    assert described(started) == {str(own.HOME): [], str(OTHER): [(0, False), (1, False)]}
    assert started.node.image.topics["plain"].partitions[0].directory_of(NODE) == OTHER_ID
    write(started, FIRST, 1)
    assert end_of(started, FIRST) == 21
    again = world.start()
    assert end_of(again, FIRST) == 21 and world.names(world.other) == ["plain-0", "plain-1"]


def test_a_replica_that_moves_follows_a_change_of_its_topics_settings(started: Started) -> None:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name="retention.bytes", config_operation=0, value="5")
    topic = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2, resource_name="plain", configs=[change]
    )
    move(started, OTHER, 0)
    started.ask(IncrementalAlterConfigsRequest(resources=[topic]), 1)
    assert described(started)[str(OTHER)] == [(0, True), (1, False)], "it moves still"
    for _ in range(10):
        started.tick(100)
    assert described(started)[str(OTHER)] == [(0, False), (1, False)]
    assert [started.node.partitions[place].log.config.retention_bytes for place in (FIRST, SECOND)] == [5, 5]


def test_a_move_goes_on_after_a_restart(world: World, started: Started) -> None:
    world.home.flushes_fail = False
    move(started, OTHER, 0)
    assert any(name.endswith("-future") for name in world.names(world.other))
    again = world.start()
    for _ in range(10):
        again.tick(100)
    assert world.names(world.other) == ["plain-0", "plain-1"] and end_of(again, FIRST) == 12


def test_a_node_on_which_nothing_moves_is_not_woken_for_moves(world: World, started: Started) -> None:
    for _ in range(3):
        started.tick(100)
    assert started.node.moves.next_deadline() == NEVER
    move(started, OTHER, 0)
    for _ in range(10):
        started.tick(100)
    assert world.names(world.other) and started.node.moves.next_deadline() == NEVER


def test_a_move_back_ends_the_move(world: World, started: Started) -> None:
    move(started, OTHER, 0)
    assert move(started, own.HOME, 0) == ErrorCode.NONE
    for _ in range(10):
        started.tick(100)
    assert described(started) == {str(own.HOME): [(0, False)], str(OTHER): [(1, False)]}
    assert started.node.image.topics["plain"].partitions[0].directory_of(NODE) == own.DIRECTORY


def test_a_move_into_a_directory_that_fails_leaves_the_replica_where_it_is(world: World, started: Started) -> None:
    move(started, OTHER, 0)
    world.other.failure = OSError(5, "broken")
    for _ in range(10):
        started.tick(100)
    write(started, FIRST, 1)
    assert end_of(started, FIRST) == 15 and leaders(started) == [1, -1]


def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing(world: World, started: Started) -> None:
    move(started, OTHER, 0)
    started.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="plain")], timeout_ms=1_000), 6)
    for _ in range(5):
        started.tick(30_000)
    assert world.names(world.home) == world.names(world.other) == []


def test_a_directory_or_topic_that_is_not_there(started: Started) -> None:
    assert move(started, Path("/nowhere"), 0) == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(started, OTHER, 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(started, own.HOME, 0) == ErrorCode.NONE


def test_of_several_directories_for_one_replica_the_last_counts(started: Started) -> None:
    assert move(started, own.HOME, 0, Path("/nowhere")) == ErrorCode.NONE
    assert move(started, Path("/nowhere"), 0, OTHER) == ErrorCode.LOG_DIR_NOT_FOUND
    assert described(started)[str(OTHER)] == [(1, False)], "no move to the first has begun"
