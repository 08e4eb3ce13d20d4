"""One member of a classic group.

The broker does not decode the members' metadata or the leader's assignment. Both are opaque bytes, for any protocol
type (consumers, Connect's workers, or others).
Source: org.apache.kafka.coordinator.group.classic.ClassicGroupMember.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from reference.coordinator.group import Token
from reference.protocol.messages.describe_groups import DescribeGroupsResponse
from reference.protocol.messages.group_metadata_record import GroupMetadataValue
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

Protocols = list[tuple[str, bytes]]
"""The protocols (assignors) that a member supports, the most preferred first, with its metadata for each."""


@dataclass(slots=True)
class Client:
    """The client that sent a request."""

    id: str
    host: str


@dataclass(frozen=True, slots=True)
class Terms:
    """The fields of a JoinGroup that describe the member."""

    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int


@dataclass(slots=True)
class Member:
    """One member. Without an instance id it is dynamic: it loses its place when it leaves (KIP-345)."""

    id: str
    instance_id: str | None
    client: Client
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    joining: Token | None = None
    """The pending JoinGroup of the member, which waits for the generation."""
    syncing: Token | None = None
    """The pending SyncGroup of the member, which waits for the leader's assignment."""
    is_new: bool = False
    """Whether the member waits for its first generation. Then its session timeout does not apply (KAFKA-7610)."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the member has a pending request, so that it cannot send heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata_for(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Set[str]) -> str:
        """The member's most preferred protocol among those that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def terms(self) -> Terms:
        return Terms(self.protocols, self.session_timeout_ms, self.rebalance_timeout_ms)

    @terms.setter
    def terms(self, terms: Terms) -> None:
        self.protocols = terms.protocols
        self.session_timeout_ms = terms.session_timeout_ms
        self.rebalance_timeout_ms = terms.rebalance_timeout_ms

    def agrees_with(self, reported: Terms) -> bool:
        """Whether the terms in the log, which have the chosen protocol only, match the member's own."""
        timeouts_ms = reported.session_timeout_ms, reported.rebalance_timeout_ms
        return (
            timeouts_ms == (self.session_timeout_ms, self.rebalance_timeout_ms)
            and reported.protocols[0] in self.protocols
        )

    # ---- as others learn of it

    def joined(self, protocol: str | None) -> JoinGroupResponse.JoinGroupResponseMember:
        """The member as the JoinGroup response to the leader lists it."""
        return JoinGroupResponse.JoinGroupResponseMember(
            member_id=self.id, group_instance_id=self.instance_id, metadata=self.metadata_for(protocol)
        )

    def described(self, protocol: str | None) -> DescribeGroupsResponse.DescribedGroupMember:
        """The member as DescribeGroups reports it, with metadata only if a protocol is chosen (GAD-02)."""
        return DescribeGroupsResponse.DescribedGroupMember(
            member_id=self.id,
            group_instance_id=self.instance_id,
            client_id=self.client.id,
            client_host=self.client.host,
            member_metadata=self.metadata_for(protocol),
            member_assignment=self.assignment,
        )

    def recorded(self, protocol: str | None, assignment: bytes) -> GroupMetadataValue.MemberMetadata:
        """The member as the group's record stores it."""
        return GroupMetadataValue.MemberMetadata(
            member_id=self.id,
            group_instance_id=self.instance_id,
            client_id=self.client.id,
            client_host=self.client.host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata_for(protocol),
            assignment=assignment,
        )


def member_of(request: JoinGroupRequest, id: str, client: Client, token: Token) -> Member:
    """A new member, which waits for its first generation."""
    terms = terms_of(request)
    return Member(
        id=id,
        instance_id=request.group_instance_id,
        client=client,
        session_timeout_ms=terms.session_timeout_ms,
        rebalance_timeout_ms=terms.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=terms.protocols,
        joining=token,
        is_new=True,
    )


def replayed(each: GroupMetadataValue.MemberMetadata, value: GroupMetadataValue) -> Member:
    """A member replayed from the log, with the chosen protocol only."""
    return Member(
        id=each.member_id,
        instance_id=each.group_instance_id,
        client=Client(each.client_id, each.client_host),
        session_timeout_ms=each.session_timeout,
        rebalance_timeout_ms=each.rebalance_timeout if each.rebalance_timeout >= 0 else each.session_timeout,
        protocol_type=value.protocol_type,
        protocols=[(value.protocol or "", bytes(each.subscription))],
    )


def terms_of(request: JoinGroupRequest) -> Terms:
    """The request's terms, with the metadata copied out of the receive buffer. A negative rebalance timeout becomes 0
    (GRP-18)."""
    return Terms(
        [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols],
        request.session_timeout_ms,
        max(request.rebalance_timeout_ms, 0),
    )
