"""Computes a classic group's assignment as its leader does (`linearizability.workload.assignment`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linearizability.client.group_member import decode_subscription
from linearizability.simulation.client import Key
from linearizability.workload.assignment import ASSIGNORS, COOPERATIVE
from linearizability.workload.assignment.subscription import Group, Member
from reference.protocol.messages.join_group import JoinGroupResponse


def shares(
    protocol: str, members: Sequence[JoinGroupResponse.JoinGroupResponseMember], partition_counts: Mapping[str, int]
) -> dict[str, list[Key]]:
    """Return the chosen assignor's partitions for each member."""
    subscribed = {each.member_id: _member(each) for each in members}
    return (ASSIGNORS | COOPERATIVE)[protocol](Group(subscribed, partition_counts))


def _member(said: JoinGroupResponse.JoinGroupResponseMember) -> Member:
    subscription = decode_subscription(bytes(said.metadata))
    return Member(
        topics=frozenset(subscription.topics),
        instance_id=said.group_instance_id,
        owned=frozenset((each.topic, index) for each in subscription.owned_partitions for index in each.partitions),
        generation=subscription.generation_id,
    )
