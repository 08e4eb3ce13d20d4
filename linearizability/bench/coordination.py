"""Loads on the coordinators: commits of offsets, rebalances, transactions. Each driver has the form of `load.Driver`.

commit         one member-less consumer of a group, several OffsetCommit requests under way
rebalance      a group of N members: the leader joins again, the others learn of it by heartbeats, all join and sync
transaction    librdkafka: begin, produce, commit, one after the other; the latency is that of the whole
end to end     the same, until a read_committed consumer has the record
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from linearizability.bench.load import TIMEOUT_S, Entry, LoadConnection, drive_encoded, make_topic
from linearizability.client.group_member import ClassicMember
from linearizability.client.requests import commit_request
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest

FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP, OFFSET_COMMIT = 10, 11, 12, 14, 8
FIND_COORDINATOR_VERSION, JOIN_VERSION, HEARTBEAT_VERSION, SYNC_VERSION, COMMIT_VERSION = 3, 5, 3, 3, 8
METADATA_BYTES = 100
"""The size of a member's metadata and assignment, which are opaque to the coordinator."""
HEARTBEAT_EVERY_S = 0.01


def await_coordinator(connection: LoadConnection, group: str) -> None:
    """Wait until the group's coordinator serves: the first FindCoordinator creates the internal topic. Errors: TimeoutError."""
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        found = connection.call(
            FIND_COORDINATOR, FIND_COORDINATOR_VERSION, FindCoordinatorRequest(key=group, key_type=0)
        )
        if found.error_code == ErrorCode.NONE:
            stranger = ClassicMember(group, id="stranger", generation=1)
            if (
                connection.call(HEARTBEAT, HEARTBEAT_VERSION, stranger.heartbeat()).error_code
                == ErrorCode.UNKNOWN_MEMBER_ID
            ):
                return
        time.sleep(0.05)
    raise TimeoutError(f"group {group} got no coordinator that serves")


def commit_offsets(
    connection: LoadConnection, topic: str, partitions: int, in_flight: int, seconds: float
) -> tuple[int, list[int]]:
    """Commit the same offsets repeatedly. Returns the number of requests, and their latencies."""
    group = f"group-of-{topic}"
    await_coordinator(connection, group)
    body = commit_request(group, dict.fromkeys(((topic, index) for index in range(partitions)), 7))
    request = encode_request(OFFSET_COMMIT, COMMIT_VERSION, 1, "bench", body)

    def check(frame: bytes) -> None:
        answer: Any = decode_response(OFFSET_COMMIT, COMMIT_VERSION, frame)[1]
        code = answer.topics[0].partitions[0].error_code
        if code:
            raise RuntimeError(f"the broker answered error {code}")

    return drive_encoded(connection, request, in_flight, check, seconds)


@dataclass
class Member:
    """One member of the group, with its own connection."""

    connection: LoadConnection
    said: ClassicMember
    settled_in: int = -1
    """The last generation in which the member received its assignment."""
    is_leader: bool = False
    others: list[str] = field(default_factory=list)

    def join(self, asked: Callable[[], None]) -> None:
        """Send JoinGroup, call `asked` once it is sent, and read the response. Errors: RuntimeError."""
        for _ in range(2):  # the first response may only assign a member id
            self.connection.send(JOIN_GROUP, JOIN_VERSION, self.said.join())
            asked()
            answer: Any = decode_response(JOIN_GROUP, JOIN_VERSION, self.connection.receive())[1]
            self.said.joined(answer)
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
        _require(answer.error_code, "JoinGroup")
        self.is_leader = answer.leader == self.said.id
        self.others = [member.member_id for member in answer.members]

    def sync(self) -> bool:
        """Send SyncGroup. Whether the generation is complete; False where another one has begun. Errors: RuntimeError."""
        body = self.said.sync(dict.fromkeys(self.others, bytes(METADATA_BYTES)))
        answer = self.connection.call(SYNC_GROUP, SYNC_VERSION, body)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        _require(answer.error_code, "SyncGroup")
        return True

    def settle(self, asked: Callable[[], None] = lambda: None) -> None:
        """Join and sync until a generation is complete."""
        self.join(asked)
        while not self.sync():
            self.join(asked)
        self.settled_in = self.said.generation

    def is_called(self) -> bool:
        """Whether Heartbeat asks the member to rejoin. Errors: RuntimeError."""
        code = self.connection.call(HEARTBEAT, HEARTBEAT_VERSION, self.said.heartbeat()).error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return True
        _require(code, "Heartbeat")
        return False


