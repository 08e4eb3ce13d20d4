"""The state of a group's member, in the classic protocol and in the one of KIP-848, and its encoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from linearizability.client.requests import by_topic
from reference.protocol.codec import decode_from, encode
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from reference.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from reference.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from reference.protocol.messages.heartbeat import HeartbeatRequest
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from reference.protocol.messages.leave_group import LeaveGroupRequest
from reference.protocol.messages.sync_group import SyncGroupRequest
from reference.protocol.schema import Message

NO_MEMBER, NO_GENERATION = "", -1
CONSUMER = "consumer"
"""The protocol type of Kafka's own consumers."""
JOINING, LEAVING, LEAVING_FOR_A_WHILE = 0, -1, -2
"""Member epochs with a special meaning (KIP-848): to join, to leave, and to leave as a static member that comes back."""
SUBSCRIPTION_VERSION, ASSIGNMENT_VERSION = 2, 1
VERSION_BYTES = 2

Key = tuple[str, int]
Owned = tuple[UUID, int]
"""A partition by its topic's id."""


@dataclass(slots=True)
class ClassicMember:
    """One member of a classic group."""

    group: str
    protocols: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Assignor -> the member's metadata for it, the preferred one first."""
    id: str = NO_MEMBER
    instance_id: str | None = None
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 20_000
    protocol_type: str = CONSUMER
    generation: int = NO_GENERATION
    protocol: str | None = None
    """The assignor that the generation's members have in common."""

    def join(self) -> JoinGroupRequest:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[protocol(name=name, metadata=metadata) for name, metadata in self.protocols.items()],
        )

    def joined(self, answer: JoinGroupResponse) -> None:
        """Take over an answer's member id (KIP-394) or, without an error, also its generation and protocol."""
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.id = answer.member_id
        if answer.error_code == ErrorCode.NONE:
            self.generation, self.protocol = answer.generation_id, answer.protocol_name

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> SyncGroupRequest:
        """SyncGroup; a leader sends its assignments, by member id."""
        table = SyncGroupRequest.SyncGroupRequestAssignment
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignments=[table(member_id=id, assignment=data) for id, data in (assignments or {}).items()],
        )

    def heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.id, group_instance_id=self.instance_id
        )

    def identity(self) -> LeaveGroupRequest.MemberIdentity:
        """How LeaveGroup names this member."""
        return LeaveGroupRequest.MemberIdentity(member_id=self.id, group_instance_id=self.instance_id)

    def leave(self) -> LeaveGroupRequest:
        """LeaveGroup, from version 3 on, for this member alone."""
        return LeaveGroupRequest(group_id=self.group, members=[self.identity()])


# ---- what members of classic groups exchange through their coordinator, which forwards the bytes


def encode_subscription(
    topics: Sequence[str],
    owned: Iterable[Key] = (),
    *,
    generation: int = NO_GENERATION,
    version: int = SUBSCRIPTION_VERSION,
    user_data: bytes | None = None,
    apart: bool = True,
) -> bytes:
    """Encode a member's topics; from version 1 on its owned partitions, from 2 on the generation that assigned them."""
    parts = [
        ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=indexes)
        for name, indexes in by_topic(owned, apart)
    ]
    said = ConsumerProtocolSubscription(
        topics=[*topics], user_data=user_data, owned_partitions=parts, generation_id=generation
    )
    return _versioned(said, version)


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decode a member's subscription."""
    return decode_from(ConsumerProtocolSubscription, SUBSCRIPTION_VERSION, memoryview(metadata), VERSION_BYTES)[0]


def encode_assignment(keys: Iterable[Key]) -> bytes:
    """The member's assignment, as the leader encodes it."""
    parts = [
        ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=indexes)
        for name, indexes in by_topic(keys, apart=True)
    ]
    return _versioned(ConsumerProtocolAssignment(assigned_partitions=parts), ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> list[Key]:
    """Decode a member's assignment; empty where the leader left the member out."""
    if not data:
        return []
    said, _ = decode_from(ConsumerProtocolAssignment, ASSIGNMENT_VERSION, memoryview(data), VERSION_BYTES)
    return [(each.topic, index) for each in said.assigned_partitions for index in each.partitions]


def _versioned(message: Message, version: int) -> bytes:
    return version.to_bytes(VERSION_BYTES, "big") + encode(message, version)


# ---- partitions in the heartbeats of consumer groups


def owned_partitions(
    owned: Iterable[Owned], apart: bool = False
) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    """Partitions as a heartbeat reports them."""
    table = ConsumerGroupHeartbeatRequest.TopicPartitions
    return [table(topic_id=topic, partitions=indexes) for topic, indexes in by_topic(owned, apart)]


def assigned_partitions(answer: ConsumerGroupHeartbeatResponse) -> list[Owned]:
    """The partitions of an answer's assignment; none where it has none."""
    given = answer.assignment.topic_partitions if answer.assignment is not None else ()
    return [(each.topic_id, index) for each in given for index in each.partitions]
