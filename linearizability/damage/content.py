"""A broker's content as its clients see it, in a form in which two starts on one folder can be compared.

`fill` writes topics of every kind that has its own files; `observe` reads all of it back. Both use the wire protocol through
one function, so that a broker in this process and one behind a socket get the same requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import sleep
from typing import Any, NamedTuple

from linearizability.client.errors import TRANSACTION_RETRIABLE, error_of
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import (
    Committed,
    commit_request,
    delete_records_request,
    fetch_offsets_request,
    fetch_request,
    list_offsets_request,
    new_topic,
    produce_request,
    produced,
)
from reference.protocol.errors import name_of
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from reference.protocol.primitives import NO_UUID, Buffer, Offset, TimestampMs
from reference.protocol.records.batch import BatchProducer, build, check_crc, read_batches, records_of
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.record import Record
from reference.protocol.schema import Message

Ask = Callable[[Message, int], Any]
"""Sends a request in a version, and returns the response. Raises where there is none."""

Place = tuple[str, int]

PLAIN, DELETED, TRANSACTIONS, COMPACTED = "plain", "deleted", "transactions", "compacted"
EMPTY: Place = (PLAIN, 1)
TOPICS: Mapping[str, Mapping[str, str]] = {
    PLAIN: {},
    DELETED: {},
    TRANSACTIONS: {},
    COMPACTED: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
}
SMALL_SEGMENTS = {"internal.segment.bytes": "4000", "segment.index.bytes": "2048", "index.interval.bytes": "300"}
PLACES: tuple[Place, ...] = ((PLAIN, 0), EMPTY, (DELETED, 0), (TRANSACTIONS, 0), (COMPACTED, 0))
GROUP = "group"
TRANSACTIONAL_ID = "transactional-id"
DELETED_BELOW = 25
BATCHES = 40
RECORDS_A_BATCH = 3
KEYS = 7
FETCH_BYTES = 1 << 16
MOST_FETCHES = 2_000
MOST_WAITS = 100
BACKOFF_S = 0.05
EPOCHS = (0, 3, 6, 9, 12)
"""The leader epochs to look up by OffsetForLeaderEpoch."""
READ_COMMITTED = 1
LATEST, EARLIEST = -1, -2


class Producer(NamedTuple):
    """The producer of a partition of PLAIN, and its last batch, for a retry."""

    id: int
    epoch: int
    last_batch: bytes
    last_offset: int


class Refused(Exception):
    """The broker answered with an error code."""


def _checked(code: int, what: str) -> None:
    if code:
        raise Refused(f"{what}: {name_of(code)}")


# ---- writing


def create_topics(ask: Ask) -> None:
    """Create the topics. Errors: Refused."""
    topics = [
        new_topic(name, 2 if name == PLAIN else 1, configs=SMALL_SEGMENTS | dict(settings))
        for name, settings in TOPICS.items()
    ]
    for topic in ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7).topics:
        _checked(topic.error_code, f"topic {topic.name}")


def find_coordinators(ask: Ask, wait: Callable[[], None]) -> None:
    """Make the broker create the internal topics, and wait for their coordinators. Errors: Refused."""
    for key, key_type in ((GROUP, 0), (TRANSACTIONAL_ID, 1)):
        for _ in range(MOST_WAITS):
            found = ask(FindCoordinatorRequest(key=key, key_type=key_type), 3)
            loaded = not found.error_code and _is_loaded(ask, key_type)
            if loaded:
                break
            wait()
        else:
            raise Refused(f"no coordinator for {key}")


def _is_loaded(ask: Ask, key_type: int) -> bool:
    if key_type:
        return not ask(ProducerSession(TRANSACTIONAL_ID).begin(), 4).error_code
    found = _guarded(lambda: _committed_offset(ask))
    return not isinstance(found, str)


def fill(ask: Ask, part: int, now: int) -> Producer:
    """Write to every topic; `part` is 0 for records that a checkpoint may cover, 1 for later ones. Errors: Refused."""
    producer = _fill_plain(ask, part, now)
    for at in range(BATCHES):
        produce(ask, (DELETED, 0), make_batch(part, at, now))
        produce(ask, (COMPACTED, 0), make_batch(part, at, now))
    if part == 0:
        _delete_records(ask)
    _fill_transactions(ask, part, now)
    _commit_offsets(ask, part)
    return producer


def _records(part: int, at: int, now: int) -> list[Record]:
    first = (part * BATCHES + at) * RECORDS_A_BATCH
    return [
        Record(Offset(delta), TimestampMs(now + at), b"key-%d" % (at % KEYS), b"value-%d" % at * 5, ())
        for delta, at in enumerate(range(first, first + RECORDS_A_BATCH))
    ]


def make_batch(part: int, at: int, now: int, **arguments: Any) -> bytes:
    return bytes(build(_records(part, at, now), **arguments))


def produce(ask: Ask, place: Place, records: Buffer, transactional_id: str | None = None) -> int:
    answer = produced(ask(produce_request({place: records}, transactional_id=transactional_id), 9))
    _checked(answer.error_code, f"produce to {place[0]}-{place[1]}")
    return answer.base_offset


def _fill_plain(ask: Ask, part: int, now: int) -> Producer:
    body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=10_000)
    identity = _patiently(ask, body, 4, "a producer's id")
    records, offset = b"", -1
    for at in range(BATCHES):
        records = make_batch(
            part, at, now, producer=BatchProducer(identity.producer_id, identity.producer_epoch, at * RECORDS_A_BATCH)
        )
        offset = produce(ask, (PLAIN, 0), records)
    return Producer(identity.producer_id, identity.producer_epoch, records, offset)


def _delete_records(ask: Ask) -> None:
    answer = ask(delete_records_request({(DELETED, 0): DELETED_BELOW}), 2)
    _checked(error_of(answer), "DeleteRecords")


def _fill_transactions(ask: Ask, part: int, now: int) -> None:
    session, place = ProducerSession(TRANSACTIONAL_ID), (TRANSACTIONS, 0)
    identity = _patiently(ask, session.begin(), 4, "a transactional id")
    session.become(identity.producer_id, identity.producer_epoch)
    for transaction in range(8):
        _patiently(ask, session.add_partitions([place]), 3, "AddPartitionsToTxn")
        for at in range(4):
            records = session.batch(place, _records(part, transaction * 4 + at, now))
            produce(ask, place, records, TRANSACTIONAL_ID)
            session.appended(place, RECORDS_A_BATCH)
        _patiently(ask, session.end(transaction % 2 == 0), 3, "EndTxn")


def _patiently(ask: Ask, body: Message, version: int, what: str) -> Any:
    """Repeat a request, as clients do, while a coordinator loads or still completes the transaction before. Errors: Refused."""
    answer = ask(body, version)
    for _ in range(MOST_WAITS):
        if error_of(answer) not in TRANSACTION_RETRIABLE:
            break
        sleep(BACKOFF_S)
        answer = ask(body, version)
    _checked(error_of(answer), what)
    return answer


def _commit_offsets(ask: Ask, part: int) -> None:
    for step in range(10):
        offsets = {(PLAIN, 0): Committed(part * 10 + step, "x" * 20)}
        _checked(error_of(ask(commit_request(GROUP, offsets), 8)), "OffsetCommit")


# ---- reading


Observation = dict[str, Any]
"""Name -> observed value. A value that begins with "error" is the error that a client received instead."""

ERROR = "error "


def observe(ask: Ask, producer: Producer, now: int) -> Observation:
    """Read everything. An error code is a part of the result and raises nothing."""
    seen: Observation = {"topics": _topics(ask)}
    for place in PLACES:
        name = f"{place[0]}-{place[1]}"
        seen[f"start of {name}"] = offset_at(ask, place, EARLIEST)
        seen[f"end of {name}"] = offset_at(ask, place, LATEST)
        seen[f"records of {name}"] = _guarded(lambda place=place: _read(ask, place, 0))
        if place[0] == COMPACTED and isinstance(records := seen[f"records of {name}"], list):
            # Compaction in the meantime is no loss: compare the last record of each key.
            seen[f"records of {name}"] = sorted({record[1]: record for record in records}.values())
        if place[0] == TRANSACTIONS:
            seen[f"committed records of {name}"] = _guarded(lambda place=place: _read(ask, place, READ_COMMITTED))
        seen[f"times of {name}"] = [offset_at(ask, place, now + after) for after in range(0, 240, 20)]
        seen[f"epochs of {name}"] = [_end_of_epoch(ask, place, epoch) for epoch in EPOCHS]
    seen["offsets"] = _guarded(lambda: _committed_offset(ask))
    seen["retry"] = _guarded(lambda: produce(ask, (PLAIN, 0), producer.last_batch))
    return seen


def _guarded(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (Refused, RecordsError) as error:
        return f"{ERROR}{type(error).__name__}: {error}"


def _topics(ask: Ask) -> Any:
    answer = ask(MetadataRequest(topics=None), 12)
    return {topic.name: str(topic.topic_id) for topic in answer.topics if topic.topic_id != NO_UUID}


def offset_at(ask: Ask, place: Place, timestamp: int) -> Any:
    answer = ask(list_offsets_request({place: timestamp}), 7).topics[0].partitions[0]
    return f"{ERROR}{name_of(answer.error_code)}" if answer.error_code else answer.offset


def _end_of_epoch(ask: Ask, place: Place, epoch: int) -> Any:
    partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=place[1], leader_epoch=epoch)
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=place[0], partitions=[partition])
    answer = ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]), 4).topics[0].partitions[0]
    return f"{ERROR}{name_of(answer.error_code)}" if answer.error_code else (answer.leader_epoch, answer.end_offset)


def _read(ask: Ask, place: Place, isolation_level: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """All records from the earliest on, as a consumer reads them. Errors: Refused; RecordsError for damaged bytes."""
    start, found, aborted = (
        offset_at(ask, place, EARLIEST),
        list[tuple[int, bytes | None, bytes | None]](),
        dict[int, list[int]](),
    )
    if isinstance(start, str):
        raise Refused(start)
    offset = start
    for _ in range(MOST_FETCHES):
        body = fetch_request(
            {place: offset},
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            partition_max_bytes=FETCH_BYTES,
            isolation=isolation_level,
        )
        answer = ask(body, 12).responses[0].partitions[0]
        _checked(answer.error_code, f"fetch from {place[0]}-{place[1]}")
        before = offset
        for each in answer.aborted_transactions or ():
            aborted.setdefault(each.producer_id, []).append(each.first_offset)
        for header, _, data in read_batches(answer.records or b""):
            check_crc(data, header)
            if header.last_offset < offset:
                continue
            is_control = bool(header.attributes & 0x20)
            firsts = aborted.get(header.producer_id, [])
            is_aborted = any(first <= header.base_offset for first in firsts)
            if is_control:
                aborted[header.producer_id] = [first for first in firsts if first > header.base_offset]
            elif not (isolation_level and is_aborted):
                found += [
                    (each.offset, _bytes(each.key), _bytes(each.value))
                    for each in records_of(data)
                    if each.offset >= offset
                ]
            offset = header.next_offset
        if offset == before:
            return found
    raise Refused("endless")


def _bytes(value: Buffer | None) -> bytes | None:
    return None if value is None else bytes(value)


def _committed_offset(ask: Ask) -> int:
    answer = ask(fetch_offsets_request({GROUP: [(PLAIN, 0)]}), 8)
    _checked(error_of(answer), "OffsetFetch")
    return answer.groups[0].topics[0].partitions[0].committed_offset
