"""After the first failure of its disk a node must end, so that no retry is acknowledged that may never be durable."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from linearizability.damage import reference as own
from linearizability.damage.content import create_topics, find_coordinators, make_batch, offset_at, produce
from linearizability.damage.reference import NoAnswer, Started
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.messages.offset_commit import OffsetCommitRequest
from reference.storage.answers import LogSlice, ReadResult
from reference.storage.log import Log
from reference.storage.simulated_disk import SimulatedDisk

PLACE = ("plain", 0)
ALTER = IncrementalAlterConfigsRequest


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_folder(own.HOME)
    disk.sync_folder(own.HOME.parent)
    return disk


@pytest.fixture
def started(disk: SimulatedDisk) -> Started:
    """`plain` flushes each record."""
    started = Started(disk, own.NOW)
    create_topics(started.ask)
    config = ALTER.AlterableConfig(name="flush.messages", config_operation=0, value="1")
    started.ask(
        ALTER(resources=[ALTER.AlterConfigsResource(resource_type=2, resource_name="plain", configs=[config])]), 1
    )
    return started


def test_a_failed_flush_ends_the_node_and_the_next_start_makes_its_records_durable(
    disk: SimulatedDisk, started: Started
) -> None:
    assert produce(started.ask, PLACE, make_batch(0, 0, own.NOW)) == 0
    disk.flushes_fail = True
    with pytest.raises(Exception, match="KAFKA_STORAGE_ERROR"):
        produce(started.ask, PLACE, make_batch(0, 1, own.NOW))
    disk.flushes_fail = False
    assert started.node.is_broken and "flush" in started.node.failure
    with pytest.raises(NoAnswer):
        offset_at(started.ask, PLACE, -1)
    disk.failure = None
    again = Started(disk, own.NOW + 1_000)
    assert produce(again.ask, PLACE, make_batch(0, 2, own.NOW)) == 6
    disk.lose_power(random.Random(3))
    disk.failure = None
    assert offset_at(Started(disk, own.NOW + 2_000).ask, PLACE, -1) == 9


def test_a_coordinators_partition_that_cannot_be_read_is_not_coordinated_and_other_partitions_are_served(
    disk: SimulatedDisk, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_coordinators(started.ask, lambda: started.tick(100))
    assert commit(started) == ErrorCode.NONE
    started.node.shut_down(started.now)

    class Unreadable(LogSlice):
        def read(self) -> bytes:
            raise OSError(errno.EIO, "the simulated disk cannot be read")

    read = Log.read

    def read_or_fail(log: Log, *bounds: Any) -> ReadResult:
        is_offsets = log.folder.name.startswith("__consumer_offsets")
        return ReadResult(Unreadable(None, 0, 1)) if is_offsets else read(log, *bounds)

    with monkeypatch.context() as patch:
        patch.setattr(Log, "read", read_or_fail)
        again = Started(disk, own.NOW + 10_000)
        again.tick(100)
    assert any("__consumer_offsets-0: cannot be loaded from offset 0 on" in text for _, text in again.said)
    assert not again.node.is_broken, again.node.failure
    assert commit(again) == ErrorCode.NOT_COORDINATOR
    assert produce(again.ask, PLACE, make_batch(0, 0, own.NOW)) == 0


def commit(started: Started) -> int:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="plain", partitions=[partition])
    answer = started.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
    return int(answer.topics[0].partitions[0].error_code)
