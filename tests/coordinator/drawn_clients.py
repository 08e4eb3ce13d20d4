"""The clients of drawn groups, as `drawn_groups` remembers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from linearizability.client.group_member import ClassicMember, decode_assignment
from reference.coordinator.consumer_group import ConsumerGroup
from reference.coordinator.group import Group
from reference.protocol.codec import encode
from reference.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from reference.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from reference.protocol.messages.join_group import JoinGroupRequest
from reference.protocol.primitives import GroupId
from reference.protocol.schema import Message
from tests.coordinator.our_groups import Row

JOINS = 0


@dataclass
class Classic:
    """A client of the classic protocol and its state."""

    said: ClassicMember
    others: list[str] = field(default_factory=list[str])
    """The group's members, as its leader knows them."""
    owned: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    is_waiting: bool = False
    is_to_sync: bool = False


@dataclass
class Consumer:
    """A client of the consumer protocol and its state."""

    group: str
    instance: str | None
    id: str
    epoch: int = JOINS
    owned: set[tuple[UUID, int]] = field(default_factory=set[tuple[UUID, int]])


def part_of(topics: Mapping[str, int], at: int, of: int) -> bytes:
    """The assignment of the `at`-th of `of` members: its share of all partitions."""
    table = ConsumerProtocolAssignment.TopicPartition
    parts = [table(topic=name, partitions=[*range(at, count, of)]) for name, count in topics.items()]
    return b"\0\3" + encode(
        ConsumerProtocolAssignment(assigned_partitions=[part for part in parts if part.partitions]), 3
    )


def readable(assignment: bytes) -> list[tuple[str, int]]:
    """The partitions of an assignment; none of one that tests made unreadable."""
    return decode_assignment(assignment) if len(assignment) > 2 else []


def comes_back_to_full(groups: Mapping[GroupId, Group], request: Message, max_size: int) -> bool:
    """Whether a static member comes back, under another member id, into a consumer group without a free place: Kafka 4.3.1
    refuses it (KAFKA-20601)."""
    match request:
        case JoinGroupRequest(member_id=id, group_instance_id=instance_id):
            pass
        case ConsumerGroupHeartbeatRequest(member_id=id, instance_id=instance_id):
            pass
        case _:
            return False
    group = groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup) or id in group.members:
        return False
    return len(group.members) >= max_size and instance_id in group.static_members


def compacted(log: list[Row]) -> list[Row]:
    """The newest record of each key, in its place, and no tombstones; a log with transactions stays as it is."""
    if any(producer >= 0 for _, _, producer, _ in log):
        return log
    newest = {key: at for at, (key, _, _, _) in enumerate(log)}
    return [row for at, row in enumerate(log) if newest[row[0]] == at and row[1]]
