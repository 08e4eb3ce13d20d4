# pyright: reportPrivateUsage=false
"""Where things are in partitions, who leads them, and what is refused to clients that err (LOF-*, EPO-*, FET-*, FSS-*, PRD-*,
IDM-*, MET-*); see `inspecting`. What is produced is refused, so that no record is there that no history knows.
"""

from __future__ import annotations

from typing import Any

from linearizability.client.requests import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchFrom,
    Topic,
    fetch_request,
    list_offsets_request,
    produce_request,
)
from linearizability.simulation.batches import batches_in, header_of
from linearizability.simulation.client import Key
from linearizability.simulation.inspecting import Chapter, Inspector, Part, Question, refusals, require, require_same
from linearizability.simulation.machine import EPOCH_MS
from reference.protocol.errors import ErrorCode as E
from reference.protocol.messages.describe_producers import DescribeProducersRequest
from reference.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from reference.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from reference.protocol.primitives import NO_UUID, Offset, ProducerEpoch, ProducerId
from reference.protocol.records.batch import BatchProducer, build
from reference.protocol.records.record import Record
from reference.replication.partition import Partition

NOWHERE = "nowhere"
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
PAGES = (1, 2, 3, 2_000)
DAY_MS = 24 * 3_600_000


def places_by_time(client: Inspector) -> Chapter:
    """The special places of each partition are the log's, and who names another leader epoch is refused."""
    for key in client.cluster.partitions():
        number, partition = client.leader(key)
        log, epoch = partition.log, partition.state.leader_epoch
        places = [
            (EARLIEST, READ_UNCOMMITTED, log.log_start_offset),
            (EARLIEST_LOCAL, READ_UNCOMMITTED, log.log_start_offset),
            (LATEST, READ_UNCOMMITTED, partition.high_watermark),
            (LATEST, READ_COMMITTED, partition.last_stable_offset()),
            (EPOCH_MS + DAY_MS, READ_UNCOMMITTED, -1),
        ]
        for asked, isolation, offset in places:
            answer = yield Question(list_offsets_request({key: asked}, isolation=isolation), 8, number)
            found = answer.topics[0].partitions[0]
            require_same(f"{key} at {asked}", (found.error_code, found.offset), (E.NONE, offset))
        twice = list_offsets_request({key: LATEST})
        twice.topics *= 2
        yield from refusals(
            (Question(body, version, number), code)
            for body, version, code in [
                (list_offsets_request({key: LATEST}, leader_epochs={key: epoch}), 8, E.NONE),
                (list_offsets_request({key: LATEST}, leader_epochs={key: epoch + 1}), 8, E.UNKNOWN_LEADER_EPOCH),
                (
                    list_offsets_request({key: LATEST}, leader_epochs={key: epoch - 1}),
                    8,
                    E.FENCED_LEADER_EPOCH if epoch else E.NONE,
                ),
                (list_offsets_request({key: MAX_TIMESTAMP}), 6, E.UNSUPPORTED_VERSION),
                (list_offsets_request({key: EARLIEST_LOCAL}), 7, E.UNSUPPORTED_VERSION),
                (list_offsets_request({key: LATEST}, isolation=2), 8, E.UNKNOWN_SERVER_ERROR),
                (twice, 8, E.INVALID_REQUEST),
                (list_offsets_request({(NOWHERE, 0): LATEST}), 8, E.UNKNOWN_TOPIC_OR_PARTITION),
            ]
        )


def _end_of_epoch(key: Key, asked: int, current: int = -1) -> OffsetForLeaderEpochRequest:
    place = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=key[1], current_leader_epoch=current, leader_epoch=asked
    )
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=key[0], partitions=[place])
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])


def ends_of_epochs(client: Inspector) -> Chapter:
    """A leader epoch ends where the first batch of a later one begins."""
    for key in client.cluster.partitions():
        number, partition = client.leader(key)
        epoch, log = partition.state.leader_epoch, partition.log
        begins = _epochs(partition)
        first = min(begins, default=epoch)
        for asked in range(first, epoch + 1):
            answer = yield Question(_end_of_epoch(key, asked), 4, number)
            found = answer.topics[0].partitions[0]
            end = min((start for each, start in begins.items() if each > asked), default=log.log_end_offset)
            require_same(f"{key}: the end of epoch {asked}", (found.error_code, found.end_offset), (E.NONE, end))
            require(found.leader_epoch <= asked, f"{key}: epoch {found.leader_epoch} is answered for {asked}")
        answer = yield Question(_end_of_epoch(key, epoch + 1), 4, number)
        found = answer.topics[0].partitions[0]
        require_same(f"{key}: the end of a later epoch", (found.leader_epoch, found.end_offset), (-1, -1))
        yield from refusals(
            [
                (Question(_end_of_epoch(key, epoch, epoch + 1), 4, number), E.UNKNOWN_LEADER_EPOCH),
                (Question(_end_of_epoch((NOWHERE, 0), 0), 4, number), E.UNKNOWN_TOPIC_OR_PARTITION),
            ]
        )


