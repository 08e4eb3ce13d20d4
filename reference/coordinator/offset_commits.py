"""OffsetCommit, TxnOffsetCommit and OffsetDelete.

A missing partition and too long metadata are errors of one partition. An error of the group is the result of all other
partitions. If none of the partitions exists, the group is not checked. Source: requirements OFF-01 to OFF-17; KIP-1251;
kafka.server.KafkaApis, org.apache.kafka.coordinator.group.OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from reference.coordinator.group import CheckPartition, Decided, Group, KeyValue
from reference.coordinator.group_records import offset_record
from reference.coordinator.group_settings import GroupSettings
from reference.coordinator.offsets import NO_EXPIRY, Offsets, offset_tombstone
from reference.coordinator.topics import Topics
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from reference.protocol.messages.offset_commit_record import OffsetCommitValue
from reference.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from reference.protocol.primitives import (
    LONG_AGO,
    NO_UUID,
    GroupId,
    TimestampMs,
    TopicId,
    TopicName,
)

FIRST_COMMIT_WITH_TOPIC_IDS = 10
FIRST_COMMIT_WITH_GROUP_ID_NOT_FOUND = 9

MAX_TIMESTAMP = TimestampMs((1 << 63) - 1)

COMMIT_RESULTS = OffsetCommitResponse.OffsetCommitResponseTopic
COMMIT_RESULT = OffsetCommitResponse.OffsetCommitResponsePartition
TRANSACTIONAL_RESULTS = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
TRANSACTIONAL_RESULT = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
DELETE_RESULTS = OffsetDeleteResponse.OffsetDeleteResponseTopic
DELETE_RESULT = OffsetDeleteResponse.OffsetDeleteResponsePartition


Commit: TypeAlias = (
    OffsetCommitRequest.OffsetCommitRequestPartition | TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
)
"""One partition of a commit, transactional or not."""


class _Place(Protocol):
    partition_index: int


class _Topic(Protocol):
    @property
    def partitions(self) -> Sequence[_Place]: ...


class OffsetCommits:
    """Decides commits and deletions for a shard's groups."""

    def __init__(
        self, groups: Mapping[GroupId, Group], offsets: Offsets, topics: Topics, settings: GroupSettings
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._topics = topics
        self._settings = settings

    # ---- OffsetCommit

    def commit(self, request: OffsetCommitRequest, version: int, now: TimestampMs) -> Decided[OffsetCommitResponse]:
        """OffsetCommit; the response omits topics without partitions in the request (OFF-24).

        Errors: KafkaError for the whole request (OFF-05 to OFF-09).
        """
        named = [_identify(topic, version, self._topics) for topic in request.topics]
        existing = [_partitions_of(id, self._topics) for _, id in named]
        check = self._check_commit(request, version) if _any_exists(request.topics, existing) else None
        expires_at = _expires_at(request.retention_time_ms, now)
        decided = Decided(OffsetCommitResponse())
        for topic, (name, id), partitions in zip(request.topics, named, existing, strict=True):
            if not topic.partitions:
                continue
            results = COMMIT_RESULTS(name=topic.name, topic_id=topic.topic_id)
            decided.response.topics.append(results)
            for each in topic.partitions:
                code = _unknown(name, partitions, each)
                if name is not None and code is ErrorCode.NONE:
                    value = _value(each, id, now, expires_at)
                    code = self._keep(decided.records, request.group_id, (name, id), each, value, check)
                results.partitions.append(COMMIT_RESULT(partition_index=each.partition_index, error_code=code))
        return decided

    def _check_commit(self, request: OffsetCommitRequest, version: int) -> CheckPartition | None:
        group = self._groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is not None:
            return group.check_commit(request.member_id, request.group_instance_id, generation, version, False)
        if generation >= 0:
            is_reported = version >= FIRST_COMMIT_WITH_GROUP_ID_NOT_FOUND
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if is_reported else ErrorCode.ILLEGAL_GENERATION)
        return None  # no such group: its offsets create it

    # ---- TxnOffsetCommit

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, version: int, now: TimestampMs
    ) -> Decided[TxnOffsetCommitResponse]:
        """TxnOffsetCommit; the caller writes the records with the producer's id and epoch.

        Errors: KafkaError for the whole request (OFF-17).
        """
        ids = [_id_of(topic.name, self._topics) for topic in request.topics]
        check = self._check_transactional(request, version) if self.any_exists(request) else None
        check = partial(_refuse_stale_generation, check) if check is not None else None
        decided = Decided(TxnOffsetCommitResponse())
        for topic, id in zip(request.topics, ids, strict=True):
            partitions = _partitions_of(id, self._topics)
            results = TRANSACTIONAL_RESULTS(name=topic.name)
            decided.response.topics.append(results)
            for each in topic.partitions:
                code = _missing(partitions, each)
                if code is ErrorCode.NONE:
                    value = _value(each, NO_UUID, now, NO_EXPIRY)
                    code = self._keep(decided.records, request.group_id, (topic.name, id), each, value, check)
                results.partitions.append(TRANSACTIONAL_RESULT(partition_index=each.partition_index, error_code=code))
        return decided

    def any_exists(self, request: TxnOffsetCommitRequest) -> bool:
        """Whether any partition of the request exists; otherwise neither the transaction nor the group is checked."""
        ids = [_id_of(topic.name, self._topics) for topic in request.topics]
        return _any_exists(request.topics, [_partitions_of(id, self._topics) for id in ids])

    def _check_transactional(self, request: TxnOffsetCommitRequest, version: int) -> CheckPartition | None:
        group = self._groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            if generation >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            return None
        try:
            return group.check_commit(request.member_id, request.group_instance_id, generation, version, True)
        except KafkaError as error:
            raise _as_generation(error) from error

    # ---- OffsetDelete

    def delete(self, request: OffsetDeleteRequest) -> Decided[OffsetDeleteResponse]:
        """OffsetDelete. Errors: KafkaError for the whole request (OFF-14)."""
        group = self._groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_offset_delete()
        decided = Decided(OffsetDeleteResponse())
        for topic in request.topics:
            partitions = _partitions_of(_id_of(topic.name, self._topics), self._topics)
            results = DELETE_RESULTS(name=topic.name)
            decided.response.topics.append(results)
            for each in topic.partitions:
                code = _missing(partitions, each)
                place = topic.name, each.partition_index
                if code is ErrorCode.NONE and group.is_subscribed_to(topic.name):
                    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif code is ErrorCode.NONE and self._offsets.has(group.id, place):
                    decided.records.append(offset_tombstone(group.id, place))
                results.partitions.append(DELETE_RESULT(partition_index=each.partition_index, error_code=code))
        return decided

    # ---- one partition

    def _keep(
        self,
        records: list[KeyValue],
        group: GroupId,
        topic: tuple[TopicName, TopicId],
        commit: Commit,
        value: OffsetCommitValue,
        check: CheckPartition | None,
    ) -> ErrorCode:
        """Add the record of one partition's offset, unless its metadata are too long (OFF-04). Errors: as `check`."""
        if _java_length(value.metadata) > self._settings.max_metadata_size:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if check is not None:
            check(*topic, commit.partition_index)
        records.append(offset_record(group, (topic[0], commit.partition_index), value))
        return ErrorCode.NONE


