"""A consumer group (KIP-848): its members, their target assignments, and their present ones.

Three epochs order its changes. The *group epoch* grows with every change of members, subscriptions or topics. The
*assignment epoch* is the group epoch for which the target assignments were computed. A *member epoch* is the assignment
epoch that a member has reached. The group is

| state | when |
| --- | --- |
| Empty | it has no members |
| Assigning | the group epoch is above the assignment epoch: targets are to be computed |
| Reconciling | some member has not reached its target |
| Stable | every member has |
| Dead | it was removed |

The group changes only by the replay of records (`consumer_group_replay`).
Source: org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from reference.coordinator import consumer_group_records as records
from reference.coordinator.assignment import NOTHING, Assignment, MemberEpoch, TopicIdPartition
from reference.coordinator.consumer_group_records import ResolvedPattern
from reference.coordinator.consumer_member import ConsumerMember
from reference.coordinator.group import CheckPartition, KeyValue
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import LONG_AGO, GroupId, TimestampMs, TopicName

FIRST_EPOCH = 1
"""Group and assignment epoch of a group before its first member's subscription counts."""

NO_EPOCH = -1
"""Group and assignment epoch of a group after the tombstone of the record that has it."""

FIRST_COMMIT_VERSION = 9
"""The first version of OffsetCommit that names a member epoch."""


@dataclass(slots=True)
class ConsumerGroup:
    """One group; `holders` has the member of each partition that is owned or being revoked."""

    id: GroupId
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    """The hash of the subscribed topics, from when the epoch was last raised."""
    assignment_epoch: int = FIRST_EPOCH
    assigned_at: TimestampMs = LONG_AGO
    """When the targets were computed; 0 for never."""
    members: dict[str, ConsumerMember] = field(default_factory=dict[str, ConsumerMember])
    static_members: dict[str, str] = field(default_factory=dict[str, str])
    """Member ids by instance id."""
    targets: dict[str, Assignment] = field(default_factory=dict[str, Assignment])
    patterns: dict[str, ResolvedPattern] = field(default_factory=dict[str, ResolvedPattern])
    holders: dict[TopicIdPartition, str] = field(default_factory=dict[TopicIdPartition, str])
    pattern_users: dict[str, int] = field(default_factory=dict[str, int])
    """The number of members that subscribe by each pattern."""
    has_partition_metadata: bool = False
    """Whether the log has partition metadata of an older version, to be removed."""
    checked_at_epoch: int | None = None
    """The group epoch at the last comparison of its hash with the topics; None requires a comparison. It is not in the log."""

    type = "Consumer"
    protocol_type = "consumer"

    # ---- members

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        reconciled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return "Stable" if reconciled else "Reconciling"

    @property
    def needs_metadata_check(self) -> bool:
        """Whether the topics may have changed since the epoch was raised, or a raise was never written."""
        return self.checked_at_epoch is None or self.epoch < self.checked_at_epoch

    def is_free(self, partition: TopicIdPartition) -> bool:
        return partition not in self.holders

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        return self.members.get(self.static_members.get(instance_id, ""))

    def member(self, id: str) -> ConsumerMember:
        """Errors: KafkaError UNKNOWN_MEMBER_ID (CGH-07)."""
        if id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {id} is not a member of group {self.id}.")
        return self.members[id]

    def topics_of(self, member: ConsumerMember) -> frozenset[TopicName]:
        """A member's topics: its subscription by name, and the topics that its pattern matched."""
        resolved = self.patterns.get(member.regex) if member.regex else None
        return member.topics | resolved.topics if resolved is not None else member.topics

    def is_subscribed_to(self, topic: TopicName) -> bool:
        return any(topic in self.topics_of(member) for member in self.members.values())

    def preferred_assignor(self, members: Iterable[ConsumerMember]) -> str | None:
        """The assignor that most members name, among members that name one; None if none does."""
        votes: dict[str, int] = {}
        for member in members:
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        return max(votes, key=lambda name: votes[name], default=None)

    def tombstones(self) -> list[KeyValue]:
        """The records that remove the group."""
        gone = [record for id in self.members for record in records.member_tombstones(self.id, id)]
        gone += [records.pattern_tombstone(self.id, pattern) for pattern in self.patterns]
        return gone + records.group_tombstones(self.id)

    # ---- what offsets ask

    def expires_from(self, commit_timestamp: TimestampMs) -> TimestampMs | None:
        """Always the commit timestamp: offsets of topics without a subscriber expire from their commit on."""
        return commit_timestamp

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: MemberEpoch, version: int, transactional: bool
    ) -> CheckPartition | None:
        """Whether offsets may be committed. A returned function must also be called for each partition (CGH-14,
        KIP-1251).

        Errors: KafkaError UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH; for a member of the classic
        protocol ILLEGAL_GENERATION instead.
        """
        if generation < 0 and self.is_empty:
            return None
        if transactional and generation == -1 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and member.classic is None and version < FIRST_COMMIT_VERSION:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if generation == member.epoch:
            return None
        if generation > member.epoch:
            raise KafkaError(_stale(member), f"The epoch {generation} is newer than the member's, {member.epoch}.")
        return lambda topic, id, partition: _check_partition(member, generation, topic, (id, partition))

    def check_fetch(self, member_id: str | None, epoch: MemberEpoch) -> None:
        """Whether committed offsets may be read. Errors: as `check_commit`."""
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise KafkaError(_stale(member), f"The epoch {epoch} is not the member's, {member.epoch}.")

    def check_offset_delete(self) -> None:
        """Never raises: offsets of topics without a subscriber may always be deleted (GAD)."""

    def check_delete(self) -> None:
        """Errors: KafkaError NON_EMPTY_GROUP."""
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    # ---- changing, by replayed records only

    def take(self, member: ConsumerMember) -> None:
        """Add or replace a member: partitions that it no longer holds become free."""
        self._let_go(member.id)
        self.members[member.id] = member
        if member.regex:
            self.pattern_users[member.regex] = self.pattern_users.get(member.regex, 0) + 1
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.id
        self.holders.update(dict.fromkeys(member.held, member.id))

    def drop(self, id: str) -> None:
        """Remove a member, and free its partitions."""
        self._let_go(id)
        gone = self.members.pop(id, None)
        if gone is not None and gone.instance_id is not None and self.static_members.get(gone.instance_id) == id:
            del self.static_members[gone.instance_id]

    def _let_go(self, id: str) -> None:
        before = self.members.get(id)
        if before is None:
            return
        for partition in before.held:
            if self.holders.get(partition) == id:
                del self.holders[partition]
        if before.regex:
            self.pattern_users[before.regex] -= 1
            if not self.pattern_users[before.regex]:
                del self.pattern_users[before.regex]


def target_of(group: ConsumerGroup, member: ConsumerMember) -> Assignment:
    """A member's target. A static member has the target of its instance's last member, also if it was dynamic before."""
    id = member.id if member.instance_id is None else group.static_members.get(member.instance_id, "")
    return group.targets.get(id, NOTHING)


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _check_partition(member: ConsumerMember, epoch: MemberEpoch, topic: TopicName, partition: TopicIdPartition) -> None:
    """A member of an older epoch may commit for a partition that it has owned since then: no other member had it in between."""
    since = member.held.get(partition)
    if since is None or epoch < since:
        raise KafkaError(_stale(member), f"{topic}-{partition[1]} was not assigned to the member in epoch {epoch}.")
