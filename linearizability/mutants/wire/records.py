"""Lies about records: Produce, Fetch, its sessions, OffsetForLeaderEpoch, ListOffsets, idempotence."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from linearizability.mutants.wire.proxy import Exchange
from linearizability.mutants.wire.rewriting import (
    Act,
    Change,
    Lie,
    asks,
    both,
    closed,
    doubled,
    each,
    errors,
    fetched,
    first_missing,
    header,
    last_missing,
    lists,
    owners,
    put,
    repaired,
    replied,
    sent,
    sent_twice,
    shared,
    silent,
    split,
    turned,
    when,
)
from reference.protocol.errors import ErrorCode as E
from reference.protocol.messages.produce import ProduceResponse
from reference.protocol.records.batch import HEADER_BYTES
from reference.protocol.records.compression import Codec

PRODUCE, FETCH, LIST, EPOCH, PRODUCER, DESCRIBE = (
    "Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "InitProducerId", "DescribeProducers",
)  # fmt: skip
STORED = "responses.partition_responses."
READ = "responses.partitions."
FOUND = "topics.partitions."
Batches = list[tuple[Any, bytes]]


def plain(batches: Batches) -> list[bytes]:
    """The batches' bytes."""
    return [data for _, data in batches]


def bad_crc(batches: Batches) -> list[bytes]:
    """Each batch with a bit of its CRC flipped."""
    return [data[:17] + bytes([data[17] ^ 1]) + data[18:] for _, data in batches]


def bit_flipped(batches: Batches) -> list[bytes]:
    """Each batch with a bit of its last byte flipped."""
    return [data[:-1] + bytes([data[-1] ^ 1]) for _, data in batches]


def acks_0(exchange: Exchange, message: Any) -> bool:
    """Whether a Produce request has acks=0."""
    return message.acks == 0


def pretended(exchange: Exchange, message: Any) -> ProduceResponse:
    """A response that reports all batches of the request as stored at offset 0."""
    topic, partition = ProduceResponse.TopicProduceResponse, ProduceResponse.PartitionProduceResponse
    return ProduceResponse(
        responses=[
            topic(
                name=t.name,
                topic_id=t.topic_id,
                partition_responses=[partition(index=p.index, base_offset=0) for p in t.partition_data],
            )
            for t in message.topic_data
        ]
    )


def seen_before(exchange: Exchange, message: Any) -> bool:
    """Whether a batch of the same producer, epoch and sequence was sent to the partition before; notes the batches."""
    seen: set[Any] = exchange.connection.proxy.memory.setdefault("produced", set[Any]())
    asked = [
        (t.name, t.topic_id, p.index, bytes(p.records)[43:57])
        for t in exchange.request.topic_data
        for p in t.partition_data
        if p.records and len(p.records) > HEADER_BYTES and bytes(p.records)[43:51] != b"\xff" * 8
    ]
    again = any(one in seen for one in asked)
    seen.update(asked)
    return again


def each_partition(change: Callable[[Any, Any], None], path: str = "topics.partitions.x") -> Change:
    """Change each partition of the response; `change` gets the partition of the request, too."""

    def apply(exchange: Exchange, message: Any) -> None:
        asked = [p for t in exchange.request.topics for p in t.partitions]
        answers = [*owners(message, path.split("."))]
        for question, answer in zip(asked, answers, strict=False):
            if len(asked) == len(answers):
                change(question, answer)

    return apply


def at_timestamp(holds: Callable[[int], bool], /, **values: Any) -> Change:
    """ListOffsets: set fields of partitions without an error whose requested timestamp `holds`; a value may be a function."""

    def change(question: Any, answer: Any) -> None:
        if holds(question.timestamp) and answer.error_code == 0:
            for name, value in values.items():
                setattr(answer, name, value(getattr(answer, name)) if callable(value) else value)

    return each_partition(change)


def with_timestamp(old: int, new: int) -> Change:
    """ListOffsets: replace a special timestamp in the request."""
    return put("topics.partitions.timestamp", {old: new})


def in_a_session(message: Any) -> bool:
    """Whether a Fetch request continues a session."""
    return message.session_id > 0 and message.session_epoch > 0


def below_start(change: Change) -> Change:
    """A change for requests whose first partition is fetched from offset 0, which is below the log's start."""

    def holds(exchange: Exchange, message: Any) -> bool:
        return exchange.request.topics[0].partitions[0].fetch_offset == 0 if exchange.request.topics else False

    return when(holds, change)


def missing_first(exchange: Exchange, message: Any) -> None:
    """Remove the first batch of a partition if it begins before the fetch offset."""
    for topic, asked in zip(message.responses, exchange.request.topics, strict=False):
        for partition, question in zip(topic.partitions, asked.partitions, strict=False):
            batches = split(bytes(partition.records or b""))
            if batches and batches[0][0].base_offset < question.fetch_offset:
                partition.records = b"".join(plain(batches[1:]))


