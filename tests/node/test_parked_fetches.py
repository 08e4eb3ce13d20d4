"""A waiting fetch of many partitions: its cost does not depend on idle partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reference.controller.configs import Configuration
from reference.controller.image import MetadataImage
from reference.node.fetch import Fetching, fetch
from reference.node.fetch_sessions import FetchSessions
from reference.node.quotas import Quotas
from reference.node.requests import Client, Purgatories, Request, Responder
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.primitives import AT_ONCE, FIRST_OFFSET, NodeId, Offset, TimestampMs
from reference.replication.partition import Partition
from reference.replication.reading import Read

PARTITIONS, VERSION, MIN_BYTES = 3000, 12, 1000


class Replica:
    """A partition of the topic `t` that counts how often it is read."""

    def __init__(self, broker: Broker, index: int) -> None:
        self.key, self.broker, self.records, self.moved = ("t", index), broker, b"", False

    def require_leader(self, epoch: int) -> Replica:
        return self

    def read_as_follower(self, *_: object) -> Read:
        self.broker.reads += 1
        return Read(Offset(5), Offset(5), FIRST_OFFSET, self.records)

    def answer_fetch(self, *arguments: object) -> Read:
        read = self.read_as_follower()
        read.moved = self.moved
        return read


class Broker:
    """A broker without a node, whose replicas the test controls."""

    def __init__(self) -> None:
        self.reads = 0
        self.replicas = [Replica(self, index) for index in range(PARTITIONS)]
        self.responses: list[object] = []
        self.purgatories = Purgatories()
        context: Any = SimpleNamespace(
            image=MetadataImage(),
            replicas=self,
            purgatories=self.purgatories,
            responder=Responder(self.responses.append),
            log=None,
            access=SimpleNamespace(may_fetch=lambda *_: True),
        )
        chance: Any = SimpleNamespace(randrange=lambda start, stop: start)
        quotas = Quotas(Configuration(NodeId(1), {}, MetadataImage()))
        self.fetching = Fetching(context, FetchSessions(10, chance), 1 << 20, lambda partition: None, quotas)

    def partition(self, topic: str, index: int) -> Replica:
        if index == PARTITIONS:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.replicas[index]

    def peer(self, broker: int) -> None:
        return None

    def fetch(self, extra: int = 0) -> object:
        partition = FetchRequest.FetchPartition
        asked = [
            partition(partition=each, fetch_offset=5, partition_max_bytes=1000) for each in range(PARTITIONS + extra)
        ]
        body = FetchRequest(
            replica_id=2,
            max_wait_ms=500,
            min_bytes=MIN_BYTES,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic="t", partitions=asked)],
        )
        return fetch(self.fetching, Request(Client(1, "127.0.0.1", "PLAINTEXT"), 1, VERSION, 1, None), body, AT_ONCE)

    def wake(self, index: int) -> int:
        """Report news of one partition; return the number of partitions read for it."""
        before = self.reads
        self.purgatories.wake(cast(Partition, self.replicas[index]), AT_ONCE)
        return self.reads - before


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_news_of_each_partition_reads_this_partition_alone(broker: Broker) -> None:
    assert broker.fetch() is None
    assert broker.reads == PARTITIONS
    assert all(broker.wake(index) == 1 for index in range(PARTITIONS))
    assert broker.responses == []


def test_bytes_of_several_partitions_add_up_to_a_response(broker: Broker) -> None:
    broker.fetch()
    broker.replicas[7].records, broker.replicas[9].records = bytes(600), bytes(400)
    assert broker.wake(7) == 1 and broker.responses == []
    assert broker.wake(7) == 1 and broker.responses == []
    assert broker.wake(9) == 1 + PARTITIONS and len(broker.responses) == 1


def test_a_partition_that_cannot_be_read_is_answered_at_once(broker: Broker) -> None:
    assert broker.fetch(extra=1) is not None


def test_what_a_fetch_commits_and_a_coordinator_appends_then_is_in_its_response(broker: Broker) -> None:
    class Coordinator:
        """Waits for a commit of partition 7, and appends to partition 9."""

        connection = broker.purgatories.produces.internal()

        def try_complete(self, now: int, key: object) -> bool:
            broker.replicas[9].records = bytes(MIN_BYTES)
            broker.wake(9)
            return True

    broker.purgatories.produces.park(cast(Any, Coordinator()), [("t", 7)], TimestampMs(1000))
    broker.replicas[7].moved = True
    assert broker.fetch() is None
    assert len(broker.responses) == 1
