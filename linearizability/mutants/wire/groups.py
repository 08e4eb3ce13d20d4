"""Lies of group coordinators: classic groups, offsets, KIP-848 groups, and their administration."""

from __future__ import annotations

from typing import Any

from linearizability.mutants.wire.proxy import Exchange
from linearizability.mutants.wire.rewriting import (
    Change,
    Lie,
    asks,
    both,
    doubled,
    errors,
    first_missing,
    last_missing,
    lists,
    put,
    replied,
    shared,
    turned,
    when,
)
from reference.protocol.errors import ErrorCode as E
from reference.protocol.messages.leave_group import LeaveGroupResponse
from reference.protocol.messages.offset_commit import OffsetCommitResponse

JOIN, SYNC, BEAT, LEAVE, COMMIT, OFFSETS, DELETE, TXN = (
    "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch", "OffsetDelete", "TxnOffsetCommit",
)  # fmt: skip
CONSUMER, DESCRIBE, LIST, REMOVE, REPORT = (
    "ConsumerGroupHeartbeat", "DescribeGroups", "ListGroups", "DeleteGroups", "ConsumerGroupDescribe",
)  # fmt: skip
REPORTED = ("topics.partitions.", "groups.topics.partitions.")


def reported(name: str, change: Any) -> Change:
    """Change a field of OffsetFetch's partitions, in the layout of every version."""
    return both(*(put(path + name, change) for path in REPORTED))


def committed(exchange: Exchange, message: Any) -> OffsetCommitResponse:
    """A response that reports all offsets of the request as committed."""
    topic, partition = (
        OffsetCommitResponse.OffsetCommitResponseTopic,
        OffsetCommitResponse.OffsetCommitResponsePartition,
    )
    return OffsetCommitResponse(
        topics=[
            topic(
                name=t.name,
                topic_id=t.topic_id,
                partitions=[partition(partition_index=p.partition_index) for p in t.partitions],
            )
            for t in message.topics
        ]
    )


def left(exchange: Exchange, message: Any) -> LeaveGroupResponse:
    """A response that reports all members of the request as removed."""
    member = LeaveGroupResponse.MemberResponse
    return LeaveGroupResponse(
        members=[member(member_id=m.member_id, group_instance_id=m.group_instance_id) for m in message.members]
    )


def exchanged(exchange: Exchange, message: Any) -> None:
    """Exchange the topics, with their offsets, between the groups of a response."""
    topics = [group.topics for group in message.groups]
    for group, others in zip(message.groups, reversed(topics), strict=True):
        group.topics = others


def of_group(names: str, value: Any) -> Change:
    """Set a field, by its path, in each described group."""
    return put(f"groups.{names}", value)


def assigned(exchange: Exchange, message: Any) -> bool:
    """Whether a heartbeat response has an assignment and no error."""
    return message.assignment is not None and message.error_code == 0


