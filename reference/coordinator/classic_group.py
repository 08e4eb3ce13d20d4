"""A classic consumer group: who its members are, which generation they form, and what its leader assigned.

The broker never looks into what members say of themselves or into what the leader assigns: both are bytes that pass
through. What it keeps is the *generation*: a set of members that all answered one call to rejoin, and one assignment for
them. The life of a group is the table `TRANSITIONS`:

- *Empty*: no members; only offsets may be kept.
- *PreparingRebalance*: the call is out; members rejoin (JoinGroup) until all have or the time is over.
- *CompletingRebalance*: the generation stands; all wait (SyncGroup) for the leader's assignment.
- *Stable*: everybody has its assignment and sends heartbeats.
- *Dead*: the group is gone.

Requests that must wait are kept as the caller's opaque `Token`s and answered through `answers`.
Source: requirements GRP-*; org.apache.kafka.coordinator.group.classic.ClassicGroup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from reference.protocol.errors import ErrorCode
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from reference.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from reference.protocol.primitives import GroupId, TimestampMs
from reference.protocol.schema import Message

Token = object
"""What the caller needs to answer a request; nothing here looks into it."""

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A member that waits for its first generation is not held to its session timeout (KAFKA-7610)."""

NO_GENERATION = -1


class State(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}
"""Where a group may go from each state."""


