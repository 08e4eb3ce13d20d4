"""Rows of `bench scale` for groups, transactional ids and producer ids: one node, many names, each used once.

Each row says what an id costs in memory, what a request costs beside so many, how long a start takes until all are known
again, and how much memory is held after they were forgotten and as many others came: a broker that keeps something of those
that are gone grows there.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from crc32c import crc32c

from linearizability.bench.coordination import (
    FIND_COORDINATOR,
    FIND_COORDINATOR_VERSION,
    OFFSET_COMMIT,
    await_coordinator,
)
from linearizability.bench.load import PRODUCE, PRODUCE_VERSION, LoadConnection, drive_encoded, make_batch
from linearizability.bench.scale_cluster import Key, Meter, Topics, connect, send_all
from linearizability.client.errors import error_name
from linearizability.client.requests import commit_request, fetch_offsets_request, produce_request
from linearizability.targets import TargetError
from linearizability.targets.cluster import ClusterTarget, write_properties
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.delete_groups import DeleteGroupsRequest
from reference.protocol.messages.describe_producers import DescribeProducersRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.list_transactions import ListTransactionsRequest

COMMIT_VERSION, OFFSET_FETCH, OFFSET_FETCH_VERSION = 8, 9, 8
INIT_PRODUCER_ID, INIT_VERSION = 22, 4
DELETE_GROUPS, DELETE_GROUPS_VERSION = 42, 2
DESCRIBE_PRODUCERS, DESCRIBE_PRODUCERS_VERSION = 61, 0
LIST_TRANSACTIONS, LIST_TRANSACTIONS_VERSION = 66, 0
IN_FLIGHT = 20
ASKED = 500
"""Number of ids, spread over all, that are requested until each is known. More than an internal topic has partitions."""
GROUPS_A_REQUEST = 100
PRODUCER_PARTITIONS = 100
"""A request holds one batch for each, so that a million producer ids need ten thousand requests."""
OFFSET = 7
"""The offset that each group commits."""
KNOWN_WITHIN_S, OFFSETS_WITHIN_S = 600.0, 120.0
LOOK_EVERY_S = 0.1
PRODUCER_ID_AT, SEQUENCE_BYTES, CRC_AT, CRC_FROM = 43, struct.pack(">hi", 0, 0), 17, 21
"""Positions of producer id, epoch and sequence, and of the checksum in a batch."""
FORGET_IDS = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}
FORGET_PRODUCERS = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "1000"}
"""Kafka remembers producers for a day and transactional ids for a week by default, and looks every ten minutes, or every hour."""
LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


def await_code(ask: Callable[[], int]) -> None:
    """Repeat a request until it returns no error. Errors: TargetError for a permanent one."""
    until = time.monotonic() + KNOWN_WITHIN_S
    while code := ask():
        if code not in LOADING or time.monotonic() > until:
            raise TargetError(f"the broker answered {error_name(code)}")
        time.sleep(LOOK_EVERY_S)


def checking(key: int, version: int, codes: Callable[[Any], Iterator[int]]) -> Callable[[bytes], None]:
    """Raises where an answer carries an error."""

    def check(frame: bytes) -> None:
        if code := next((code for code in codes(decode_response(key, version, frame)[1]) if code), 0):
            raise TargetError(f"the broker answered {error_name(code)}")

    return check


def spread(names: Sequence[str]) -> Sequence[str]:
    """Return some of the names, spread evenly."""
    return names[:: max(1, len(names) // ASKED)]


# ---- groups


def measure_groups(target: ClusterTarget, count: int, meter: Meter) -> None:
    """Measure a node with `count` groups, each with one committed offset. Errors: TargetError."""
    Topics(target, 1).create()
    connection, node = connect(target.nodes[0]), target.nodes[0].id
    await_coordinator(connection, "first")
    groups = [f"group-{number}" for number in range(count)]
    with_ids(meter, count, "group", lambda: commit(connection, groups))
    request = encode_request(
        OFFSET_COMMIT, COMMIT_VERSION, 1, "bench", commit_request(groups[0], {("scale-0", 0): OFFSET})
    )
    check = checking(OFFSET_COMMIT, COMMIT_VERSION, codes_of_commit)
    meter.progress("load")
    meter.load_with("", lambda seconds: drive_encoded(connection, request, 1, check, seconds)[0])
    connection.socket.close()
    meter.stop(node)
    meter.start("start_after_stop", node, lambda: find_groups(target, spread(groups)))
    meter.kill(node)
    meter.start("start_after_kill", node, lambda: find_groups(target, spread(groups)))
    connection = connect(target.nodes[0])
    meter.stage("forgotten", lambda: delete_groups(connection, groups))
    meter.stage("again", lambda: commit(connection, [f"other-{name}" for name in groups]))
    meter.row["again_mb"] = round(meter.holdings()[0])


def with_ids(meter: Meter, count: int, name: str, use: Callable[[], None]) -> None:
    """Measure time, CPU and memory of the first use of `count` ids, then the idle node."""
    empty_mb, _ = meter.holdings()
    meter.stage("used", use)
    meter.row["resident_mb"] = round(full_mb := meter.holdings()[0])
    meter.row["id_kb"] = round((full_mb - empty_mb) * 1024 / count, 3)
    meter.row["id"] = name
    meter.idle("idle_cpu_ms_per_s")


def commit(connection: LoadConnection, groups: Sequence[str]) -> None:
    requests = (
        encode_request(OFFSET_COMMIT, COMMIT_VERSION, 1, "bench", commit_request(group, {("scale-0", 0): OFFSET}))
        for group in groups
    )
    send_all(connection, requests, IN_FLIGHT, checking(OFFSET_COMMIT, COMMIT_VERSION, codes_of_commit))


def codes_of_commit(answer: Any) -> Iterator[int]:
    return (each.error_code for topic in answer.topics for each in topic.partitions)


def find_groups(target: ClusterTarget, groups: Sequence[str]) -> None:
    """Wait until the offset of each group is known. Errors: TargetError, also where one is lost.

    Kafka 4.3.1 was seen to answer for a moment after kill -9 that a group has no offset, and no error.
    """
    connection = connect(target.nodes[0])
    until = time.monotonic() + OFFSETS_WITHIN_S
    for group in groups:

        def ask(group: str = group) -> int:
            body = fetch_offsets_request({group: [("scale-0", 0)]})
            answer = connection.call(OFFSET_FETCH, OFFSET_FETCH_VERSION, body).groups[0]
            if answer.error_code or answer.topics[0].partitions[0].committed_offset == OFFSET:
                return answer.error_code
            if time.monotonic() > until:
                raise TargetError(f"{target.spec}: the offset of {group} is lost")
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        await_code(ask)
    connection.socket.close()


def delete_groups(connection: LoadConnection, groups: Sequence[str]) -> None:
    requests = (
        encode_request(
            DELETE_GROUPS,
            DELETE_GROUPS_VERSION,
            1,
            "bench",
            DeleteGroupsRequest(groups_names=[*groups[at : at + GROUPS_A_REQUEST]]),  # type: ignore[list-item]
        )
        for at in range(0, len(groups), GROUPS_A_REQUEST)
    )
    check = checking(DELETE_GROUPS, DELETE_GROUPS_VERSION, lambda answer: (each.error_code for each in answer.results))
    send_all(connection, requests, 1, check)


# ---- transactional ids


def measure_transactional_ids(target: ClusterTarget, count: int, meter: Meter) -> None:
    """Measure a node with `count` transactional ids, each initialized once. Errors: TargetError."""
    connection, node = connect(target.nodes[0]), target.nodes[0].id
    ids = [f"id-{number}" for number in range(count)]
    await_transactions(connection)
    for number in range(ASKED):  # each partition of the internal topic is loaded for itself
        await_code(lambda id=f"first-{number}": _initialize_one(connection, id))
    with_ids(meter, count, "transactional id", lambda: initialize(connection, ids))
    request = initialization(ids[0])
    meter.progress("load")
    meter.load_with("", lambda seconds: drive_encoded(connection, request, 1, CHECK_INIT, seconds)[0])
    connection.socket.close()
    meter.stop(node)
    meter.start("start_after_stop", node, lambda: find_transactional_ids(target, spread(ids)))
    meter.kill(node)
    meter.start("start_after_kill", node, lambda: find_transactional_ids(target, spread(ids)))
    meter.stop(node)
    configure_node(target, FORGET_IDS)
    meter.start("forgotten", node, lambda: await_forgotten(target, transactional_ids))
    connection = connect(target.nodes[0])
    meter.stage("again", lambda: initialize(connection, [f"other-{id}" for id in ids]))
    await_forgotten(target, transactional_ids)
    meter.row["again_mb"] = round(meter.holdings()[0])
    connection.socket.close()


def configure_node(target: ClusterTarget, changes: Mapping[str, str]) -> None:
    """Change the single node's properties for its next start."""
    member = target.member(target.nodes[0].id)
    member.properties.update(changes)
    write_properties(member.properties_file, member.properties)


