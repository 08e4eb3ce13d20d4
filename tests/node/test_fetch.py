"""Which fetches wait for more, which are answered at once, and which replica a consumer of another rack is sent to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reference.node.fetch import fetch
from reference.node.node import Node
from reference.node.preferred_replicas import preferred_replica
from reference.node.requests import Client, Request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.primitives import Offset, ProducerEpoch, ProducerId, TimestampMs
from reference.protocol.records.batch import NOT_IDEMPOTENT, BatchProducer, build
from reference.protocol.records.errors import CorruptBatch
from reference.protocol.records.record import Record
from reference.replication.progress import Progress
from reference.storage.log import Log
from reference.storage.simulated_disk import SimulatedDisk
from reference.storage.verification import NOT_REQUIRED
from tests.node.test_metadata_snapshots import FOLDER, NOW, create, start

FETCH, VERSION = 1, 12
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
PRODUCER = ProducerId(4711)


@pytest.fixture
def node() -> Node:
    """A node whose topic `t` has two records, three of an open transaction, two others, and one that is not committed."""
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW)
    create(node, "t", NOW)
    for count, producer in ((2, -1), (3, PRODUCER), (2, -1), (1, -1)):
        records = [Record(Offset(at), NOW, None, b"value", ()) for at in range(count)]
        has_producer = producer == PRODUCER
        batch = build(
            records,
            producer=BatchProducer(PRODUCER, ProducerEpoch(0), 0, transactional=True)
            if has_producer
            else NOT_IDEMPOTENT,
        )
        node.replicas.partition("t", 0).produce(batch, NOW, guard=NOT_REQUIRED)
    node.replicas.partition("t", 0).high_watermark = Offset(7)
    return node


def ask(node: Node, offset: int, isolation_level: int) -> FetchResponse.PartitionData | None:
    """The partition's data in the response; None while the fetch waits."""
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    body = FetchRequest(
        max_wait_ms=5000,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic="t", partitions=[partition])],
    )
    request = Request(Client(offset, "127.0.0.1", "PLAINTEXT"), FETCH, VERSION, 1, None)
    answer = fetch(node.fetching, request, body, NOW)
    return None if answer is None else answer.responses[0].partitions[0]


def is_answered_at_once(node: Node, offset: int, isolation_level: int) -> bool:
    answer = ask(node, offset, isolation_level)
    assert answer is None or answer.error_code == ErrorCode.NONE
    return answer is not None


@pytest.mark.parametrize(
    ("isolation_level", "at_once"), [(READ_COMMITTED, [0, 1, 5, 6, 7, 8]), (READ_UNCOMMITTED, [*range(7), 8])]
)
def test_who_asks_for_what_lies_behind_all_that_it_may_see_is_answered_at_once(
    node: Node, isolation_level: int, at_once: list[int]
) -> None:
    """An offset within the last visible batch waits: more records may follow."""
    assert [offset for offset in range(9) if is_answered_at_once(node, offset, isolation_level)] == at_once


@pytest.mark.parametrize(("reads", "offset"), [("read", 0), ("batch_start", 8)])
def test_damage_is_reported_for_the_partition_that_has_it(
    node: Node, monkeypatch: pytest.MonkeyPatch, reads: str, offset: int
) -> None:
    def find_damage(log: Log, *_: object) -> None:
        raise CorruptBatch(f"{log.topic} holds no batch")

    monkeypatch.setattr(Log, reads, find_damage)
    answer = ask(node, offset, READ_UNCOMMITTED)
    assert answer is not None
    assert (answer.error_code, answer.high_watermark, answer.records) == (ErrorCode.CORRUPT_MESSAGE, -1, b"")


BROKERS: Any = {
    1: SimpleNamespace(rack="a", fenced=False),
    2: SimpleNamespace(rack="b", fenced=False),
    3: SimpleNamespace(rack="b", fenced=False),
    4: SimpleNamespace(rack="c", fenced=True),
    5: SimpleNamespace(rack=None, fenced=False),
}


def progress(end: int, *, start: int = 0, caught_up: TimestampMs = NOW) -> Progress:
    return Progress(end=Offset(end), log_start=Offset(start), last_caught_up=caught_up)


@pytest.mark.parametrize(
    ("followers", "rack", "offset", "preferred"),
    [
        ({2: progress(10)}, "b", 5, 2),
        ({2: progress(10)}, "b", 10, 2),
        ({2: progress(10)}, "b", 11, None),  # it does not hold the offset yet
        ({2: progress(10, start=6)}, "b", 5, None),  # nor any more
        ({2: Progress()}, "b", 0, None),  # it has never fetched
        ({2: progress(10)}, "a", 5, None),  # the leader's own rack
        ({2: progress(10)}, "d", 5, None),
        ({4: progress(10)}, "c", 5, None),  # fenced
        ({5: progress(10)}, "", 5, None),
        ({6: progress(10)}, "b", 5, None),  # not registered
        ({2: progress(10), 3: progress(12)}, "b", 5, 3),
        ({2: progress(10, caught_up=NOW - 1), 3: progress(10, caught_up=NOW - 9)}, "b", 5, 2),
        ({2: progress(10), 3: progress(10)}, "b", 5, 3),
    ],
)
def test_the_follower_that_is_named(
    followers: dict[int, Progress], rack: str, offset: int, preferred: int | None
) -> None:
    partition: Any = SimpleNamespace(leading=SimpleNamespace(followers=followers), node=1)
    assert preferred_replica(partition, rack, Offset(offset), BROKERS, NOW) == preferred
    partition.leading = None
    assert preferred_replica(partition, rack, Offset(offset), BROKERS, NOW) is None
