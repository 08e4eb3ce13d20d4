"""A classic group: its members, its generation, and the leader's assignment.

The *generation* is the set of members that have joined in one rebalance, and one assignment for them. The log
(`record`, `replay`) has the last generation whose assignment was written. Joins and syncs that are pending are only in
memory, and a new coordinator begins without them (GRP-24). `classic_groups` handles members that join and leave.

Source: requirements GRP-*; org.apache.kafka.coordinator.group.classic.ClassicGroup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reference.coordinator.classic_member import Member, Terms, replayed
from reference.coordinator.classic_state import TRANSITIONS, State
from reference.coordinator.consumer_protocol import CONSUMER, subscribed_topics
from reference.coordinator.group import CheckPartition, KeyValue
from reference.coordinator.group_records import group_record, group_tombstone
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.group_metadata_record import GroupMetadataValue
from reference.protocol.messages.join_group import JoinGroupResponse
from reference.protocol.primitives import NO_TIMESTAMP, GroupId, TimestampMs, TopicName

FIRST_GENERATION, LAST_GENERATION = 1, 2**31 - 1


class ClassicGroup:
    """One group. `members`, `static_members` and the counts of protocols are kept consistent."""

    type = "Classic"

    def __init__(self, id: GroupId) -> None:
        self.id = id
        self.state = State.EMPTY
        self.previous_state = State.EMPTY
        self.state_since = NO_TIMESTAMP
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        """The chosen protocol; None before the first generation, and in an empty group."""
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.pending_members: set[str] = set()
        """Member ids that were returned to clients, and with which no member has joined yet (KIP-394)."""
        self.pending_syncs: set[str] = set()
        """Members of the generation that have not sent SyncGroup yet (KIP-559)."""
        self.was_joined_since_delay = False
        """Whether a member joined during a first rebalance's delay: that delay, or else the next one, is extended (GRP-09)."""
        self._supporters: dict[str, int] = {}
        """The number of members that support each protocol."""
        self.subscribed: frozenset[TopicName] | None = None
        """The topics to which the generation's members subscribe, None where these are unknown. Found out when the generation
        begins, or the group is loaded: not when a static member returns with other topics, and no generation begins."""

    # ---- the state

    def move_to(self, state: State, now: TimestampMs) -> None:
        """Change the state. A transition that the table does not have is a bug of this coordinator."""
        assert state in TRANSITIONS[self.state], f"group {self.id}: from {self.state.value} to {state.value}"
        self.previous_state, self.state, self.state_since = self.state, state, now

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_first_rebalance(self) -> bool:
        """Whether this is the first rebalance of an empty group, which is delayed to wait for more members."""
        return self.state is State.PREPARING_REBALANCE and self.previous_state is State.EMPTY

    @property
    def have_all_joined(self) -> bool:
        return not self.pending_members and all(member.joining is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # ---- members

    def add(self, member: Member) -> None:
        """Add a member that supports one of the group's protocols; the first one becomes the leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.id
        self.pending_members.discard(member.id)
        self.members[member.id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.id
        self._count(member, +1)

    def remove(self, id: str) -> Member | None:
        """Remove a member, or a member id with which no member has joined; if it was the leader, the next member
        becomes the leader."""
        self.pending_members.discard(id)
        self.pending_syncs.discard(id)
        member = self.members.pop(id, None)
        if member is not None:
            self._count(member, -1)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader == id:
            self.leader = next(iter(self.members), None)
        return member

    def update(self, member: Member, terms: Terms) -> None:
        """Replace the member's protocols and timeouts."""
        self._count(member, -1)
        member.terms = terms
        self._count(member, +1)

    def rename(self, member: Member, id: str) -> None:
        """Give a static member another member id, which fences the old id (GRP-21)."""
        assert member.instance_id is not None, "only a static member is known by more than its member id"
        old = member.id
        self.members = {id if key == old else key: each for key, each in self.members.items()}
        self.static_members[member.instance_id] = id
        self.pending_syncs.discard(old)
        if self.leader == old:
            self.leader = id
        member.id = id

    def _count(self, member: Member, change: int) -> None:
        """Add `change` to the count of each protocol of the member, once also for a name that it lists twice. A known
        deviation: Apache Kafka 4.3.1 counts it twice, finds no common protocol in the group, and never answers the
        JoinGroup."""
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] = self._supporters.get(name, 0) + change
            if not self._supporters[name]:
                del self._supporters[name]

    def elect_joined_leader(self) -> bool:
        """Replace a leader that has not joined by a member that has; return False if no member has joined (GRP-06)."""
        if self.leader is not None and self.members[self.leader].joining is None:
            joined = next((member.id for member in self.members.values() if member.joining is not None), None)
            self.leader = joined or self.leader
            return joined is not None
        return self.leader is not None

    # ---- protocols

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member of that protocol type with these protocols can join (GRP-05).

        An empty group accepts any protocol type. A rebalancing group that has lost all members accepts any protocol of
        its type.
        """
        if self.is_empty:
            return bool(protocol_type) and any(True for _ in names)
        known_to_all = any(self._supporters.get(name, 0) == len(self.members) for name in names)
        return protocol_type == self.protocol_type and known_to_all

    def _common_protocols(self) -> set[str]:
        return {name for name, supporters in self._supporters.items() if supporters == len(self.members)}

    @property
    def has_common_protocol(self) -> bool:
        return bool(self._common_protocols())

    def select_protocol(self) -> str:
        """The protocol with the most votes; each member votes for its most preferred protocol that all members support
        (GRP-07)."""
        common = self._common_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    # ---- generations

    @property
    def _next_generation(self) -> int:
        """The generation plus one (GRP-08); after the last one that a record can hold, the first again."""
        return self.generation + 1 if self.generation < LAST_GENERATION else FIRST_GENERATION

    def begin_generation(self, now: TimestampMs) -> None:
        """Form the next generation from the present members; it then waits for its assignment (GRP-08)."""
        self.generation = self._next_generation
        self.protocol = self.select_protocol()
        self.subscribed = self._compute_subscribed()
        self.pending_syncs = {*self.members}
        self.move_to(State.COMPLETING_REBALANCE, now)

    def joined(self, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """The JoinGroup response to one member; the leader's also lists all members and their metadata (GRP-06)."""
        is_leader = member.id == self.leader
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            skip_assignment=skip_assignment,
            member_id=member.id,
            members=[each.joined(self.protocol) for each in self.members.values()] if is_leader else [],
        )

    # ---- the log

    def record(self, assignments: Mapping[str, bytes]) -> KeyValue:
        """The record of the generation, with an assignment for each member; it is empty for members without one (GRP-10)."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_since,
            members=[each.recorded(self.protocol, assignments.get(each.id, b"")) for each in self.members.values()],
        )
        return group_record(self.id, value)

    def empty_record(self, now: TimestampMs) -> KeyValue:
        """The record of the next generation, which has no members."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self._next_generation,
            protocol=None,
            leader=None,
            current_state_timestamp=now,
        )
        return group_record(self.id, value)

    def assignments(self) -> dict[str, bytes]:
        return {member.id: member.assignment for member in self.members.values()}

    def replay(self, value: GroupMetadataValue) -> None:
        """Replay a record of the group, which this coordinator or an earlier one has written."""
        reported = {each.member_id for each in value.members}
        for gone in [id for id in self.members if id not in reported]:
            self.remove(gone)
        self.protocol_type = value.protocol_type or None
        for each in value.members:
            self._learn(replayed(each, value))
            self.members[each.member_id].assignment = bytes(each.assignment)
        self.generation = value.generation
        self.protocol = value.protocol
        self.leader = value.leader if value.leader in self.members else next(iter(self.members), None)
        self.subscribed = self._compute_subscribed()
        state = State.STABLE if value.members else State.EMPTY
        if state is not self.state:
            self.previous_state, self.state = self.state, state
        self.state_since = value.current_state_timestamp

    def _learn(self, reported: Member) -> None:
        """Replay a record's member: add a new one, or update a known one whose record differs from it."""
        known = self.members.get(reported.id)
        if known is None:
            self.add(reported)
        elif not known.agrees_with(reported.terms):
            self.update(known, reported.terms)

    def tombstones(self) -> list[KeyValue]:
        return [group_tombstone(self.id)]

    # ---- fencing

    def check_member(self, id: str, instance_id: str | None) -> Member:
        """The member of that id.

        Errors: KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID where another member bears the instance id (GRP-21).
        """
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_generation(self, generation: int) -> None:
        """Errors: KafkaError ILLEGAL_GENERATION."""
        if generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    # ---- offsets and administration

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, version: int, transactional: bool
    ) -> CheckPartition | None:
        """Whether that member may commit now (OFF-05 to OFF-09, OFF-17).

        Errors: KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
        if generation < 0 and self.is_empty:
            return None
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            self.check_generation(generation)
        elif not transactional and not self.is_empty:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is State.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """A fetch of a classic group's offsets is never refused."""

    def check_offset_delete(self) -> None:
        """Errors: KafkaError NON_EMPTY_GROUP: the topics of members that are no consumers are unknown (OFF-14)."""
        if not self.is_empty and self.protocol_type != CONSUMER:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        """Errors: KafkaError NON_EMPTY_GROUP."""
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def expires_from(self, commit_timestamp: TimestampMs) -> TimestampMs | None:
        """When the retention of an offset begins: in an empty group when it became empty, and without a group at the
        commit. In a stable group of consumers it begins at the commit, for topics without a subscriber (KIP-211,
        OFF-15). Otherwise None."""
        if self.protocol_type is None:
            return commit_timestamp
        if self.is_empty:
            return self.state_since if self.state_since != NO_TIMESTAMP else commit_timestamp
        if self.protocol_type == CONSUMER and self.subscribed is not None and self.state is State.STABLE:
            return commit_timestamp
        return None

    def is_subscribed_to(self, topic: TopicName) -> bool:
        """Whether members consume the topic; True also for a group of consumers whose subscriptions are unknown."""
        return topic in self.subscribed if self.subscribed is not None else self.protocol_type == CONSUMER

    def _compute_subscribed(self) -> frozenset[TopicName] | None:
        if self.protocol_type != CONSUMER:
            return None
        if not self.members:
            return frozenset()
        metadata: Sequence[bytes] = [member.metadata_for(self.protocol) for member in self.members.values()]
        return None if self.protocol is None else subscribed_topics(metadata)