def _epochs(partition: Partition) -> dict[int, int]:
    """Return the start of each leader epoch by the batches present. Deleted ones may still lie before the log's start."""
    begins: dict[int, int] = {}
    for segment in partition.log._segments:
        for batch in batches_in(segment.file.read(0, segment.file.size)):
            header = header_of(batch)
            if header.last_offset >= partition.log.log_start_offset:
                begins.setdefault(header.leader_epoch, max(header.base_offset, partition.log.log_start_offset))
    return begins


def fetches(client: Inspector) -> Chapter:
    """A fetch beyond the log, in another epoch, of an unknown topic, or in a session that is not there is refused."""
    for key in client.cluster.partitions():
        number, partition = client.leader(key)
        topic = Topic(key[0], client.topic_id(key[0]), 1)
        place, epoch, end = (topic, key[1]), partition.state.leader_epoch, partition.high_watermark
        log_end, start = partition.log.log_end_offset, partition.log.log_start_offset
        cases = [
            (fetch_request({place: log_end + 1}), E.OFFSET_OUT_OF_RANGE),
            (fetch_request({place: start - 1}), E.OFFSET_OUT_OF_RANGE),
            (fetch_request({place: FetchFrom(end, epoch + 1)}), E.UNKNOWN_LEADER_EPOCH),
            (fetch_request({place: FetchFrom(end, epoch)}), E.NONE),
            (fetch_request({(topic, 99): 0}), E.UNKNOWN_TOPIC_OR_PARTITION),
            (fetch_request({(Topic(NOWHERE, NO_UUID, 1), 0): 0}), E.UNKNOWN_TOPIC_ID),
            (fetch_request({place: end}, session_id=77, session_epoch=3), E.FETCH_SESSION_ID_NOT_FOUND),
        ]
        if epoch:
            cases.append((fetch_request({place: FetchFrom(end, epoch - 1)}), E.FENCED_LEADER_EPOCH))
        yield from refusals((Question(body, 13, number), code) for body, code in cases)
        begins = [(each, start) for each, start in _epochs(partition).items() if start > partition.log.log_start_offset]
        for each, begun in begins:  # who has read beyond the end of an earlier epoch has another log
            answer = yield Question(fetch_request({place: FetchFrom(begun + 1, epoch, each - 1)}), 13, number)
            diverging = answer.responses[0].partitions[0].diverging_epoch
            require_same(f"{key}: what ends before epoch {each}", diverging.end_offset, begun)
        yield from _a_session(key, number, place, end)


def _a_session(key: Key, number: int, place: tuple[Topic, int], end: int) -> Part:
    """A session says nothing of a partition without news, and ends when it is closed."""
    answer = yield Question(fetch_request({place: end}, session_epoch=0), 13, number)
    session = answer.session_id
    require(session > 0, f"{key}: there is no session")
    answer = yield Question(fetch_request({}, session_id=session, session_epoch=1), 13, number)
    require_same(f"{key}: a fetch without news", (answer.error_code, len(answer.responses)), (E.NONE, 0))
    yield from refusals(
        [
            (
                Question(fetch_request({}, session_id=session, session_epoch=5), 13, number),
                E.INVALID_FETCH_SESSION_EPOCH,
            ),
            (Question(fetch_request({}, session_id=session, session_epoch=-1), 13, number), E.NONE),
            (
                Question(fetch_request({}, session_id=session, session_epoch=2), 13, number),
                E.FETCH_SESSION_ID_NOT_FOUND,
            ),
        ]
    )


# ---- producers