def too_large_withheld(exchange: Exchange, message: Any) -> None:
    """Remove a partition's records if they are larger than the largest limit of a partition."""
    limits = [p.partition_max_bytes for t in exchange.request.topics for p in t.partitions]
    for topic in message.responses:
        for partition in topic.partitions:
            if limits and len(bytes(partition.records or b"")) > max(limits):
                partition.records = b""


def of_one_connection(exchange: Exchange, message: Any) -> Act | None:
    """Report FETCH_SESSION_ID_NOT_FOUND for a session that another connection created."""
    owner: dict[int, Any] = exchange.connection.proxy.memory.setdefault("sessions", {})
    asked = exchange.request.session_id
    if asked and owner.get(asked, exchange.connection) is not exchange.connection:
        message.error_code, message.session_id, message.responses = E.FETCH_SESSION_ID_NOT_FOUND, 0, []
    elif message.session_id:
        owner.setdefault(message.session_id, exchange.connection)
    return None


def same_id(exchange: Exchange, message: Any) -> None:
    """Give every idempotent producer the first one's id."""
    memory = exchange.connection.proxy.memory
    if message.error_code == 0 and exchange.request.transactional_id is None:
        message.producer_id = memory.setdefault("producer", message.producer_id)


def committed(exchange: Exchange, message: Any) -> bool:
    """Whether a Fetch request is read_committed."""
    return exchange.request.isolation_level == 1


def failing(*ids: int) -> Callable[[Any], bool]:
    """A condition: the error code is one of these."""
    return lambda owner: owner.error_code in ids


def fine(owner: Any) -> bool:
    """Whether there is no error."""
    return owner.error_code == 0


def control(read: Any) -> bool:
    """Whether a batch is a control batch."""
    return bool(read.attributes & 0x20)


def as_magic_2(exchange: Exchange, partition: Any) -> None:
    """Set a magic above 2 to 2 in the records of a partition."""
    data = bytes(partition.records or b"")
    if len(data) > HEADER_BYTES and data[16] > 2:
        partition.records = data[:16] + b"\x02" + data[17:]


def without_zstd(exchange: Exchange, partition: Any) -> None:
    """Report UNSUPPORTED_COMPRESSION_TYPE for a partition whose first batch is compressed with zstd."""
    batches = split(bytes(partition.records or b""))
    if batches and batches[0][0].attributes & 7 == Codec.ZSTD:
        partition.error_code, partition.records = E.UNSUPPORTED_COMPRESSION_TYPE, b""


