"""Whatever members do, and whenever the coordinator crashes: a group's promises hold (GRP-06, 08, 10, 23; OFF-13).

Members are well-behaved or not: they join, sync, stall, lie about generations, leave, commit, run transactions; time
passes; nothing can be written for a while; the shard crashes at any point and is replayed from its log.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reference.coordinator.classic_group import ClassicGroup
from reference.coordinator.classic_state import State
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.join_group import JoinGroupResponse
from reference.protocol.messages.sync_group import SyncGroupResponse
from tests.coordinator.group_room import Room

PRODUCER = (7, 0)
RETRIABLE = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.ILLEGAL_GENERATION,
}
"""After these a member joins again as who it was; after others as a new member."""


@dataclass
class Person:
    """A member as it sees itself."""

    name: str
    instance: str | None
    id: str = ""
    generation: int = -1
    is_leader: bool = False
    others: list[str] = field(default_factory=list)
    sent: dict[str, bytes] | None = None
    """What it last assigned as a leader."""
    waiting: str | None = None
    """The token of what it waits for."""


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.room = Room(initial_rebalance_delay_ms=50)
        self.people = [Person(f"p{number}", "i" if number == 0 else None) for number in range(4)]
        self.tokens = 0
        self.leaders: dict[tuple[int, int], str] = {}
        """Who leads a generation, by the coordinator's incarnation and the generation's number."""
        self.given: dict[tuple[int, int], dict[str, bytes]] = {}
        """What a generation's leader sent for each member."""
        self.written: dict[int, dict[str, bytes]] = {}
        """The assignment that was acknowledged for a generation."""
        self.incarnation = 0
        self.acknowledged: int | None = None
        """The last commit that was acknowledged."""
        self.pending: list[tuple[int, int]] = []
        self.last_generation = 0

    def _token(self) -> str:
        self.tokens += 1
        return f"t{self.tokens}"

    # ---- what members do

    @rule(who=st.integers(0, 3), protocols=st.sampled_from([("range",), ("sticky", "range"), ("range", "sticky")]))
    def join(self, who: int, protocols: tuple[str, ...]) -> None:
        person = self.people[who]
        token = person.waiting = self._token()
        self.room.join(
            token, person.id, protocols=protocols, metadata=person.name.encode(), version=9, instance=person.instance
        )
        self.listen()

    @rule(who=st.integers(0, 3), share=st.integers(0, 255), left_out=st.booleans())
    def sync(self, who: int, share: int, left_out: bool) -> None:
        person = self.people[who]
        if person.waiting is not None or not person.id:
            return
        assignments: dict[str, bytes] = {}
        if person.is_leader:
            members = person.others[: len(person.others) - left_out]
            assignments = {id: bytes([share, number]) for number, id in enumerate(members)}
            person.sent = assignments
        token = person.waiting = self._token()
        self.room.sync(token, person.id, person.generation, assignments, instance=person.instance)
        self.listen()

    @rule(share=st.integers(0, 255))
    def all_do_as_they_should(self, share: int) -> None:
        """Each member joins, and then syncs: what random steps alone come to too seldom."""
        for _ in range(2):
            for who in range(4):
                if self.people[who].waiting is None:
                    self.join(who, ("range",))
        self.time_passes(100)
        for who in (3, 2, 1, 0):
            self.sync(who, share, False)

    @rule()
    def the_static_member_restarts(self) -> None:
        """It has forgotten everything but its instance: a stable group that it is part of goes on as it is (GRP-20)."""
        person = self.people[0]
        group = self.room.shard.groups.get("g")
        is_known = isinstance(group, ClassicGroup) and "i" in group.static_members
        stands = is_known and group.state is State.STABLE and group.generation
        assignment = group.members[group.static_members["i"]].assignment if is_known else b""
        person.id, token = "", self._token()
        person.waiting = token
        self.room.join(token, "", protocols=("range",), metadata=b"p0", version=9, instance="i")
        if stands and group.protocol == "range" and self.room.refusal is None and group.state is State.STABLE:
            assert self.room.joined(token).generation_id == stands
            assert group.members[self.room.joined(token).member_id].assignment == assignment
        self.listen()
        if is_known:
            assert sum(member.instance_id == "i" for member in self.group.members.values()) == 1

    @rule(who=st.integers(0, 3), lie=st.integers(-1, 1))
    def heartbeat(self, who: int, lie: int) -> None:
        person = self.people[who]
        code = self.room.heartbeat(person.id, person.generation + lie, instance=person.instance)
        if code == ErrorCode.NONE:
            assert person.generation + lie == self.group.generation

    @rule(who=st.integers(0, 3))
    def leave(self, who: int) -> None:
        person = self.people[who]
        self.room.leave((person.id, person.instance))
        self.listen()
        self.people[who] = Person(person.name, person.instance)

    @rule(who=st.integers(0, 3), offset=st.integers(0, 1000), lie=st.integers(-1, 1))
    def commit(self, who: int, offset: int, lie: int) -> None:
        person = self.people[who]
        generation = person.generation + lie
        code = self.room.commit(offset, member=person.id, generation=generation, instance=person.instance)
        if code == ErrorCode.NONE:
            self.acknowledged = offset
            self.pending = []  # what is pending before it in the log does not overtake it
            if generation >= 0:
                assert generation == self.group.generation

    @rule(offset=st.integers(0, 1000))
    def commit_in_transaction(self, offset: int) -> None:
        if self.room.commit_in_transaction(offset, PRODUCER) == ErrorCode.NONE:
            self.pending = [(len(self.room.log), offset)]

    @rule(committed=st.booleans())
    def end_transaction(self, committed: bool) -> None:
        self.room.end_transaction(PRODUCER, committed=committed)
        if committed and self.pending:
            self.acknowledged = self.pending[-1][1]
        self.pending = []

    # ---- what happens

    @rule(ms=st.sampled_from([10, 100, 4000, 11_000, 25_000]))
    def time_passes(self, ms: int) -> None:
        self.room.advance(ms)
        self.listen()

    @rule()
    def crash(self) -> None:
        self.room.crash()
        self.incarnation += 1
        self.last_generation = 0
        self.listen()

    @precondition(lambda self: self.room.refusal is None)
    @rule()
    def disk_fills(self) -> None:
        self.room.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE

    @precondition(lambda self: self.room.refusal is not None)
    @rule()
    def disk_empties(self) -> None:
        self.room.refusal = None

    # ---- what members receive

    def listen(self) -> None:
        for person in sorted(self.people, key=lambda person: not person.is_leader):
            answer = self.room.answers.get(person.waiting) if person.waiting is not None else None
            if answer is None:
                continue
            person.waiting = None
            if isinstance(answer, JoinGroupResponse):
                self.receive_join(person, answer)
            else:
                assert isinstance(answer, SyncGroupResponse)
                self.receive_sync(person, answer)

    def receive_join(self, person: Person, answer: JoinGroupResponse) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            person.id = answer.member_id
        elif answer.error_code != ErrorCode.NONE:
            if answer.error_code not in RETRIABLE:
                person.id = ""
        else:
            person.id, person.generation = answer.member_id, answer.generation_id
            person.is_leader = answer.leader == answer.member_id and not answer.skip_assignment
            person.others = [member.member_id for member in answer.members]
            assert (not answer.members) == (answer.leader != answer.member_id), "only the leader sees the others"
            if person.is_leader:
                assert person.id in person.others
                leader = self.leaders.setdefault((self.incarnation, answer.generation_id), person.id)
                assert leader == person.id or person.instance is not None, "a generation has one leader"

    def receive_sync(self, person: Person, answer: SyncGroupResponse) -> None:
        if answer.error_code == ErrorCode.NONE:
            assignment = bytes(answer.assignment)
            if person.is_leader and person.sent is not None and person.generation not in self.written:
                self.given.setdefault((self.incarnation, person.generation), person.sent)
            given = self.given.get((self.incarnation, person.generation), self.written.get(person.generation))
            assert given is not None, "an assignment that was not made"
            if person.instance is None:
                assert assignment == given.get(person.id, b""), "exactly what the leader sent"
            self.written[person.generation] = given
        elif answer.error_code not in RETRIABLE:
            person.id = ""

    # ---- what always holds

    @property
    def group(self) -> ClassicGroup:
        return self.room.group

    @invariant()
    def a_static_member_is_there_once(self) -> None:
        group = self.room.shard.groups.get("g")
        members = group.members.values() if isinstance(group, ClassicGroup) else ()
        assert sum(bytes(member.metadata_for(name)) == b"p0" for member in members for name in ["range"]) <= 1

    @invariant()
    def acknowledged_commits_stand(self) -> None:
        if self.acknowledged is not None:
            assert self.room.committed() == self.acknowledged

    @invariant()
    def the_group_agrees_with_itself(self) -> None:
        group = self.room.shard.groups.get("g")
        if group is None:
            return
        assert isinstance(group, ClassicGroup)
        assert group.generation >= self.last_generation, "generations grow"
        self.last_generation = group.generation
        static = {member.instance_id: id for id, member in group.members.items() if member.is_static}
        assert static == group.static_members
        assert group.pending_syncs <= group.members.keys()
        assert group.leader in (group.members or {None})
        assert not group.pending_members & group.members.keys()
        if group.state is State.EMPTY:
            assert not group.members
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            assert group.members
            assert all(group.protocol in dict(member.protocols) for member in group.members.values())
            assert all(member.joining is None for member in group.members.values())
        if group.state is State.STABLE:
            assert all(member.syncing is None for member in group.members.values())

    @invariant()
    def no_request_waits_without_a_deadline(self) -> None:
        if any(
            member.joining or member.syncing
            for member in getattr(self.room.shard.groups.get("g"), "members", {}).values()
        ):
            assert self.room.shard.next_deadline() is not None


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestGroups = GroupMachine.TestCase