def producers(client: Inspector) -> Chapter:
    """The producers of each partition are those of its batches; each is held to its epoch and its sequence."""
    for key in client.cluster.partitions():
        number, partition = client.leader(key)
        topic = DescribeProducersRequest.TopicRequest(name=key[0], partition_indexes=[key[1], 99])
        strange = DescribeProducersRequest.TopicRequest(name=NOWHERE, partition_indexes=[0])
        answer = yield Question(DescribeProducersRequest(topics=[topic, strange]), 0, number)
        described, missing = answer.topics[0].partitions
        codes = (described.error_code, missing.error_code, answer.topics[1].partitions[0].error_code)
        unknown = E.UNKNOWN_TOPIC_OR_PARTITION
        require_same(f"{key}: errors of producers", codes, (E.NONE, unknown, unknown))
        found = {each.producer_id: (each.producer_epoch, each.last_sequence) for each in described.active_producers}
        last = _producers(partition)
        wrong = {id: found.get(id) for id, each in last.items() if id in found and found[id] != each}
        require_same(f"{key}: producers", wrong, {id: last[id] for id in wrong})
        open_ones = {each.producer_id for each in described.active_producers if each.current_txn_start_offset >= 0}
        if partition.last_stable_offset() == partition.high_watermark:
            require_same(f"{key}: producers with an open transaction", sorted(open_ones), list[int]())
        yield from _refused_batches(client, key, number, found)


def _producers(partition: Partition) -> dict[int, tuple[int, int]]:
    """Return epoch and last sequence of each producer whose last batch is no marker."""
    found: dict[int, tuple[int, int] | None] = {}
    for segment in partition.log._segments:
        for batch in batches_in(segment.file.read(0, segment.file.size)):
            header = header_of(batch)
            if header.producer_id >= 0:
                said = (header.producer_epoch, header.last_sequence)
                found[header.producer_id] = None if header.is_control else said
    return {id: each for id, each in found.items() if each is not None}


def _batch(client: Inspector, identity: tuple[int, int], sequence: int, **changed: Any) -> bytes:
    timestamp = client.cluster.client_clock_ms()
    producer = BatchProducer(ProducerId(identity[0]), ProducerEpoch(identity[1]), sequence)
    return bytes(build([Record(Offset(0), timestamp, None, b"to be refused")], producer=producer, **changed))


def _refused_batches(client: Inspector, key: Key, number: int, known: dict[int, tuple[int, int]]) -> Part:
    fine = _batch(client, (-1, -1), -1)
    broken = fine[:-1] + bytes([fine[-1] ^ 1])
    cases: list[tuple[Any, E]] = [
        (produce_request({key: broken}), E.CORRUPT_MESSAGE),
        (produce_request({key: fine}, acks=2), E.INVALID_REQUIRED_ACKS),
        (produce_request({(NOWHERE, 0): fine}), E.UNKNOWN_TOPIC_OR_PARTITION),
        (produce_request({key: _batch(client, (-1, -1), -1, control=True)}), E.INVALID_RECORD),
    ]
    for id, (epoch, sequence) in [*known.items()][:3]:
        if sequence >= 0:
            cases.append(
                (produce_request({key: _batch(client, (id, epoch), sequence + 7)}), E.OUT_OF_ORDER_SEQUENCE_NUMBER)
            )
            cases.append((produce_request({key: _batch(client, (id, epoch + 1), 3)}), E.OUT_OF_ORDER_SEQUENCE_NUMBER))
        if epoch > 0:
            cases.append((produce_request({key: _batch(client, (id, epoch - 1), 0)}), E.INVALID_PRODUCER_EPOCH))
    yield from refusals((Question(body, 9, number), code) for body, code in cases)


# ---- topics


def topics_by_pages(client: Inspector) -> Chapter:
    """Page after page, every partition is described once, in order, as the node knows it."""
    for limit in PAGES:
        image = client.node(client.home.node).image
        expected = [
            (
                name,
                index,
                each.leader,
                each.leader_epoch,
                [*each.replicas],
                [*each.isr],
                [*each.eligible_leader_replicas],
            )
            for name, topic in sorted(image.topics.items())
            for index, each in sorted(topic.partitions.items())
        ]
        found: list[tuple[Any, ...]] = []
        cursor = None
        for _ in range(len(expected) + 1):
            body = DescribeTopicPartitionsRequest(response_partition_limit=limit, cursor=cursor)
            answer = yield Question(body, 0)
            page: list[tuple[Any, ...]] = [
                (
                    topic.name,
                    each.partition_index,
                    each.leader_id,
                    each.leader_epoch,
                    each.replica_nodes,
                    each.isr_nodes,
                    each.eligible_leader_replicas or [],
                )
                for topic in answer.topics
                for each in topic.partitions
            ]
            require(len(page) <= limit, f"a page of {limit} has {len(page)} partitions")
            found += page
            if answer.next_cursor is None:
                break
            cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
            )
        require_same(f"partitions by pages of {limit}", found, expected)
    strange = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name=NOWHERE)])
    yield from refusals([(Question(strange, 0), E.UNKNOWN_TOPIC_OR_PARTITION)])


CHAPTERS = (places_by_time, ends_of_epochs, fetches, producers, topics_by_pages)
