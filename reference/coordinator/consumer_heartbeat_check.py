"""Validation of a ConsumerGroupHeartbeat: its fields, and its epochs.

Source: GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid, GroupMetadataManager (CGH-01 to CGH-04,
CGH-08, CGH-12). The messages are reported to the client.
"""

from __future__ import annotations

from collections.abc import Sequence

from reference.coordinator.assignment import Assignment, MemberEpoch
from reference.coordinator.consumer_member import JOINING, LEAVING, LEAVING_STATIC, ConsumerMember
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

NO_TIMEOUT = -1
"""An unchanged rebalance timeout."""

BLANKS = "".join(map(chr, range(ord(" ") + 1)))
"""The characters that Java's trim removes; a name of these alone is empty."""

FIRST_VERSION_WITH_OWN_IDS = 1
"""The first version in which the member generates its own id."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Errors: KafkaError INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    needs_member_id = version >= FIRST_VERSION_WITH_OWN_IDS or epoch > JOINING or epoch == LEAVING
    named = [("MemberId", request.member_id)] if needs_member_id else []
    named += [("GroupId", request.group_id), ("InstanceId", request.instance_id), ("RackId", request.rack_id)]
    for name, text in named:
        _require(text is None or bool(text.strip(BLANKS)), f"{name} can't be empty.")
    if epoch == JOINING:
        _check_join(request)
    _require(epoch != LEAVING_STATIC or request.instance_id is not None, "InstanceId can't be null.")
    _require(epoch >= LEAVING_STATIC, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        known = ", ".join(assignors)
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {known}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    _require(request.rebalance_timeout_ms != NO_TIMEOUT, "RebalanceTimeoutMs must be provided in first request.")
    _require(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
    _require(
        has_subscription,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_epoch(member: ConsumerMember, received: MemberEpoch, owned: Assignment | None) -> None:
    """Check a heartbeat's epoch. The previous epoch is allowed if the last response was lost and no owned partition was
    revoked.

    Errors: KafkaError FENCED_MEMBER_EPOCH.
    """
    if received == JOINING:
        return
    repeats = received == member.previous_epoch and owned is not None and owned <= member.assigned.keys()
    if is_fenced_epoch(received, member.epoch, repeats):
        relation = "greater" if received > member.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {relation} member epoch ({received}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def is_fenced_epoch(received: MemberEpoch, known: MemberEpoch, repeats_previous: bool) -> bool:
    """Whether a member is fenced; `repeats_previous` means that it lost a response, and owns no revoked partition.

    post: _ or received <= known
    post: _ or received == known or repeats_previous
    post: not _ or received != known
    """
    return received > known or (received < known and not repeats_previous)


def check_released(existing: ConsumerMember, member_id: str, instance_id: str) -> None:
    """Check that an instance id is free for a new member: the last one must have left temporarily (CGH-12).

    Errors: KafkaError UNRELEASED_INSTANCE_ID.
    """
    if existing.epoch != LEAVING_STATIC:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id is "
            f"owned by {existing.id} member.",
        )


def check_instance(existing: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """The member of an instance id, if it has this member id.

    Errors: KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    if existing is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing.id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.id}.",
        )
    return existing