def refused_commit(request: OffsetCommitRequest, version: int, topics: Topics, code: ErrorCode) -> OffsetCommitResponse:
    """The response to a commit that is refused as a whole; missing topics and partitions keep their own errors (OFF-03)."""
    response = OffsetCommitResponse()
    for topic in request.topics:
        name, id = _identify(topic, version, topics)
        partitions = _partitions_of(id, topics)
        results = [
            COMMIT_RESULT(partition_index=each.partition_index, error_code=_unknown(name, partitions, each) or code)
            for each in topic.partitions
        ]
        response.topics.append(COMMIT_RESULTS(name=topic.name, topic_id=topic.topic_id, partitions=results))
    return response


def refused_in_transaction(request: TxnOffsetCommitRequest, topics: Topics, code: ErrorCode) -> TxnOffsetCommitResponse:
    """The response to a TxnOffsetCommit that is refused as a whole, like `refused_commit` (OFF-03)."""
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        partitions = _partitions_of(_id_of(topic.name, topics), topics)
        results = [
            TRANSACTIONAL_RESULT(partition_index=each.partition_index, error_code=_missing(partitions, each) or code)
            for each in topic.partitions
        ]
        response.topics.append(TRANSACTIONAL_RESULTS(name=topic.name, partitions=results))
    return response


