"""One member of a consumer group (KIP-848), as a value: its subscription, and its partitions.

A changed member is another value; the group stores it when its record is replayed.
Source: org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from reference.coordinator.assignment import MemberEpoch, Owned, TopicIdPartition
from reference.protocol.primitives import TopicName

JOINING: MemberEpoch = 0
"""The epoch of a member that joins, or joins again."""

LEAVING: MemberEpoch = -1
"""The epoch of a member that leaves for good."""

LEAVING_STATIC: MemberEpoch = -2
"""The epoch of a static member that left and is expected back: its partitions stay reserved (CGH-11)."""


class MemberState(IntEnum):
    """A member's state of reconciliation, as its record stores it."""

    STABLE = 0
    """It has its whole target assignment."""
    UNREVOKED_PARTITIONS = 1
    """It has partitions to revoke, and has not confirmed their revocation."""
    UNRELEASED_PARTITIONS = 2
    """Its target has partitions that other members have not released."""
    UNKNOWN = 127
    """A state that a later version wrote: the member must join again."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        """The state that a record names."""
        return cls(number) if number in {state.value for state in cls} else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """The classic part of a member that uses the classic protocol: its session, and its assignors."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names and subscriptions, the most preferred first."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member: static where it names an instance, else dynamic."""

    id: str
    epoch: MemberEpoch = JOINING
    previous_epoch: MemberEpoch = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[TopicName] = frozenset()
    """Subscribed by name."""
    regex: str | None = ""
    """Subscribed by pattern (RE2); empty or null for none."""
    assignor: str | None = None
    """The server-side assignor that the member prefers."""
    assigned: Owned = field(default_factory=dict[TopicIdPartition, MemberEpoch])
    pending_revocation: Owned = field(default_factory=dict[TopicIdPartition, MemberEpoch])
    """Partitions that the member was asked to revoke and may still consume."""
    classic: ClassicMember | None = None
    """Set for a member that speaks the classic protocol."""

    @property
    def held(self) -> Mapping[TopicIdPartition, MemberEpoch]:
        """The partitions that no other member may own now."""
        return {**self.assigned, **self.pending_revocation}

    def is_reconciled_to(self, target_epoch: MemberEpoch) -> bool:
        """Whether the member has reached the target of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def moved_to(
        self, epoch: MemberEpoch, state: MemberState, assigned: Owned, pending_revocation: Owned
    ) -> ConsumerMember:
        """The member with another assignment, in `epoch`, which may be its present one."""
        return replace(
            self,
            epoch=epoch,
            previous_epoch=self.epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )
