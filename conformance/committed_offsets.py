"""Commit and fetch offsets: one interface for every version, with topics by name or by id."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from conformance.answers import AnswerParts, only
from conformance.broker import Broker
from conformance.results import Lack
from conformance.steps import built_on
from conformance.wire import Failed, Misbehaved
from linearizability.client.errors import LOADING
from linearizability.client.requests import (
    Committed,
    Topic,
    commit_request,
    fetch_offsets_of_one,
    fetch_offsets_request,
)
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.offset_commit import OffsetCommitRequest
from reference.protocol.messages.offset_delete import OffsetDeleteRequest
from reference.protocol.messages.offset_fetch import OffsetFetchRequest

TOPICS_BY_ID = 10
"""The first version of OffsetCommit and OffsetFetch that names topics by their ids (KIP-848)."""
SEVERAL_GROUPS = 8
"""The first version of OffsetFetch for several groups (KIP-709)."""
NOTHING = -1
"""The offset that is reported for a partition without a committed offset."""

TopicPartition = tuple[Topic, int]


class Found(NamedTuple):
    """What OffsetFetch reports about a group."""

    error_code: int
    partitions: dict[TopicPartition, Committed]
    errors: dict[TopicPartition, int]


MEMBERS_COMMIT = 1
"""The first version of OffsetCommit with the member and its generation."""


def commit(
    broker: Broker,
    group: str,
    offsets: Mapping[TopicPartition, Committed | int],
    *,
    version: int | None = None,
    to: tuple[str, int] | None = None,
    **who: Any,
) -> dict[TopicPartition, int]:
    """Send OffsetCommit to the group's coordinator, and return the error code of each partition, in the response's order."""
    of_member = version is None and bool(who.get("member_id"))
    version = broker.version_for(OffsetCommitRequest, version)
    if of_member and version < MEMBERS_COMMIT:
        broker.skip(f"needs OffsetCommit v{MEMBERS_COMMIT}, in which a member says who it is", Lack.API)
    answer = broker.call(commit_request(group, offsets, **who), version, to=to or broker.coordinator(group))
    named = Names((topic for topic, _ in offsets), version)
    return {
        (named.topic(topic), one.partition_index): one.error_code for topic in answer.topics for one in topic.partitions
    }


def commit_one(
    broker: Broker, group: str, topic: Topic, offset: int, *, partition: int = 0, version: int | None = None, **who: Any
) -> int:
    """Send OffsetCommit for one partition, and return its error code."""
    found = commit(broker, group, {(topic, partition): offset}, version=version, **who)
    return only(list(found.values()), "partition in the answer to OffsetCommit")


@built_on("BAS-08")
def expect_committed(broker: Broker, group: str, offsets: Mapping[TopicPartition, Committed | int], **who: Any) -> None:
    """Commit offsets, which must succeed. Retries while the coordinator is loading."""

    def committed() -> bool:
        codes = set(commit(broker, group, offsets, **who).values())
        if codes & LOADING:
            return False
        if codes != {ErrorCode.NONE}:
            raise Failed(f"OffsetCommit for {group}: errors {sorted(codes)}")
        return True

    broker.eventually(committed, f"offsets of {group} are committed")


def fetch_request(
    broker: Broker,
    groups: Mapping[str, Collection[TopicPartition] | None],
    version: int,
    *,
    require_stable: bool = False,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> OffsetFetchRequest:
    """An OffsetFetch request for groups; None requests all partitions that a group has committed. Skips several groups below
    v8."""
    if version >= SEVERAL_GROUPS:
        return fetch_offsets_request(
            groups, require_stable=require_stable, member_id=member_id, member_epoch=member_epoch
        )
    if len(groups) != 1:
        broker.skip(f"OffsetFetch v{version} asks for one group only")
    ((group, partitions),) = groups.items()
    return fetch_offsets_of_one(group, partitions, require_stable=require_stable and version >= 7)


def committed(
    broker: Broker,
    group: str,
    partitions: Collection[TopicPartition] | None,
    *,
    known: Sequence[Topic] = (),
    version: int | None = None,
    to: tuple[str, int] | None = None,
    as_reported: bool = False,
    **who: Any,
) -> Found:
    """The OffsetFetch response for some of a group's partitions, or for all (None); `known` are the topics that may then
    appear."""
    found = committed_of(
        broker, {group: partitions}, known=known, version=version, to=to, as_reported=as_reported, **who
    )
    return only(
        list(found.values()),
        "group in the answer to OffsetFetch",
    )


def committed_of(
    broker: Broker,
    groups: Mapping[str, Collection[TopicPartition] | None],
    *,
    known: Sequence[Topic] = (),
    version: int | None = None,
    to: tuple[str, int] | None = None,
    as_reported: bool = False,
    **who: Any,
) -> dict[str, Found]:
    """The OffsetFetch responses for several groups, which must share a coordinator.

    Unless `as_reported`, GROUP_ID_NOT_FOUND counts as no committed offsets (OFF-02 judges it), and null metadata as empty
    (OFF-32 judges it).
    """
    version = broker.version_for(OffsetFetchRequest, version)
    request = fetch_request(broker, groups, version, **who)
    answer = broker.call(request, version, to=to or broker.coordinator(next(iter(groups))))
    asked = {topic for partitions in groups.values() for topic, _ in partitions or ()}
    named = Names((*asked, *known), version)
    if version >= SEVERAL_GROUPS:
        found = AnswerParts({one.group_id: _found(one, named, as_reported) for one in answer.groups})
    else:
        found = AnswerParts({next(iter(groups)): _found(answer, named, as_reported)})
    for group, one in found.items():
        if one.error_code == ErrorCode.GROUP_ID_NOT_FOUND and not as_reported and "member_id" not in who:
            asked_of = groups.get(group) or ()
            found[group] = Found(
                ErrorCode.NONE, dict.fromkeys(asked_of, Committed(NOTHING)), dict.fromkeys(asked_of, ErrorCode.NONE)
            )
    return found


def _found(reported: Any, named: Names, as_reported: bool) -> Found:
    partitions: dict[TopicPartition, Committed] = {}
    errors: dict[TopicPartition, int] = {}
    for topic in reported.topics:
        for one in topic.partitions:
            key = named.topic(topic), one.partition_index
            metadata = one.metadata if as_reported else one.metadata or ""
            partitions[key] = Committed(one.committed_offset, metadata, one.committed_leader_epoch)
            errors[key] = one.error_code
    return Found(reported.error_code, partitions, errors)


def expect_offset(broker: Broker, group: str, topic: Topic, offset: int, what: str, *, partition: int = 0) -> None:
    """Require this committed offset for a partition; -1 for none. Retries while the coordinator is loading."""

    def reported() -> Found | None:
        found = committed(broker, group, [(topic, partition)])
        return None if found.error_code in LOADING else found

    found = broker.eventually(reported, f"the offsets of {group} are reported")
    broker.expect_error(found.error_code, ErrorCode.NONE, what=f"OffsetFetch: {what}")
    of_partition = only([*found.partitions.values()], "partition in the answer to OffsetFetch")
    broker.expect_equal(what, of_partition.offset, offset)


def await_offset(broker: Broker, group: str, topic: Topic, offset: int, what: str, *, within_s: float = 0.0) -> None:
    """Wait until OffsetFetch reports this offset, for instance after a failover.

    A new coordinator loads only the records below its high watermark, which may lag behind the acknowledged ones (REP-12). So
    at first it may report an earlier offset, or none.
    """

    def reported() -> bool:
        with suppress(Misbehaved):
            found = committed(broker, group, [(topic, 0)])
            return found.error_code == ErrorCode.NONE and [one.offset for one in found.partitions.values()] == [offset]
        return False

    broker.eventually(reported, f"{what} is reported: {offset}", within_s=within_s)
    broker.saw(f"{what} is reported: {offset}")


def delete_offsets(
    broker: Broker, group: str, partitions: Collection[TopicPartition]
) -> tuple[int, dict[TopicPartition, int]]:
    """Send OffsetDelete, and return the error codes of the request and of the partitions."""
    table = OffsetDeleteRequest
    topics: dict[Topic, list[Any]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(table.OffsetDeleteRequestPartition(partition_index=partition))
    asked = [table.OffsetDeleteRequestTopic(name=topic.name, partitions=found) for topic, found in topics.items()]
    answer = broker.call(table(group_id=group, topics=asked), to=broker.coordinator(group))
    named = Names(topics, version=0)
    return answer.error_code, {
        (named.topic(topic), one.partition_index): one.error_code for topic in answer.topics for one in topic.partitions
    }


class Names:
    """The requested topics, by name or, where the version uses ids, by id."""

    def __init__(self, topics: Any, version: int) -> None:
        self.by_id = version >= TOPICS_BY_ID
        self.topics: dict[str | UUID, Topic] = {topic.id if self.by_id else topic.name: topic for topic in topics}

    def topic(self, reported: Any) -> Topic:
        """The topic of a response's entry. Errors: Failed for a topic that was not requested."""
        key = reported.topic_id if self.by_id else reported.name
        if key not in self.topics:
            raise Failed(f"an answer reports topic {key}, which was not asked for")
        return self.topics[key]