# fmt: off
LIES = [
    Lie("empty-group-joined", JOIN, "the empty group id is UNKNOWN_MEMBER_ID", "GRP-01", answer=errors(E.INVALID_GROUP_ID, E.UNKNOWN_MEMBER_ID)),
    Lie("empty-group-beats", BEAT, "a heartbeat to the empty group id bears no error", "GRP-01", answer=errors(E.INVALID_GROUP_ID, 0)),
    Lie("session-timeout-unchecked", JOIN, "a session timeout out of bounds bears no error", "GRP-02", answer=errors(E.INVALID_SESSION_TIMEOUT, 0)),
    Lie("joined-at-once", JOIN, "MEMBER_ID_REQUIRED is reported as no error", "GRP-03", answer=errors(E.MEMBER_ID_REQUIRED, 0)),
    Lie("required-id-not-given", JOIN, "MEMBER_ID_REQUIRED comes without an id", "GRP-03", answer=asks(lambda r: not r.member_id, put("member_id", "", where=lambda m: m.error_code == E.MEMBER_ID_REQUIRED))),
    Lie("unknown-member-joins", JOIN, "UNKNOWN_MEMBER_ID is reported as no error", "GRP-04 GRP-29", answer=errors(E.UNKNOWN_MEMBER_ID, 0)),
    Lie("unknown-member-fenced", JOIN, "UNKNOWN_MEMBER_ID is reported as ILLEGAL_GENERATION", "GRP-04", answer=errors(E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION)),
    Lie("inconsistent-protocol-joins", JOIN, "INCONSISTENT_GROUP_PROTOCOL is reported as no error", "GRP-05", answer=errors(E.INCONSISTENT_GROUP_PROTOCOL, 0)),
    Lie("leader-reported-itself-only", JOIN, "the leader receives one member", "GRP-06 GRP-32", answer=last_missing("members")),
    Lie("leader-reported-member-twice", JOIN, "the leader receives the first member twice", "GRP-06 GRP-32", answer=doubled("members")),
    Lie("members-without-metadata", JOIN, "the leader receives members without metadata", "GRP-06 GRP-28 GRP-30", answer=put("members.metadata", b"")),
    Lie("members-with-metadata-turned", JOIN, "bytes of metadata come in the reverse order", "GRP-28 GRP-06 GRP-30", answer=put("members.metadata", lambda data: bytes(data)[::-1])),
    Lie("all-members-lead", JOIN, "every member learns that it leads", "GRP-06", answer=lambda x, m: setattr(m, "leader", m.member_id) if m.error_code == 0 else None),
    Lie("no-member-leads", JOIN, "the leader is another member", "GRP-06", answer=put("leader", "somebody", where=lambda m: m.error_code == 0)),
    Lie("protocol-of-last-choice", JOIN, "another protocol than the group's is reported", "GRP-07", answer=asks(lambda r: len(r.protocols) > 1, lambda x, m: setattr(m, "protocol_name", next(p.name for p in x.request.protocols if p.name != m.protocol_name)) if m.error_code == 0 else None)),
    Lie("protocol-name-missing", JOIN, "no protocol is reported", "GRP-07 GRP-05 GRP-06", answer=put("protocol_name", "", where=lambda m: m.error_code == 0)),
    Lie("generation-plus-one", JOIN, "the generation is reported one too high", "GRP-08", answer=put("generation_id", lambda g: g + 1 if g > 0 else g)),
    Lie("generation-always-1", JOIN, "the generation is reported as 1 always", "GRP-08 GRP-31", answer=put("generation_id", lambda g: 1 if g > 0 else g)),
    Lie("instance-id-not-reported", JOIN, "the leader receives static members without their instance id", "GRP-20", answer=put("members.group_instance_id", None), versions="5+"),
    Lie("assignment-turned", SYNC, "bytes of assignments come in the reverse order", "GRP-10 GRP-28", answer=put("assignment", lambda data: bytes(data)[::-1])),
    Lie("assignment-missing", SYNC, "assignments are empty", "GRP-10 GRP-28 GRP-11", answer=put("assignment", b"")),
    Lie("sync-generation-unchecked", SYNC, "ILLEGAL_GENERATION is reported as no error", "GRP-12 GRP-29", answer=errors(E.ILLEGAL_GENERATION, 0)),
    Lie("sync-unknown-member", SYNC, "UNKNOWN_MEMBER_ID is reported as no error", "GRP-12 GRP-29 GRP-04 GRP-21", answer=errors(E.UNKNOWN_MEMBER_ID, 0)),
    Lie("sync-protocol-unchecked", SYNC, "INCONSISTENT_GROUP_PROTOCOL is reported as no error", "GRP-13", answer=errors(E.INCONSISTENT_GROUP_PROTOCOL, 0), versions="5+"),
    Lie("sync-in-rebalance", SYNC, "REBALANCE_IN_PROGRESS is reported as no error", "GRP-15", answer=errors(E.REBALANCE_IN_PROGRESS, 0)),
    Lie("sync-in-rebalance-fenced", SYNC, "REBALANCE_IN_PROGRESS is reported as ILLEGAL_GENERATION", "GRP-15", answer=errors(E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION)),
    Lie("heartbeats-always-fine", BEAT, "no heartbeat bears an error", "GRP-04 GRP-12 GRP-14 GRP-16 GRP-17 GRP-21", answer=put("error_code", 0)),
    Lie("heartbeat-hides-rebalance", BEAT, "REBALANCE_IN_PROGRESS is reported as no error", "GRP-14 GRP-16", answer=errors(E.REBALANCE_IN_PROGRESS, 0)),
    Lie("heartbeat-fences-in-rebalance", BEAT, "REBALANCE_IN_PROGRESS is reported as ILLEGAL_GENERATION", "GRP-14", answer=errors(E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION)),
    Lie("heartbeat-always-rebalances", BEAT, "no error is reported as REBALANCE_IN_PROGRESS", "GRP-14 GRP-16", answer=errors(0, E.REBALANCE_IN_PROGRESS)),
    Lie("heartbeat-generation-unknown-member", BEAT, "ILLEGAL_GENERATION is reported as UNKNOWN_MEMBER_ID", "GRP-12", answer=errors(E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID)),
    Lie("replaced-static-member-unfenced", BEAT, "FENCED_INSTANCE_ID is reported as no error", "GRP-21", answer=errors(E.FENCED_INSTANCE_ID, 0)),
    Lie("replaced-static-member-unknown", BEAT, "FENCED_INSTANCE_ID is reported as UNKNOWN_MEMBER_ID", "GRP-21", answer=errors(E.FENCED_INSTANCE_ID, E.UNKNOWN_MEMBER_ID)),
    Lie("static-member-unfenced-in-sync", SYNC, "FENCED_INSTANCE_ID is reported as no error", "GRP-21 GRP-42", answer=errors(E.FENCED_INSTANCE_ID, 0)),
    Lie("leave-not-done", LEAVE, "who leaves stays", "GRP-19 GRP-33", ask=replied(left)),
    Lie("leave-unknown-unnoticed", LEAVE, "an unknown member leaves without an error", "GRP-19 GRP-39", answer=errors(E.UNKNOWN_MEMBER_ID, 0)),
    Lie("leave-answers-missing", LEAVE, "the last of several members has no result", "GRP-19", answer=last_missing("members"), versions="3+"),
    Lie("group-full-unnoticed", JOIN, "GROUP_MAX_SIZE_REACHED is reported as UNKNOWN_MEMBER_ID", "GRP-22", answer=errors(E.GROUP_MAX_SIZE_REACHED, E.UNKNOWN_MEMBER_ID)),
    Lie("skip-assignment-not-reported", JOIN, "a static leader is not asked to skip the assignment", "GRP-40", answer=put("skip_assignment", False), versions="9+"),

    Lie("offset-plus-one", OFFSETS, "a committed offset is reported one too high", "OFF-01 OFF-12", answer=reported("committed_offset", lambda offset: offset + 1 if offset >= 0 else offset)),
    Lie("offset-metadata-missing", OFFSETS, "metadata of offsets are not reported", "OFF-01", answer=reported("metadata", "")),
    Lie("offset-epoch-missing", OFFSETS, "leader epochs of offsets are not reported", "OFF-01", answer=reported("committed_leader_epoch", -1), versions="5+"),
    Lie("no-offset-is-0", OFFSETS, "where nothing is committed the offset is 0", "OFF-02 GAD-04 OFF-16", answer=reported("committed_offset", {-1: 0})),
    Lie("no-offset-is-unknown", OFFSETS, "where nothing is committed the partition is unknown", "OFF-02", answer=both(*(put(path + "error_code", E.UNKNOWN_TOPIC_OR_PARTITION, where=lambda p: p.committed_offset < 0) for path in REPORTED))),
    Lie("no-offset-metadata-null", OFFSETS, "where nothing is committed the metadata are null", "", answer=reported("metadata", lambda text: text or None), unseen="null and the empty text are both no metadata (Java's OffsetAndMetadata makes one of the other)"),
    Lie("all-offsets-are-none", OFFSETS, "no list of topics asks for none", "OFF-10 OFF-11", ask=both(put("topics", lambda topics: topics or []), put("groups.topics", lambda topics: topics or [])), versions="2+"),
    Lie("offsets-of-partition-missing", OFFSETS, "the last of several partitions is not reported", "OFF-22 OFF-10 OFF-01 OFF-02", answer=both(last_missing("topics.partitions"), last_missing("groups.topics.partitions"))),
    Lie("offsets-of-first-group", OFFSETS, "the last of several groups is not reported", "OFF-11", answer=last_missing("groups"), versions="8+"),
    Lie("offsets-of-groups-turned", OFFSETS, "groups are answered in the reverse order", "OFF-11", answer=exchanged, versions="8+"),
    Lie("unstable-unnoticed", OFFSETS, "require_stable is not looked at", "TXV-09", ask=put("require_stable", False), versions="7+"),
    Lie("always-stable-asked", OFFSETS, "require_stable is taken for set", "TXV-09 TXV-08", ask=put("require_stable", True), versions="7+"),
    Lie("stale-epoch-of-fetch", OFFSETS, "STALE_MEMBER_EPOCH is reported as UNKNOWN_MEMBER_ID", "CGH-14", answer=errors(E.STALE_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID)),
    Lie("commit-forgotten", COMMIT, "nothing is committed", "OFF-01 OFF-12", ask=replied(committed)),
    Lie("commit-of-unknown-topic", COMMIT, "an unknown topic or partition bears no error", "OFF-03 OFF-19", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, 0, E.UNKNOWN_TOPIC_ID, 0)),
    Lie("commit-error-for-all", COMMIT, "one partition's error is given for all", "OFF-03 OFF-04", answer=shared("topics.partitions")),
    Lie("commit-metadata-too-large", COMMIT, "OFFSET_METADATA_TOO_LARGE is reported as no error", "OFF-04", answer=errors(E.OFFSET_METADATA_TOO_LARGE, 0)),
    Lie("commit-without-metadata", COMMIT, "metadata are not kept", "OFF-01", ask=put("topics.partitions.committed_metadata", "")),
    Lie("commit-without-epoch", COMMIT, "leader epochs are not kept", "OFF-01", ask=put("topics.partitions.committed_leader_epoch", -1), versions="6+"),
    Lie("commit-generation-unchecked", COMMIT, "ILLEGAL_GENERATION is reported as no error", "OFF-08 GRP-12 OFF-07 OFF-25", answer=errors(E.ILLEGAL_GENERATION, 0)),
    Lie("commit-generation-unknown-member", COMMIT, "ILLEGAL_GENERATION is reported as UNKNOWN_MEMBER_ID", "OFF-08 GRP-12", answer=errors(E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID)),
    Lie("commit-membership-unchecked", COMMIT, "UNKNOWN_MEMBER_ID is reported as no error", "OFF-06 OFF-08 GRP-12 GRP-21 GRP-29", answer=errors(E.UNKNOWN_MEMBER_ID, 0)),
    Lie("commit-in-rebalance", COMMIT, "REBALANCE_IN_PROGRESS is reported as no error", "OFF-09", answer=errors(E.REBALANCE_IN_PROGRESS, 0)),
    Lie("commit-to-no-group", COMMIT, "GROUP_ID_NOT_FOUND is reported as ILLEGAL_GENERATION", "", unseen="both fail the commit for good, and Java reports them alike: OFF-07 tolerates it", answer=errors(E.GROUP_ID_NOT_FOUND, E.ILLEGAL_GENERATION), versions="9+"),
    Lie("commit-answers-missing", COMMIT, "the last of several topics is not answered", "OFF-03 OFF-22", answer=last_missing("topics")),
    Lie("commit-of-replaced-member", COMMIT, "FENCED_INSTANCE_ID is reported as no error", "OFF-08 GRP-21", answer=errors(E.FENCED_INSTANCE_ID, 0)),
    Lie("commit-with-stale-epoch", COMMIT, "STALE_MEMBER_EPOCH is reported as no error", "CGH-14 CGH-40", answer=errors(E.STALE_MEMBER_EPOCH, 0)),
    Lie("commit-answered-late", COMMIT, "a commit of old clients is kept for ever", "OFF-27", ask=put("retention_time_ms", -1), versions="2-4"),
    Lie("offset-deleted-of-subscribed", DELETE, "GROUP_SUBSCRIBED_TO_TOPIC is reported as no error", "OFF-14 CGH-21", answer=errors(E.GROUP_SUBSCRIBED_TO_TOPIC, 0)),
    Lie("offset-deleted-of-members", DELETE, "NON_EMPTY_GROUP is reported as no error", "OFF-14", answer=errors(E.NON_EMPTY_GROUP, 0)),
    Lie("offset-not-deleted", DELETE, "no offset is deleted", "OFF-14 OFF-28", ask=put("topics.partitions.partition_index", 4095), answer=put("topics.partitions.error_code", 0)),
    Lie("txn-commit-generation-unchecked", TXN, "ILLEGAL_GENERATION is reported as no error", "OFF-17 TXN-37", answer=errors(E.ILLEGAL_GENERATION, 0)),
    Lie("txn-commit-of-unknown-member", TXN, "UNKNOWN_MEMBER_ID is reported as no error", "OFF-17 TXN-37", answer=errors(E.UNKNOWN_MEMBER_ID, 0)),
    Lie("txn-commit-of-unknown-topic", TXN, "an unknown topic or partition bears no error", "TXN-38", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, 0)),

    Lie("blank-names-taken", CONSUMER, "INVALID_REQUEST is reported as no error", "CGH-01 CGH-02 CGH-03", answer=errors(E.INVALID_REQUEST, 0)),
    Lie("assignor-unchecked", CONSUMER, "any assignor is taken", "CGH-04", ask=put("server_assignor", lambda name: name if name in (None, "uniform", "range") else None)),
    Lie("assignor-error-other", CONSUMER, "UNSUPPORTED_ASSIGNOR is reported as INVALID_REQUEST", "CGH-04", answer=errors(E.UNSUPPORTED_ASSIGNOR, E.INVALID_REQUEST)),
    Lie("member-epoch-0", CONSUMER, "who joins receives the epoch 0", "CGH-05", answer=asks(lambda r: r.member_epoch == 0, put("member_epoch", 0))),
    Lie("member-id-not-reported", CONSUMER, "no member id is reported", "CGH-05", answer=put("member_id", None)),
    Lie("member-id-of-broker", CONSUMER, "the broker reports another member id than the client chose", "CGH-05", answer=put("member_id", lambda id: id and id + "x"), versions="1+"),
    Lie("interval-0", CONSUMER, "the heartbeat interval is 0", "CGH-05 CGH-31", answer=put("heartbeat_interval_ms", 0)),
    Lie("assignment-never-reported", CONSUMER, "no assignment is reported", "CGH-05 CGH-06 CGH-18", answer=put("assignment", None)),
    Lie("assignment-lacks-partition", CONSUMER, "an assignment lacks its last partition", "CGH-18 CGH-09 CGH-25", answer=when(assigned, lists("assignment.topic_partitions.partitions", lambda ps: ps[:-1]))),
    Lie("assignment-has-stranger", CONSUMER, "an assignment has a partition that there is not", "CGH-18 CGH-25 CGH-26", answer=when(assigned, lists("assignment.topic_partitions.partitions", lambda ps: [*ps, 999]))),
    Lie("assignment-twice", CONSUMER, "an assignment has its first partition twice", "CGH-18 CGH-25", answer=when(assigned, lists("assignment.topic_partitions.partitions", lambda ps: [ps[0], *ps]))),
    Lie("unknown-consumer-beats", CONSUMER, "UNKNOWN_MEMBER_ID is reported as no error", "CGH-07 CGH-10", answer=errors(E.UNKNOWN_MEMBER_ID, 0)),
    Lie("unknown-consumer-fenced", CONSUMER, "UNKNOWN_MEMBER_ID is reported as FENCED_MEMBER_EPOCH", "CGH-07 CGH-10 CGH-13", answer=errors(E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH)),
    Lie("no-group-is-unknown-member", CONSUMER, "GROUP_ID_NOT_FOUND is reported as UNKNOWN_MEMBER_ID", "CGH-07 CGH-36", answer=errors(E.GROUP_ID_NOT_FOUND, E.UNKNOWN_MEMBER_ID)),
    Lie("epoch-unfenced", CONSUMER, "FENCED_MEMBER_EPOCH is reported as no error", "CGH-08 CGH-22", answer=errors(E.FENCED_MEMBER_EPOCH, 0)),
    Lie("epoch-is-unknown-member", CONSUMER, "FENCED_MEMBER_EPOCH is reported as UNKNOWN_MEMBER_ID", "CGH-08", answer=errors(E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID)),
    Lie("leave-not-confirmed", CONSUMER, "who leaves receives another epoch", "CGH-42", answer=asks(lambda r: r.member_epoch == -1, put("member_epoch", 1))),
    Lie("static-leave-is-leave", CONSUMER, "who leaves for a while has left", "CGH-11 CGH-03 CGH-43", ask=put("member_epoch", {-2: -1})),
    Lie("instance-taken-over", CONSUMER, "UNRELEASED_INSTANCE_ID is reported as FENCED_INSTANCE_ID", "CGH-12", answer=errors(E.UNRELEASED_INSTANCE_ID, E.FENCED_INSTANCE_ID)),
    Lie("regex-unchecked", CONSUMER, "INVALID_REGULAR_EXPRESSION is reported as no error", "CGH-16", answer=errors(E.INVALID_REGULAR_EXPRESSION, 0)),
    Lie("regex-ignored", CONSUMER, "regular expressions are not looked at", "CGH-24 CGH-16", ask=put("subscribed_topic_regex", lambda text: text and "nothing-.*"), versions="1+"),
    Lie("consumer-group-full", CONSUMER, "GROUP_MAX_SIZE_REACHED is reported as UNKNOWN_SERVER_ERROR", "CGH-30 CGH-43", answer=errors(E.GROUP_MAX_SIZE_REACHED, E.UNKNOWN_SERVER_ERROR)),

    Lie("group-epoch-plus-one", REPORT, "the group epoch is one too high", "CGH-20", answer=of_group("group_epoch", lambda epoch: epoch + 1)),
    Lie("consumer-state-other", REPORT, "a stable group is reported as reconciling", "CGH-20", answer=of_group("group_state", {"Stable": "Reconciling"})),
    Lie("assignor-not-reported", REPORT, "no assignor is reported", "CGH-20", answer=of_group("assignor_name", "")),
    Lie("consumer-missing", REPORT, "the last of several members is not reported", "CGH-20 CGH-22", answer=last_missing("groups.members")),
    Lie("target-not-reported", REPORT, "members are to own nothing", "CGH-20", answer=put("groups.members.target_assignment.topic_partitions", [])),
    Lie("consumer-epoch-minus-one", REPORT, "member epochs are reported one too low", "CGH-20", answer=put("groups.members.member_epoch", lambda epoch: epoch - 1)),
    Lie("subscription-not-reported", REPORT, "no subscription is reported", "CGH-20", answer=put("groups.members.subscribed_topic_names", [])),
    Lie("classic-group-described", REPORT, "GROUP_ID_NOT_FOUND is reported as no error", "GAD-05", answer=errors(E.GROUP_ID_NOT_FOUND, 0)),

    Lie("dead-group-is-empty", DESCRIBE, "a group that does not exist is empty", "GAD-01 GAD-04 GAD-05", answer=of_group("group_state", {"Dead": "Empty"})),
    Lie("dead-group-without-error", DESCRIBE, "a group that does not exist bears no error", "GAD-01 GAD-05", answer=errors(E.GROUP_ID_NOT_FOUND, 0), versions="6+"),
    Lie("stable-is-preparing", DESCRIBE, "a stable group is reported as preparing", "GAD-02", answer=of_group("group_state", {"Stable": "PreparingRebalance"})),
    Lie("protocol-not-reported", DESCRIBE, "no protocol is reported", "GAD-02", answer=of_group("protocol_data", "")),
    Lie("member-not-reported", DESCRIBE, "the first member is not reported", "GAD-02 GAD-10", answer=first_missing("groups.members")),
    Lie("client-id-not-reported", DESCRIBE, "no client id is reported", "GAD-02", answer=put("groups.members.client_id", "")),
    Lie("member-assignment-not-reported", DESCRIBE, "no assignment is reported", "GAD-02", answer=put("groups.members.member_assignment", b"")),
    Lie("instance-not-described", DESCRIBE, "no instance id is reported", "GAD-10", answer=put("groups.members.group_instance_id", None), versions="4+"),
    Lie("group-operations-reported", DESCRIBE, "the authorized operations are reported without being asked for", "GAD-08", answer=of_group("authorized_operations", 328), versions="3+"),
    Lie("groups-turned", DESCRIBE, "groups are described in the reverse order", "", answer=turned("groups"), unseen="clients look answers up by the group's id, and Kafka promises no order"),
    Lie("group-not-described", DESCRIBE, "the last of several groups is not described", "GAD-09 GAD-01", answer=last_missing("groups")),
    Lie("group-not-listed", LIST, "groups without members are not listed", "GAD-03 GAD-11", answer=lists("groups", lambda groups: [group for group in groups if group.protocol_type])),
    Lie("no-group-listed", LIST, "no group is listed", "GAD-03 GAD-11", answer=put("groups", [])),
    Lie("group-state-not-listed", LIST, "states are not listed", "GAD-03", answer=put("groups.group_state", ""), versions="4+"),
    Lie("group-type-classic", LIST, "every group is listed as classic", "GAD-03 GAD-11", answer=put("groups.group_type", "classic"), versions="5+"),
    Lie("states-filter-ignored", LIST, "groups of all states are listed", "GAD-03", ask=put("states_filter", []), versions="4+"),
    Lie("types-filter-ignored", LIST, "groups of all types are listed", "GAD-03", ask=put("types_filter", []), versions="5+"),
    Lie("group-with-members-deleted", REMOVE, "NON_EMPTY_GROUP is reported as no error", "GAD-04 GAD-07 GAD-11", answer=errors(E.NON_EMPTY_GROUP, 0)),
    Lie("unknown-group-deleted", REMOVE, "GROUP_ID_NOT_FOUND is reported as no error", "GAD-04", answer=errors(E.GROUP_ID_NOT_FOUND, 0)),
    Lie("group-not-deleted", REMOVE, "no group is deleted", "GAD-04 GAD-11 GAD-13", ask=put("groups_names", lambda names: [name + "-" for name in names]), answer=both(put("results.group_id", lambda name: name[:-1]), put("results.error_code", 0))),
    Lie("deletions-share-error", REMOVE, "one group's error is given for all", "GAD-04 GAD-07 GAD-13", answer=shared("results")),
]
# fmt: on

__all__ = ["LIES"]