def _require(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what}: the broker answered error {code}")


class Group:
    """A group whose members run in a thread each, for repeated rebalances."""

    def __init__(self, entry: Entry, name: str, size: int) -> None:
        await_coordinator(entry.connect(), name)
        protocols = {"range": bytes(METADATA_BYTES)}
        self.members = [
            Member(
                entry.connect(),
                ClassicMember(name, protocols, session_timeout_ms=30_000, rebalance_timeout_ms=60_000),
            )
            for _ in range(size)
        ]
        self._together(self._enter)

    def _enter(self, member: Member) -> None:
        """Join, and rejoin at each rebalance, until all members are in one generation."""
        member.settle()
        while len({each.settled_in for each in self.members}) > 1 or member.settled_in < 0:
            if member.is_called():
                member.settle()
            time.sleep(HEARTBEAT_EVERY_S)

    def rebalance(self, seconds: float) -> tuple[int, list[int]]:
        """Rebalance repeatedly for a time; the latency is from the leader's JoinGroup to the last member's SyncGroup."""
        latencies: list[int] = []
        until = time.monotonic() + seconds
        while not latencies or time.monotonic() < until:
            began, asked = time.monotonic_ns(), threading.Event()
            self._together(lambda member, asked=asked: _take_part(member, asked))
            latencies.append(time.monotonic_ns() - began)
        return len(latencies), latencies

    def _together(self, act: Any) -> None:
        failures: list[BaseException] = []

        def guarded(member: Member) -> None:
            try:
                act(member)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=guarded, args=(member,)) for member in self.members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]


def _take_part(member: Member, asked: threading.Event) -> None:
    """Take part in one rebalance. Other members send heartbeats only once the leader has sent JoinGroup: an earlier one would
    add its pause to the latency."""
    if member.is_leader:
        member.settle(asked.set)
        return
    asked.wait(TIMEOUT_S)
    while not member.is_called():
        time.sleep(HEARTBEAT_EVERY_S)
    member.settle()


def transact(entry: Entry, topic: str, records: int, size: int, is_read: bool, seconds: float) -> tuple[int, list[int]]:
    """Transactions one after the other; with `is_read` each ends when a read_committed consumer has its last record."""
    from confluent_kafka import Producer

    producer = Producer({**entry.librdkafka(), "transactional.id": f"of-{topic}", "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    consumer = _committed_reader(entry, topic) if is_read else None
    value, latencies = bytes(size), []
    until = time.monotonic() + seconds
    try:
        while not latencies or time.monotonic() < until:
            began = time.monotonic_ns()
            producer.begin_transaction()
            for _ in range(records):
                producer.produce(topic, value, partition=0)
            producer.commit_transaction(TIMEOUT_S)
            if consumer is not None:
                _take(consumer, records)
            latencies.append(time.monotonic_ns() - began)
    finally:
        if consumer is not None:
            consumer.close()
    return len(latencies), latencies


def _committed_reader(entry: Entry, topic: str) -> Any:
    """A read_committed consumer, positioned at the end of the partition."""
    from confluent_kafka import OFFSET_END, Consumer, TopicPartition

    consumer = Consumer(
        {
            **entry.librdkafka(),
            "group.id": f"reader-of-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        found = consumer.poll(1.0)
        if found is not None and found.error() is not None:  # the end of the partition is reached
            return consumer
    raise TimeoutError("the consumer did not come to the partition's end")


def _take(consumer: Any, count: int) -> None:
    until = time.monotonic() + TIMEOUT_S
    while count:
        for record in consumer.consume(count, 1.0):
            count -= record.error() is None
        if time.monotonic() > until:
            raise TimeoutError("committed records did not come")


def make_coordination_driver(entry: Entry, connection: LoadConnection, case: Any, topic: str) -> Any:
    """The driver of a coordination case."""
    make_topic(connection, topic, partitions=max(1, case.partitions))
    if case.client == "commit":
        return lambda seconds: commit_offsets(connection, topic, case.partitions, case.in_flight, seconds)
    if case.client == "rebalance":
        return Group(entry, f"group-of-{topic}", case.members).rebalance
    is_read = case.client == "transaction-read"
    return lambda seconds: transact(entry, topic, case.records, case.record_bytes, is_read, seconds)
