"""What the members of a classic group exchange through their coordinator, which forwards the bytes: what each wants
and what it had, and what the leader's assignor gives it (`linearizability.workload.assignment`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from linearizability.simulation.client import Key
from linearizability.workload.assignment import ASSIGNORS, COOPERATIVE
from linearizability.workload.assignment.subscription import Group, Member
from reference.protocol.codec import decode_from, encode
from reference.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from reference.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from reference.protocol.messages.join_group import JoinGroupResponse

SUBSCRIPTION_VERSION, ASSIGNMENT_VERSION = 2, 1
VERSION_BYTES = 2


def shares(
    protocol: str, members: Sequence[JoinGroupResponse.JoinGroupResponseMember], partition_counts: Mapping[str, int]
) -> dict[str, list[Key]]:
    """What the chosen assignor gives each member, as the leader computes it."""
    subscribed = {each.member_id: _member(each) for each in members}
    return (ASSIGNORS | COOPERATIVE)[protocol](Group(subscribed, partition_counts))


def _member(said: JoinGroupResponse.JoinGroupResponseMember) -> Member:
    subscription, _ = decode_from(
        ConsumerProtocolSubscription, SUBSCRIPTION_VERSION, memoryview(bytes(said.metadata)), VERSION_BYTES
    )
    return Member(
        topics=frozenset(subscription.topics),
        instance_id=said.group_instance_id,
        owned=frozenset((each.topic, index) for each in subscription.owned_partitions for index in each.partitions),
        generation=subscription.generation_id,
    )


def encode_subscription(topics: Sequence[str], owned: Sequence[Key], generation: int) -> bytes:
    """What a member wants; what it had in the generation that it was last given partitions in."""
    parts = [ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=[index]) for name, index in owned]
    message = ConsumerProtocolSubscription(topics=[*topics], owned_partitions=parts, generation_id=generation)
    return _versioned(message, SUBSCRIPTION_VERSION)


def encode_assignment(keys: Sequence[Key]) -> bytes:
    parts = [ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=[index]) for name, index in keys]
    return _versioned(ConsumerProtocolAssignment(assigned_partitions=parts), ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> list[Key]:
    """What the leader gave; nothing where it left the member out."""
    if not data:
        return []
    said, _ = decode_from(ConsumerProtocolAssignment, ASSIGNMENT_VERSION, memoryview(data), VERSION_BYTES)
    return [(each.topic, index) for each in said.assigned_partitions for index in each.partitions]


def _versioned(message: Any, version: int) -> bytes:
    return version.to_bytes(VERSION_BYTES, "big") + encode(message, version)