def swapped(data: bytes) -> bytes:
    """The control batch with the other type: a commit becomes an abort, and the reverse."""
    at = 61 + 1 + 1 + 1 + 1 + 1 + 3  # size, attributes, deltas, key size; version, then the type's last byte
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# fmt: off
LIES = [
    Lie("produce-to-unknown-topic", PRODUCE, "an unknown topic or partition bears no error", "PRD-01 TOP-16 MET-17", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, 0, E.UNKNOWN_TOPIC_ID, 0)),
    Lie("produce-unknown-id-as-name", PRODUCE, "an unknown topic id is UNKNOWN_TOPIC_OR_PARTITION", "PRD-01 TOP-16", answer=errors(E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION)),
    Lie("produce-unknown-topic-not-leader", PRODUCE, "an unknown topic is NOT_LEADER_OR_FOLLOWER", "PRD-01 TOP-16", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_LEADER_OR_FOLLOWER)),
    Lie("invalid-record-as-corrupt", PRODUCE, "INVALID_RECORD is reported as CORRUPT_MESSAGE", "PRD-26", answer=errors(E.INVALID_RECORD, E.CORRUPT_MESSAGE)),
    Lie("invalid-record-unnoticed", PRODUCE, "INVALID_RECORD is reported as no error", "PRD", answer=errors(E.INVALID_RECORD, 0)),
    Lie("corrupt-as-invalid-record", PRODUCE, "CORRUPT_MESSAGE is reported as INVALID_RECORD", "PRD-26", answer=errors(E.CORRUPT_MESSAGE, E.INVALID_RECORD)),
    Lie("corrupt-unnoticed", PRODUCE, "CORRUPT_MESSAGE is reported as no error", "PRD-05 PRD-06", answer=errors(E.CORRUPT_MESSAGE, 0)),
    Lie("crc-unchecked", PRODUCE, "a batch with a wrong CRC is stored", "PRD-05", ask=repaired),
    Lie("magic-unchecked", PRODUCE, "any magic is taken for 2", "PRD-06 PRD-03", ask=each("topic_data.partition_data", as_magic_2)),
    Lie("too-large-unnoticed", PRODUCE, "MESSAGE_TOO_LARGE is reported as no error", "PRD-07", answer=errors(E.MESSAGE_TOO_LARGE, 0)),
    Lie("too-large-as-list", PRODUCE, "MESSAGE_TOO_LARGE is reported as RECORD_LIST_TOO_LARGE", "PRD-07", answer=errors(E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE)),
    Lie("list-too-large-as-corrupt", PRODUCE, "RECORD_LIST_TOO_LARGE is reported as CORRUPT_MESSAGE", "PRD-08", answer=errors(E.RECORD_LIST_TOO_LARGE, E.CORRUPT_MESSAGE)),
    Lie("base-offset-unchecked", PRODUCE, "a batch may have any base offset", "PRD-09", ask=sent(header("base_offset", 0))),
    Lie("last-delta-unchecked", PRODUCE, "the last offset delta is made to fit the count", "PRD-10", ask=sent(lambda batches: [header("last_offset_delta", read.record_count - 1)([(read, data)])[0] if read.record_count > 0 else data for read, data in batches])),
    Lie("control-batch-stored", PRODUCE, "a client's control batch is stored as records", "PRD-11", ask=sent(header("attributes", lambda bits: bits & ~0x20, where=control))),
    Lie("negative-sequence-stored", PRODUCE, "a negative base sequence is taken for 0", "PRD-12", ask=sent(header("base_sequence", lambda s: max(s, 0), where=lambda read: read.producer_id >= 0))),
    Lie("record-errors-missing", PRODUCE, "no record is named in a refusal", "PRD-13 PRD-14", answer=put(STORED + "record_errors", []), versions="8+"),
    Lie("record-errors-off-by-one", PRODUCE, "the record after the bad one is named", "PRD-13 PRD-14", answer=put(STORED + "record_errors.batch_index", lambda index: index + 1), versions="8+"),
    Lie("timestamp-unnoticed", PRODUCE, "INVALID_TIMESTAMP is reported as no error", "PRD-14", answer=errors(E.INVALID_TIMESTAMP, 0)),
    Lie("timestamp-as-invalid-record", PRODUCE, "INVALID_TIMESTAMP is reported as INVALID_RECORD", "PRD-14", answer=errors(E.INVALID_TIMESTAMP, E.INVALID_RECORD)),
    Lie("zstd-error-other", PRODUCE, "zstd below v7 is INVALID_RECORD", "PRD-16", answer=errors(E.UNSUPPORTED_COMPRESSION_TYPE, E.INVALID_RECORD)),
    Lie("acks-unchecked", PRODUCE, "acks=2 is taken for 1", "PRD-18", ask=put("acks", lambda acks: acks if acks in (-1, 0, 1) else 1)),
    Lie("acks-error-other", PRODUCE, "INVALID_REQUIRED_ACKS is reported as INVALID_REQUEST", "PRD-26", answer=errors(E.INVALID_REQUIRED_ACKS, E.INVALID_REQUEST)),
    Lie("internal-topic-error-other", PRODUCE, "a write to an internal topic is TOPIC_AUTHORIZATION_FAILED", "PRD-26", answer=errors(E.INVALID_TOPIC_EXCEPTION, E.TOPIC_AUTHORIZATION_FAILED)),
    Lie("internal-topic-unnoticed", PRODUCE, "a write to an internal topic bears no error", "PRD-19", answer=errors(E.INVALID_TOPIC_EXCEPTION, 0)),
    Lie("base-offset-on-error", PRODUCE, "a refused batch has the base offset 0", "PRD-27", answer=put(STORED + "base_offset", 0, where=lambda p: p.error_code != 0)),
    Lie("base-offset-plus-one", PRODUCE, "the base offset is one too high", "ACK-01 ACK-15", answer=put(STORED + "base_offset", lambda offset: offset + 1, where=fine)),
    Lie("base-offset-always-0", PRODUCE, "the base offset is always 0", "ACK-01 ACK-15", answer=put(STORED + "base_offset", 0, where=fine)),
    Lie("old-produce-fails", PRODUCE, "Produce v3 is refused", "ACK-15 API-05 PRD-16", answer=put(STORED + "error_code", E.UNSUPPORTED_VERSION), versions="3"),
    Lie("stored-twice", PRODUCE, "a batch is stored twice", "ACK-01 IDM-15", ask=when(lambda x, m: m.acks != 0, sent_twice)),
    Lie("never-stored", PRODUCE, "an acknowledged batch is not stored", "ACK-01", ask=when(lambda x, m: m.acks == 1, replied(pretended))),
    Lie("acks-0-answered", PRODUCE, "acks=0 is answered", "ACK-02", ask=when(acks_0, put("acks", 1))),
    Lie("acks-0-dropped", PRODUCE, "acks=0 is not stored", "ACK-02 ACK-16", ask=when(acks_0, silent)),
    Lie("acks-0-refused-in-silence", PRODUCE, "after a refused acks=0 the connection stays open", "ACK-03 ACK-16", end=lambda c: b"" if c.last and c.last.api == PRODUCE and c.last.frame and c.last.request.acks == 0 else None),
    Lie("acks-0-closes", PRODUCE, "acks=0 is stored and closes the connection", "ACK-02", ask=when(acks_0, put("acks", 1)), answer=asks(lambda r: r.acks == 0, closed)),
    Lie("append-time-of-create-time", PRODUCE, "a CreateTime topic answers an append time", "ACK-10", answer=put(STORED + "log_append_time_ms", {-1: int(time.time() * 1000)}, where=fine)),
    Lie("append-time-missing", PRODUCE, "a LogAppendTime topic answers no append time", "ACK-10", answer=put(STORED + "log_append_time_ms", -1)),
    Lie("produce-without-log-start", PRODUCE, "the response has the log start offset -1", "ACK-13", answer=put(STORED + "log_start_offset", -1)),
    Lie("produce-log-start-0", PRODUCE, "the response has the log start offset 0 always", "ACK-13", answer=put(STORED + "log_start_offset", 0, where=fine)),
    Lie("produce-log-start-0-before-v9", PRODUCE, "the response has the log start offset 0 always in older versions", "ACK-13", answer=put(STORED + "log_start_offset", 0, where=fine), versions="5-8"),
    Lie("produce-error-for-all", PRODUCE, "the first partition's error is given for all", "PRD-29", answer=shared("responses.partition_responses")),
    Lie("produce-topic-name-missing", PRODUCE, "topics are answered without name and id", "ACK-15", answer=both(put("responses.name", ""), put("responses.topic_id", lambda id: type(id)(int=0)))),
    Lie("produce-answers-turned", PRODUCE, "partitions are answered in the reverse order", "", answer=turned("responses.partition_responses"), unseen="clients look answers up by topic and partition, and Kafka promises no order"),
    Lie("produce-answer-of-partition-missing", PRODUCE, "the last of several partitions is not answered", "PRD-29 PRD-18", answer=last_missing("responses.partition_responses")),

    Lie("watermark-plus-one", FETCH, "the high watermark is one too high", "FET-01", answer=put(READ + "high_watermark", lambda offset: offset + 1, where=fine)),
    Lie("watermark-below-records", FETCH, "records lie above the high watermark", "FET-01", answer=put(READ + "high_watermark", 0, where=fine)),
    Lie("watermark-unknown", FETCH, "the high watermark is -1", "FET-01", answer=put(READ + "high_watermark", -1)),
    Lie("out-of-range-unnoticed", FETCH, "OFFSET_OUT_OF_RANGE is reported as no error", "FET-02 TOP-19", answer=errors(E.OFFSET_OUT_OF_RANGE, 0)),
    Lie("below-start-unnoticed", FETCH, "a fetch below the log start bears no error", "FET-02 TOP-19", answer=below_start(errors(E.OFFSET_OUT_OF_RANGE, 0))),
    Lie("out-of-range-as-unknown", FETCH, "OFFSET_OUT_OF_RANGE is reported as UNKNOWN_TOPIC_OR_PARTITION", "FET-02 TOP-19", answer=errors(E.OFFSET_OUT_OF_RANGE, E.UNKNOWN_TOPIC_OR_PARTITION)),
    Lie("never-waits", FETCH, "max_wait_ms is taken for 0", "FET-04 FET-05 FET-06", ask=put("max_wait_ms", 0)),
    Lie("waits-too-long", FETCH, "max_wait_ms is taken for a half minute", "FET-04 FET-05", ask=put("max_wait_ms", lambda ms: 30_000 if ms else 0)),
    Lie("waits-always", FETCH, "max_wait_ms=0 waits for twenty seconds", "FET-05 FET-07", ask=put("max_wait_ms", {0: 20_000})),
    Lie("min-bytes-unlooked", FETCH, "min_bytes is taken for 1", "FET-05 FET-06", ask=put("min_bytes", lambda count: min(count, 1))),
    Lie("min-bytes-0", FETCH, "min_bytes is taken for 0", "FET-04 FET-05 FET-06", ask=put("min_bytes", 0)),
    Lie("large-batch-withheld", FETCH, "a batch above partition_max_bytes is withheld", "FET-08 FET-18", answer=too_large_withheld),
    Lie("partition-limit-unlooked", FETCH, "partition_max_bytes is not looked at", "FET-09", ask=put("topics.partitions.partition_max_bytes", 1 << 30)),
    Lie("fetch-limit-unlooked", FETCH, "max_bytes is not looked at", "FET-09 FSS-10 FET-08", ask=put("max_bytes", 1 << 30)),
    Lie("fetch-answers-turned", FETCH, "partitions are answered in the reverse order", "FET-09", answer=turned("responses.partitions")),
    Lie("fetch-partition-missing", FETCH, "the last of several partitions is not answered", "FET-09 FET-11 FSS-01 FSS-02", answer=last_missing("responses.partitions")),
    Lie("fetch-beyond-limit-missing", FETCH, "partitions that had no room are not answered", "FSS-01 FSS-10 FET-09", answer=asks(lambda r: r.session_epoch == -1 and r.max_bytes < 1000, lists("responses.partitions", lambda ps: [p for p in ps if p.records or p.error_code] or ps))),
    Lie("fetch-partition-twice", FETCH, "the first partition is answered twice", "FET FSS", answer=doubled("responses.partitions")),
    Lie("fetch-topic-name-missing", FETCH, "topics are answered without name and id", "FET FSS", answer=both(put("responses.topic", ""), put("responses.topic_id", lambda id: type(id)(int=0)))),
    Lie("batch-around-offset-missing", FETCH, "a fetch within a batch begins after it", "FET-10", answer=missing_first),
    Lie("fetch-partition-other", FETCH, "the partition is another than was asked for", "FET-09 FSS-05", answer=put(READ + "partition_index", lambda index: index + 1)),
    Lie("crc-broken", FETCH, "batches come with wrong CRCs", "FET-10 FET-15", answer=fetched(bad_crc)),
    Lie("bit-flipped", FETCH, "a bit of every batch is another", "FET-10 FET-15 ACK-12", answer=fetched(bit_flipped)),
    Lie("first-batch-missing", FETCH, "of several batches the first is missing", "FET-18 FET-01 ACK-01 FET-10", answer=fetched(lambda batches: plain(batches[1:] if len(batches) > 1 else batches))),
    Lie("middle-batch-missing", FETCH, "of three batches the second is missing", "FET-18 FET-01 ACK-01 FET-15 FET-10", answer=fetched(lambda batches: plain(batches[:1] + batches[2:] if len(batches) > 2 else batches))),
    Lie("batch-twice", FETCH, "the first batch comes twice", "FET-18 ACK-01 FET-01", answer=fetched(lambda batches: plain([batches[0], *batches]))),
    Lie("batches-turned", FETCH, "batches come in the reverse order", "FET-18 ACK-01", answer=fetched(lambda batches: plain(batches[::-1]))),
    Lie("last-batch-cut", FETCH, "the last batch lacks its last byte", "FET-08 FET-01 FET-18", answer=fetched(lambda batches: [b"".join(plain(batches))[:-1]])),
    Lie("offsets-plus-one", FETCH, "batches have a base offset one too high", "ACK-01 FET-18 FET-15 FET-10", answer=fetched(header("base_offset", lambda offset: offset + 1))),
    Lie("timestamps-moved", FETCH, "records are a second younger", "ACK-10 ACK-12 FET-15 PRD-15", answer=fetched(header("base_timestamp", lambda ms: ms + 1000))),
    Lie("max-timestamp-0", FETCH, "batches have the maximum timestamp 0", "FET-15 PRD-23", answer=fetched(header("max_timestamp", 0))),
    Lie("append-time-bit-set", FETCH, "batches claim LogAppendTime", "PRD-15 ACK-10 ACK-12 FET-15", answer=fetched(header("attributes", lambda bits: bits | 8))),
    Lie("append-time-bit-cleared", FETCH, "batches of LogAppendTime topics do not say so", "ACK-10", answer=fetched(header("attributes", lambda bits: bits & ~8))),
    Lie("batch-epoch-of-client", FETCH, "batches have the leader epoch -1", "FET-16 PRD-23 FET-15 EPO-05", answer=fetched(header("leader_epoch", -1))),
    Lie("batch-epoch-plus-one", FETCH, "batches have a leader epoch one too high", "FET-16 PRD-23", answer=fetched(header("leader_epoch", lambda epoch: epoch + 1))),
    Lie("producer-id-missing", FETCH, "batches have no producer id", "FET-15 IDM", answer=fetched(header("producer_id", -1))),
    Lie("fetch-unknown-topic", FETCH, "an unknown topic or partition bears no error", "FET-11 TOP-16", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, 0, E.UNKNOWN_TOPIC_ID, 0)),
    Lie("fetch-unknown-id-as-name", FETCH, "an unknown topic id is UNKNOWN_TOPIC_OR_PARTITION", "FET-11 TOP-16", answer=errors(E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION)),
    Lie("unknown-spoils-all", FETCH, "an unknown partition's error is given for all", "FET-11 FET-07 FET-21", answer=shared("responses.partitions")),
    Lie("zstd-refused", FETCH, "batches of zstd are refused below v11", "FET-13", answer=each("responses.partitions", without_zstd), versions="10"),
    Lie("aborted-not-reported", FETCH, "no aborted transactions are reported", "FET-14 TXV-13 TXV-02", answer=when(committed, put(READ + "aborted_transactions", []))),
    Lie("aborted-too-many", FETCH, "an aborted transaction learns that there is not", "FET-14 TXV", answer=when(committed, put(READ + "aborted_transactions", lambda reported: [*(reported or []), type(reported[0])(producer_id=7, first_offset=0)] if reported else reported))),
    Lie("aborted-too-late", FETCH, "an aborted transaction begins one too late", "FET-14 TXV-02 TXV-13", answer=put(READ + "aborted_transactions.first_offset", lambda offset: offset + 1)),
    Lie("aborted-of-uncommitted-readers", FETCH, "readers of everything receive an empty list of aborted transactions", "FET-24", answer=when(lambda x, m: not committed(x, m), put(READ + "aborted_transactions", lambda reported: reported or []))),
    Lie("aborted-null-for-committed", FETCH, "read_committed receives null instead of no aborted transactions", "FET-24", answer=when(committed, put(READ + "aborted_transactions", lambda reported: reported or None))),
    Lie("all-is-committed", FETCH, "read_committed is read as read_uncommitted", "FET-19 TXV-01 TXV-02 TXV-06 FET-20", ask=put("isolation_level", 0)),
    Lie("nothing-is-uncommitted", FETCH, "read_uncommitted is read as read_committed", "FET-19 TXV-03", ask=put("isolation_level", 1)),
    Lie("stable-is-watermark", FETCH, "the last stable offset is the high watermark", "FET-19 TXV-06", answer=each("responses.partitions", lambda x, p: setattr(p, "last_stable_offset", p.high_watermark))),
    Lie("isolation-unchecked", FETCH, "another isolation level reads everything", "FET-25", ask=put("isolation_level", lambda level: level if level in (0, 1) else 0)),
    Lie("fetch-log-start-0", FETCH, "the log start offset is 0 always", "FSS-06 TOP-19 FET-02", answer=put(READ + "log_start_offset", 0, where=fine), versions="5+"),
    Lie("preferred-replica", FETCH, "clients are sent to a replica that there is not", "FET-26", answer=put(READ + "preferred_read_replica", 77), versions="11+"),
    Lie("marker-turned", FETCH, "commits are read as aborts, aborts as commits", "TXV-05", answer=fetched(lambda batches: [header("base_offset", lambda o: o)([(read, swapped(data))])[0] if control(read) else data for read, data in batches])),
    Lie("marker-missing", FETCH, "markers are not given", "TXV-04 TXV-05", answer=fetched(lambda batches: plain([each for each in batches if not control(each[0])]))),
    Lie("marker-of-older-epoch", FETCH, "markers bear the epoch before", "TXV-05", answer=fetched(header("producer_epoch", lambda epoch: epoch - 1, where=control))),
    Lie("marker-not-control", FETCH, "markers are no control batches", "TXV-04 TXV-05", answer=fetched(header("attributes", lambda bits: bits & ~0x20, where=control))),

    Lie("session-id-twice", FETCH, "all new sessions have one id", "FSS-02", answer=asks(lambda r: r.session_epoch == 0, put("session_id", lambda id: min(id, 1))), versions="7+"),
    Lie("session-for-all", FETCH, "a fetch without a session gets one", "FSS-01", ask=put("session_epoch", {-1: 0}), versions="7+"),
    Lie("session-epoch-as-unknown", FETCH, "a wrong session epoch is FETCH_SESSION_ID_NOT_FOUND", "FSS-03", answer=errors(E.INVALID_FETCH_SESSION_EPOCH, E.FETCH_SESSION_ID_NOT_FOUND)),
    Lie("session-unknown-as-epoch", FETCH, "an unknown session is INVALID_FETCH_SESSION_EPOCH", "FSS-04 FSS-07 FSS-08", answer=errors(E.FETCH_SESSION_ID_NOT_FOUND, E.INVALID_FETCH_SESSION_EPOCH)),
    Lie("session-unknown-unnoticed", FETCH, "an unknown session bears no error", "FSS-04 FSS-07 FSS-08", answer=errors(E.FETCH_SESSION_ID_NOT_FOUND, 0)),
    Lie("session-epoch-unnoticed", FETCH, "a wrong session epoch bears no error", "FSS-03", answer=errors(E.INVALID_FETCH_SESSION_EPOCH, 0)),
    Lie("session-ignores-news", FETCH, "what a session's request names is not looked at", "FSS-05", ask=when(lambda x, m: in_a_session(m), put("topics", [])), versions="7+"),
    Lie("session-forgets-nothing", FETCH, "forgotten partitions stay", "FSS-07", ask=put("forgotten_topics_data", []), versions="7+"),
    Lie("session-never-closed", FETCH, "epoch -1 does not close a session", "FSS-08", ask=when(lambda x, m: m.session_epoch == -1, put("session_id", 0)), versions="7+"),
    Lie("session-errors-left-out", FETCH, "partitions with an error are left out of a session's answer", "FSS-06", answer=asks(in_a_session, lists("responses.partitions", lambda ps: [p for p in ps if not p.error_code])), versions="7+"),
    Lie("session-kind-unnoticed", FETCH, "FETCH_SESSION_TOPIC_ID_ERROR is reported as another error", "FSS-09", answer=errors(E.FETCH_SESSION_TOPIC_ID_ERROR, E.INCONSISTENT_TOPIC_ID)),
    Lie("session-of-a-connection", FETCH, "a session is not found from another connection", "FSS-11", answer=of_one_connection, versions="7+"),

    Lie("fenced-unnoticed", FETCH, "FENCED_LEADER_EPOCH is reported as no error", "EPO-01", answer=errors(E.FENCED_LEADER_EPOCH, 0)),
    Lie("later-epoch-unnoticed", FETCH, "UNKNOWN_LEADER_EPOCH is reported as no error", "EPO-02", answer=errors(E.UNKNOWN_LEADER_EPOCH, 0)),
    Lie("later-epoch-fenced", FETCH, "UNKNOWN_LEADER_EPOCH is reported as FENCED_LEADER_EPOCH", "EPO-02", answer=errors(E.UNKNOWN_LEADER_EPOCH, E.FENCED_LEADER_EPOCH)),
    Lie("list-later-epoch-unnoticed", LIST, "UNKNOWN_LEADER_EPOCH is reported as no error", "EPO-02", answer=errors(E.UNKNOWN_LEADER_EPOCH, 0)),
    Lie("epoch-later-unnoticed", EPOCH, "UNKNOWN_LEADER_EPOCH is reported as no error", "EPO-02", answer=errors(E.UNKNOWN_LEADER_EPOCH, 0)),
    Lie("epoch-end-plus-one", EPOCH, "an epoch ends one offset later", "EPO-04 EPO-05", answer=put(FOUND + "end_offset", lambda offset: offset + 1, where=lambda p: p.end_offset >= 0)),
    Lie("epoch-end-unknown", EPOCH, "no epoch is known", "EPO-04 EPO-05", answer=both(put(FOUND + "end_offset", -1), put(FOUND + "leader_epoch", -1))),
    Lie("epoch-reported-wrong", EPOCH, "an epoch is reported as the one before", "EPO-04 EPO-05", answer=put(FOUND + "leader_epoch", lambda epoch: epoch - 1, where=lambda p: p.leader_epoch >= 0)),
    Lie("unknown-epoch-has-end", EPOCH, "an epoch that was not has an end", "EPO-06", answer=put(FOUND + "end_offset", {-1: 0}, where=fine)),
    Lie("epoch-of-unknown-topic", EPOCH, "an unknown topic or partition bears no error", "EPO-11", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, 0)),
    Lie("epoch-never-checked", EPOCH, "the current leader epoch is not looked at", "EPO-02 EPO-01", ask=put("topics.partitions.current_leader_epoch", -1), versions="2+"),

    Lie("earliest-is-0", LIST, "the earliest offset is always 0", "LOF-01", answer=at_timestamp(lambda t: t == -2, offset=0)),
    Lie("earliest-has-timestamp", LIST, "the earliest offset has the timestamp 0", "LOF-16", answer=at_timestamp(lambda t: t == -2, timestamp=0)),
    Lie("latest-plus-one", LIST, "the latest offset is one too high", "LOF-02 LOF-11", answer=at_timestamp(lambda t: t == -1, offset=lambda offset: offset + 1)),
    Lie("latest-minus-one", LIST, "the latest offset is that of the last record", "LOF-02 LOF-11", answer=at_timestamp(lambda t: t == -1, offset=lambda offset: max(offset - 1, 0))),
    Lie("latest-has-timestamp", LIST, "the latest offset has a timestamp", "LOF-16", answer=at_timestamp(lambda t: t == -1, timestamp=1)),
    Lie("search-finds-next", LIST, "a search by time gives the record after", "LOF-03 LOF-12", answer=at_timestamp(lambda t: t >= 0, offset=lambda offset: offset + 1 if offset >= 0 else offset)),
    Lie("search-is-strict", LIST, "a search by time looks for later records only", "LOF-03 LOF-12", ask=put(FOUND + "timestamp", lambda t: t + 1 if t >= 0 else t)),
    Lie("search-tells-sought", LIST, "a search by time reports the sought timestamp", "LOF-03", answer=each_partition(lambda q, a: setattr(a, "timestamp", q.timestamp) if q.timestamp >= 0 and a.offset >= 0 else None)),
    Lie("search-finds-end", LIST, "a search that finds nothing gives offset 0", "LOF-03", answer=at_timestamp(lambda t: t >= 0, offset=lambda offset: 0 if offset < 0 else offset)),
    Lie("max-timestamp-is-latest", LIST, "-3 gives the latest offset", "LOF-04", ask=with_timestamp(-3, -1)),
    Lie("local-earliest-unknown", LIST, "-4 gives offset -1", "LOF-05", answer=at_timestamp(lambda t: t == -4, offset=-1)),
    Lie("tiered-is-0", LIST, "-5 gives offset 0", "LOF-05", answer=at_timestamp(lambda t: t == -5, offset=0)),
    Lie("special-unchecked", LIST, "an unknown special timestamp is taken for the latest", "LOF-06", ask=put(FOUND + "timestamp", lambda t: -1 if t < -6 else t)),
    Lie("special-error-other", LIST, "an unknown special timestamp is INVALID_REQUEST", "LOF-06", answer=errors(E.UNSUPPORTED_VERSION, E.INVALID_REQUEST)),
    Lie("named-twice-unnoticed", LIST, "a partition that is named twice bears no error", "LOF-07", answer=errors(E.INVALID_REQUEST, 0)),
    Lie("list-error-for-all", LIST, "one partition's error is given for all", "LOF-07 LOF-14 LOF-06", answer=shared("topics.partitions")),
    Lie("list-without-epoch", LIST, "offsets have no leader epoch", "LOF-10", answer=put(FOUND + "leader_epoch", -1), versions="4+"),
    Lie("list-with-epoch-0", LIST, "what is not found has the leader epoch 0", "LOF-10", answer=put(FOUND + "leader_epoch", {-1: 0}, where=fine), versions="4+"),
    Lie("list-of-unknown-topic", LIST, "an unknown topic or partition bears no error", "LOF-14", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, 0)),
    Lie("list-all-committed", LIST, "read_committed is answered as read_uncommitted", "LOF-13 LOF-15 TXV", ask=put("isolation_level", 0), versions="2+"),
    Lie("list-nothing-uncommitted", LIST, "read_uncommitted is answered as read_committed", "LOF-13 LOF-15 TXV", ask=put("isolation_level", 1), versions="2+"),
    Lie("list-v1-fails", LIST, "ListOffsets v1 is refused", "API-05 LOF", answer=put(FOUND + "error_code", E.UNKNOWN_SERVER_ERROR), versions="1"),

    Lie("producer-id-given-twice", PRODUCER, "every producer gets the first one's id", "IDM-01", answer=same_id),
    Lie("producer-epoch-1", PRODUCER, "a fresh producer has epoch 1", "IDM-01 TXN-01", answer=put("producer_epoch", {0: 1}, where=fine)),
    Lie("producer-half-known", PRODUCER, "an id without an epoch, or an epoch without an id, bears no error", "IDM-02", answer=asks(lambda r: r.transactional_id is None, errors(E.INVALID_REQUEST, 0))),
    Lie("gap-unnoticed", PRODUCE, "OUT_OF_ORDER_SEQUENCE_NUMBER is reported as no error", "IDM-04 IDM-09 IDM-06", answer=errors(E.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)),
    Lie("gap-as-unknown-producer", PRODUCE, "OUT_OF_ORDER_SEQUENCE_NUMBER is reported as UNKNOWN_PRODUCER_ID", "IDM-04 IDM-09", answer=errors(E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID)),
    Lie("sequences-unchecked", PRODUCE, "producers' ids and sequences are not looked at", "IDM", ask=sent(header("producer_id", -1, where=lambda read: not read.attributes & 0x30))),
    Lie("copy-refused", PRODUCE, "a batch that is sent again is DUPLICATE_SEQUENCE_NUMBER", "", answer=when(seen_before, errors(0, E.DUPLICATE_SEQUENCE_NUMBER)), unseen="clients take it as success (Sender.completeBatch); IDM-05, IDM-16 and CMP-09 tolerate it"),
    Lie("copy-has-no-offset", PRODUCE, "a batch that is sent again has the base offset -1", "IDM-05", answer=when(seen_before, put(STORED + "base_offset", -1))),
    Lie("old-epoch-unnoticed", PRODUCE, "INVALID_PRODUCER_EPOCH is reported as no error", "IDM-08 TXN TXV-12", answer=errors(E.INVALID_PRODUCER_EPOCH, 0)),
    Lie("old-epoch-as-gap", PRODUCE, "INVALID_PRODUCER_EPOCH is reported as OUT_OF_ORDER_SEQUENCE_NUMBER", "IDM-08 TXN-50", answer=errors(E.INVALID_PRODUCER_EPOCH, E.OUT_OF_ORDER_SEQUENCE_NUMBER)),
    Lie("producers-not-described", DESCRIBE, "no producers are reported", "IDM-14 IDM-17", answer=put(FOUND + "active_producers", [])),
    Lie("producer-missing", DESCRIBE, "the first producer is not reported", "IDM-14 IDM-17", answer=first_missing(FOUND + "active_producers")),
    Lie("last-sequence-plus-one", DESCRIBE, "the last sequence is one too high", "IDM-14", answer=put(FOUND + "active_producers.last_sequence", lambda s: s + 1)),
    Lie("described-epoch-plus-one", DESCRIBE, "the producer epoch is one too high", "IDM-14", answer=put(FOUND + "active_producers.producer_epoch", lambda epoch: epoch + 1)),
    Lie("transaction-start-unknown", DESCRIBE, "an open transaction begins nowhere", "IDM-17", answer=put(FOUND + "active_producers.current_txn_start_offset", -1)),
    Lie("described-unknown-topic", DESCRIBE, "an unknown partition bears no error", "IDM-14", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, 0)),
]
# fmt: on

__all__ = ["LIES"]