def initialization(id: str) -> bytes:
    body = InitProducerIdRequest(transactional_id=id, transaction_timeout_ms=60_000)  # type: ignore[arg-type]
    return encode_request(INIT_PRODUCER_ID, INIT_VERSION, 1, "bench", body)


CHECK_INIT = checking(INIT_PRODUCER_ID, INIT_VERSION, lambda answer: iter((answer.error_code,)))


def await_transactions(connection: LoadConnection) -> None:
    """Repeat a request until the transaction coordinator serves. The first one creates its topic."""

    def ask() -> int:
        body = FindCoordinatorRequest(key="first", key_type=1)
        code = connection.call(FIND_COORDINATOR, FIND_COORDINATOR_VERSION, body).error_code
        return code or _initialize_one(connection, "first")

    await_code(ask)


def _initialize_one(connection: LoadConnection, id: str) -> int:
    connection.socket.sendall(initialization(id))
    answer: Any = decode_response(INIT_PRODUCER_ID, INIT_VERSION, connection.receive())[1]
    return answer.error_code


def initialize(connection: LoadConnection, ids: Sequence[str]) -> None:
    """Initialize each id. Repeats if the broker had no producer id ready, as Kafka gets them from its controller in blocks."""
    pending = ids
    while pending:
        refused: list[str] = []
        order = iter(pending)

        def check(frame: bytes, order: Iterator[str] = order, refused: list[str] = refused) -> None:
            id = next(order)
            answer: Any = decode_response(INIT_PRODUCER_ID, INIT_VERSION, frame)[1]
            if (code := answer.error_code) in LOADING:
                refused.append(id)
            elif code:
                raise TargetError(f"the broker answered {error_name(code)}")

        send_all(connection, map(initialization, pending), IN_FLIGHT, check)
        pending = refused