@dataclass(slots=True)
class Member:
    """One member; `protocols` are the assignors that it knows, the most wanted first, with its metadata for each."""

    id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: list[tuple[str, bytes]]
    deadline: TimestampMs
    assignment: bytes = b""
    joining: Token | None = None
    """Its JoinGroup that waits for the generation."""
    syncing: Token | None = None
    """Its SyncGroup that waits for the leader's assignment."""
    is_new: bool = True

    def metadata_for(self, protocol: str) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class ClassicGroup:
    """One group and its state. `answers` collects (token, response) until the caller takes them."""

    id: GroupId
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    pending_members: dict[str, TimestampMs] = field(default_factory=dict[str, TimestampMs])
    """Ids that were given out and not yet used (KIP-394), with the time at which each is forgotten."""
    rebalance_deadline: TimestampMs | None = None
    initial_delay_deadline: TimestampMs | None = None
    answers: list[tuple[Token, Message]] = field(default_factory=list[tuple[Token, Message]])
    changed: bool = False
    """The generation or its assignment changed and is not yet written to the log."""

    def move_to(self, state: State) -> None:
        """Go to another state; a move that the table does not have is a mistake of ours."""
        assert state in TRANSITIONS[self.state], f"group {self.id}: from {self.state.value} to {state.value}"
        self.state = state

    # ---- joining

    def supports(self, protocol_type: str, names: Sequence[str]) -> bool:
        """Whether a member of that type that knows these protocols can join (GRP-05)."""
        if not self.members:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and bool(self._common_protocols() & set(names))

    def _common_protocols(self) -> set[str]:
        members = [*self.members.values()]
        common = {name for member in members[:1] for name, _ in member.protocols}
        for member in members[1:]:
            common &= {name for name, _ in member.protocols}
        return common

    def add(self, member: Member, now: TimestampMs, initial_delay_ms: int) -> None:
        """A new member joins: the group is called to rejoin."""
        self.pending_members.pop(member.id, None)
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        if self.state is State.EMPTY or self.initial_delay_deadline is not None:
            self.initial_delay_deadline = now + initial_delay_ms
        self.prepare_rebalance(now)

    def rejoin(self, member: Member, protocols: list[tuple[str, bytes]], token: Token, now: TimestampMs) -> None:
        """A known member joins again (GRP-16): a follower that changed nothing gets the generation that stands."""
        same = member.protocols == protocols
        if self.state is State.STABLE and same and member.id != self.leader:
            self.answers.append((token, self.joined(member)))
            return
        if self.state is State.COMPLETING_REBALANCE and same:
            self.answers.append((token, self.joined(member)))
            return
        self.replace_join(member, token)
        member.protocols = protocols
        self.prepare_rebalance(now)

    def replace_join(self, member: Member, token: Token) -> None:
        if member.joining is not None:
            self.answers.append((member.joining, join_refused(member.id, ErrorCode.UNKNOWN_MEMBER_ID)))
        member.joining = token

    def prepare_rebalance(self, now: TimestampMs) -> None:
        """Call all members to rejoin; members that wait for an assignment are told so (GRP-15)."""
        if self.state is State.COMPLETING_REBALANCE:
            for member in self.members.values():
                member.assignment = b""
                self._answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        if self.state is not State.PREPARING_REBALANCE:
            self.move_to(State.PREPARING_REBALANCE)
            longest = max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
            self.rebalance_deadline = now + longest
        self.try_complete_join(now)

    def try_complete_join(self, now: TimestampMs) -> None:
        """End the call when everybody has rejoined and nobody more is awaited, or when its time is over."""
        if self.state is not State.PREPARING_REBALANCE:
            return
        late = self.rebalance_deadline is not None and now >= self.rebalance_deadline
        if self.initial_delay_deadline is not None and now < self.initial_delay_deadline and not late:
            return
        waiting = any(member.joining is None for member in self.members.values()) or self.pending_members
        if waiting and not late:
            return
        self._complete_join(now)

    def _complete_join(self, now: TimestampMs) -> None:
        for id in [member.id for member in self.members.values() if member.joining is None]:
            self._drop(id)
        self.rebalance_deadline = self.initial_delay_deadline = None
        self.generation += 1
        self.changed = True
        if not self.members:
            self.protocol = None
            self.move_to(State.EMPTY)
            return
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self.protocol = self._select_protocol()
        self.move_to(State.COMPLETING_REBALANCE)
        for member in self.members.values():
            token, member.joining, member.is_new = member.joining, None, False
            member.deadline = now + member.session_timeout_ms
            self.answers.append((token, self.joined(member)))

    def _select_protocol(self) -> str:
        """Each member votes for the first protocol of its list that all know; most votes win (GRP-07)."""
        common = self._common_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def joined(self, member: Member) -> JoinGroupResponse:
        """The generation as one member is told of it: the leader also gets what all say of themselves (GRP-06)."""
        protocol = self.protocol or ""
        members: list[JoinGroupResponse.JoinGroupResponseMember] = []
        if member.id == self.leader:
            members = [
                JoinGroupResponse.JoinGroupResponseMember(member_id=each.id, metadata=each.metadata_for(protocol))
                for each in self.members.values()
            ]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=protocol,
            leader=self.leader or "",
            member_id=member.id,
            members=members,
        )

    # ---- syncing

    def sync(self, member: Member, request: SyncGroupRequest, token: Token, now: TimestampMs) -> None:
        """A member asks for its assignment; the leader brings it (GRP-10, GRP-11, GRP-15)."""
        if self.state is State.PREPARING_REBALANCE:
            self.answers.append((token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)))
            return
        if self.state is State.STABLE:
            self.answers.append((token, self._synced(member)))
            return
        if member.syncing is not None:
            self._answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        member.syncing = token
        if member.id == self.leader:
            given = {each.member_id: bytes(each.assignment) for each in request.assignments}
            for each in self.members.values():
                each.assignment = given.get(each.id, b"")
            self.move_to(State.STABLE)
            self.changed = True
            for each in self.members.values():
                each.deadline = now + each.session_timeout_ms
                self._answer_sync(each, ErrorCode.NONE)

    def _answer_sync(self, member: Member, error: ErrorCode) -> None:
        if member.syncing is not None:
            response = self._synced(member) if error is ErrorCode.NONE else SyncGroupResponse(error_code=error)
            self.answers.append((member.syncing, response))
            member.syncing = None

    def _synced(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )

    # ---- living and leaving

    def touch(self, member: Member, now: TimestampMs) -> None:
        """The member was heard of."""
        member.deadline = now + member.session_timeout_ms

    def remove(self, id: str, now: TimestampMs) -> None:
        """A member leaves or is given up; the others are called to rejoin."""
        self._drop(id)
        if self.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare_rebalance(now)
        else:
            self.try_complete_join(now)

    def _drop(self, id: str) -> None:
        member = self.members.pop(id)
        if member.joining is not None:
            self.answers.append((member.joining, join_refused(id, ErrorCode.UNKNOWN_MEMBER_ID)))
        if member.syncing is not None:
            self.answers.append((member.syncing, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)))
        if self.leader == id:
            self.leader = next(iter(self.members), None)

    def tick(self, now: TimestampMs) -> None:
        """Give up members that were not heard of, forget ids that were not used, end a call whose time is over."""
        for id in [id for id, deadline in self.pending_members.items() if now >= deadline]:
            del self.pending_members[id]
        waiting_for_sync = self.state is State.COMPLETING_REBALANCE
        for member in [*self.members.values()]:
            alive = member.joining is not None or (waiting_for_sync and member.syncing is not None)
            if not alive and now >= member.deadline and member.id in self.members:
                self.remove(member.id, now)
        self.try_complete_join(now)

    def next_deadline(self) -> TimestampMs | None:
        """When `tick` has something to do next."""
        times = [*self.pending_members.values()]
        times += [
            member.deadline for member in self.members.values() if member.joining is None and member.syncing is None
        ]
        if self.state is State.PREPARING_REBALANCE:
            times += [time for time in (self.rebalance_deadline, self.initial_delay_deadline) if time is not None]
        return min(times, default=None)


def join_refused(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """The answer to a JoinGroup that is refused."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


def protocols_of(request: JoinGroupRequest) -> list[tuple[str, bytes]]:
    """The request's protocols with their metadata copied out of the receive buffer."""
    return [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]