def _identify(
    topic: OffsetCommitRequest.OffsetCommitRequestTopic, version: int, topics: Topics
) -> tuple[TopicName | None, TopicId]:
    """A topic's name, None for an unknown id, and its id, `NO_UUID` for an unknown name."""
    if version >= FIRST_COMMIT_WITH_TOPIC_IDS:
        return topics.name_of(topic.topic_id), topic.topic_id
    return topic.name, _id_of(topic.name, topics)


def _id_of(name: TopicName, topics: Topics) -> TopicId:
    """A topic's id, `NO_UUID` if it does not exist."""
    return topics.id_of(name) or NO_UUID


def _partitions_of(topic_id: TopicId, topics: Topics) -> range:
    """The partitions of a topic, empty if it does not exist."""
    return range(topics.partition_count(topic_id) if topic_id != NO_UUID else 0)


def _unknown(name: TopicName | None, partitions: range, place: _Place) -> ErrorCode:
    """NONE for an existing partition of a topic whose name is known, else its error."""
    return _missing(partitions, place) if name is not None else ErrorCode.UNKNOWN_TOPIC_ID


def _missing(partitions: range, place: _Place) -> ErrorCode:
    """NONE for an existing partition, else its error."""
    return ErrorCode.NONE if place.partition_index in partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _any_exists(topics: Iterable[_Topic], existing: Iterable[range]) -> bool:
    """Whether any partition that a request names exists."""
    return any(
        each.partition_index in partitions
        for topic, partitions in zip(topics, existing, strict=True)
        for each in topic.partitions
    )


def _expires_at(retention_time_ms: int, now: TimestampMs) -> TimestampMs:
    """The time at which an offset expires if the commit has a retention time; at most the largest timestamp of a
    record.

    In Kafka 4.3.1 the sum overflows for the largest retention time, and the next check removes the offset; here it is
    kept.
    """
    return NO_EXPIRY if retention_time_ms == NO_EXPIRY else min(max(now + retention_time_ms, LONG_AGO), MAX_TIMESTAMP)


def _value(commit: Commit, topic_id: TopicId, now: TimestampMs, expires_at: TimestampMs) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=commit.committed_offset,
        leader_epoch=commit.committed_leader_epoch,
        metadata=commit.committed_metadata or "",
        commit_timestamp=now,
        expire_timestamp=expires_at,
        topic_id=topic_id,
    )


def _as_generation(error: KafkaError) -> KafkaError:
    """The error with ILLEGAL_GENERATION for STALE_MEMBER_EPOCH, which TxnOffsetCommit does not have."""
    return KafkaError(ErrorCode.ILLEGAL_GENERATION) if error.code is ErrorCode.STALE_MEMBER_EPOCH else error


def _refuse_stale_generation(check: CheckPartition, topic: TopicName, id: TopicId, index: int) -> None:
    try:
        check(topic, id, index)
    except KafkaError as error:
        raise _as_generation(error) from error


def _java_length(text: str) -> int:
    """The length of a text in Java: characters beyond the first plane count twice."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)