def find_transactional_ids(target: ClusterTarget, ids: Sequence[str]) -> None:
    """Wait until each id can be used. Errors: TargetError."""
    connection = connect(target.nodes[0])
    for id in ids:
        await_code(lambda id=id: _initialize_one(connection, id))
    connection.socket.close()


def transactional_ids(connection: LoadConnection) -> int:
    """Return the number of ids that the coordinator knows."""
    answer = connection.call(LIST_TRANSACTIONS, LIST_TRANSACTIONS_VERSION, ListTransactionsRequest())
    return -1 if answer.error_code else len(answer.transaction_states)


def await_forgotten(target: ClusterTarget, known: Callable[[LoadConnection], int]) -> None:
    """Wait until no id is known. Errors: TargetError."""
    connection = connect(target.nodes[0])
    until = time.monotonic() + KNOWN_WITHIN_S
    while left := known(connection):
        if time.monotonic() > until:
            raise TargetError(f"{target.spec}: {left} ids are not forgotten")
        time.sleep(1)
    connection.socket.close()


# ---- producer ids


def measure_producer_ids(target: ClusterTarget, count: int, meter: Meter) -> None:
    """Measure a node to which `count` idempotent producers wrote one batch each. Errors: TargetError."""
    topics = Topics(target, PRODUCER_PARTITIONS)
    node = target.nodes[0].id
    topics.create()
    topics.serve()
    connection = connect(target.nodes[0])
    with_ids(meter, count, "producer id", lambda: write_as(connection, topics, range(count)))
    meter.load([connection], target.nodes[0].address, "scale-0", 1)
    connection.socket.close()
    meter.stop(node)
    meter.start("start_after_stop", node, topics.serve)
    require_producers(target, topics, count)
    meter.kill(node)
    meter.start("start_after_kill", node, topics.serve)
    require_producers(target, topics, count)
    meter.stop(node)
    configure_node(target, FORGET_PRODUCERS)
    meter.start("forgotten", node, lambda: await_forgotten(target, lambda each: producers(each, topics)))
    topics.serve()
    connection = connect(target.nodes[0])
    meter.stage("again", lambda: write_as(connection, topics, range(count, 2 * count)))
    await_forgotten(target, lambda each: producers(each, topics))
    meter.row["again_mb"] = round(meter.holdings()[0])
    connection.socket.close()


def write_as(connection: LoadConnection, topics: Topics, ids: range) -> None:
    """Write a batch of each producer id, to the partitions in turn."""
    keys = sorted(topics.keys)
    batch = make_batch(1, 10)

    def requests() -> Iterator[bytes]:
        for at in range(ids.start, ids.stop, len(keys)):
            some = range(at, min(at + len(keys), ids.stop))
            batches = {key: of_producer(batch, id) for key, id in zip(keys, some, strict=False)}
            yield encode_request(PRODUCE, PRODUCE_VERSION, 1, "bench", produce_request(batches, acks=1))

    def codes(answer: Any) -> Iterator[int]:
        return (each.error_code for topic in answer.responses for each in topic.partition_responses)

    send_all(connection, requests(), IN_FLIGHT, checking(PRODUCE, PRODUCE_VERSION, codes))


def of_producer(batch: bytes | bytearray, id: int) -> bytes:
    """Return the first batch of an idempotent producer."""
    data = bytearray(batch)
    data[PRODUCER_ID_AT : PRODUCER_ID_AT + 14] = struct.pack(">q", 1_000_000 + id) + SEQUENCE_BYTES
    struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[CRC_FROM:])))
    return bytes(data)


def producers(connection: LoadConnection, topics: Topics) -> int:
    """Return the number of producer ids that the partitions know."""
    keys: list[Key] = sorted(topics.keys)
    found = 0
    for name, index in keys:
        wanted = DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[index])  # type: ignore[arg-type]
        body = DescribeProducersRequest(topics=[wanted])
        answer = connection.call(DESCRIBE_PRODUCERS, DESCRIBE_PRODUCERS_VERSION, body).topics[0].partitions[0]
        if answer.error_code:
            raise TargetError(f"DescribeProducers was answered with {error_name(answer.error_code)}")
        found += len(answer.active_producers)
    return found


def require_producers(target: ClusterTarget, topics: Topics, count: int) -> None:
    """Errors: TargetError where a start has lost some."""
    connection = connect(target.nodes[0])
    known = producers(connection, topics)
    connection.socket.close()
    if known != count:
        raise TargetError(f"{target.spec}: {known} of {count} producer ids are known after a start")
