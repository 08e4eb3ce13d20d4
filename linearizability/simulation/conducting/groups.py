"""The conductor of groups: plays a score on the members of one consumer group (KIP-848) and its coordinator.

The members ask when they are told to. One heartbeat may be several steps of the specification (a member joins, the assignor
runs, the member is heard): the steps that the coordinator tells must be the score's, in its order. Which of the topic's
partitions the specification means by which name, is open until the coordinator has told enough to know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

from linearizability.simulation.conducting.shards import ShardConductor
from linearizability.simulation.coordinator_scores import GroupCue, GroupScore
from linearizability.simulation.prompting_groups import PromptedMember
from linearizability.simulation.schedule import GROUPS_TOPIC, Member
from linearizability.simulation.traffic import Message
from linearizability.simulation.world import MICROSECONDS_A_MS

if TYPE_CHECKING:
    from linearizability.simulation.life import Cluster

WITHIN_MS = {"LoseMember": 2_500}
"""How long a step may take; group.consumer.session.timeout.ms is 1,000 while a score is played."""
DEFAULT_WITHIN_MS = 100
IDLE_BEAT_MS = 200
"""While a member is to be lost, the others are heard of so often."""
FAREWELL_MS = 20
"""From one act of the members' farewell to the next."""


class Told(NamedTuple):
    """A step that the coordinator made."""

    action: str
    row: Mapping[str, Any]


class GroupConductor(ShardConductor[GroupCue]):
    """Plays one score on a group, whose members are prompted."""

    topic = GROUPS_TOPIC

    def __init__(self, cluster: Cluster, score: GroupScore, members: dict[str, PromptedMember]) -> None:
        super().__init__(cluster, score.cues, score.brokers)
        self._score = score
        self._members = members
        self._told: deque[Told] = deque()
        """Steps that have no cue yet."""
        self._joined: set[str] = set()
        self._left: dict[str, Any] = {}
        """What the last heartbeat has left each member with."""
        numbers = range(len(score.partitions))
        self._namings = [dict(zip(score.partitions, order, strict=True)) for order in permutations(numbers)]
        """What the specification's names of partitions may mean, as far as is known."""

    # ---- the beginning

    def start(self) -> None:
        """Everybody knows the coordinator, and nobody is a member: the specification's first state."""
        self._bring_shard(self._are_ready, self._call)

    def _are_ready(self) -> bool:
        return all(member.has_found_coordinator and member.is_ready for member in self._members.values())

    def _serves(self) -> bool:
        node = self._cluster.machine(self._places[0]).node
        return node is not None and bool(node.groups.coordination.loaded())

    # ---- cues

    def _bound_ms(self, cue: GroupCue) -> int:
        return WITHIN_MS.get(cue.action, DEFAULT_WITHIN_MS)

    def _act(self, cue: GroupCue) -> None:
        """What came with the step before needs nobody."""
        act = ACTS.get(cue.action)
        if act is not None and not self._told:
            act(self, cue)

    def _is_made(self, cue: GroupCue) -> bool:
        made = MADE.get(cue.action)
        if made is not None:
            return made(self, cue)
        return bool(self._told) and self._agrees(self._told[0], cue)

    def _agrees(self, told: Told, cue: GroupCue) -> bool:
        """Whether the coordinator's next step is the score's."""
        named = told.row["args"]
        if told.action != cue.action or named.get("member", cue.member) != cue.member:
            return False
        if cue.action == "Heartbeat":
            return named["epoch"] == cue.epoch and bool(self._meanings({cue.member: named["assigned"]}, cue))
        return cue.action != "UpdateTarget" or bool(self._meanings(named["target"], cue))

    def _meanings(self, told: Mapping[str, Iterable[str]], cue: GroupCue) -> list[dict[str, int]]:
        """The namings under which what the coordinator tells is what the score has."""
        wanted = cue.target if cue.action == "UpdateTarget" else {cue.member: cue.partitions}
        given = {member: {int(each.rpartition(":")[2]) for each in parts} for member, parts in told.items()}
        return [
            naming
            for naming in self._namings
            if all({naming[name] for name in names} == given.get(member, set()) for member, names in wanted.items())
        ]

    def _on_made(self, cue: GroupCue) -> None:
        if cue.action in MADE:
            return
        named = self._told.popleft().row["args"]
        if cue.action == "JoinGroup":
            self._joined.add(cue.member)
        elif cue.action in ("LeaveGroup", "LoseMember"):
            self._joined.discard(cue.member)
            self._members[cue.member].lose()
        elif cue.action == "Heartbeat":
            self._namings = self._meanings({cue.member: named["assigned"]}, cue)
        elif cue.action == "UpdateTarget":
            self._namings = self._meanings(named["target"], cue)

    # ---- acts

    def _beat_as(self, cue: GroupCue) -> None:
        self._members[cue.member].beat()

    def _leave_as(self, cue: GroupCue) -> None:
        self._members[cue.member].leave()

    def _beat_as_next(self, cue: GroupCue) -> None:
        """The assignor runs within a heartbeat: that of who is to be heard next."""
        later = (each for each in self._score.cues[self._place :] if each.action == "Heartbeat")
        member = next((each.member for each in later), None)
        if member is not None:
            self._members[member].beat()

    def _forget(self, cue: GroupCue) -> None:
        """Everybody but one member is heard of, and nothing else is to come of it."""
        if self._cue is not cue or self._told:
            return
        for name in sorted(self._joined - {cue.member}):
            self._members[name].beat_idly()
        self._world.after(IDLE_BEAT_MS * MICROSECONDS_A_MS, self._forget, cue)

    # ---- steps of members alone

    def _takes_or_loses(self, cue: GroupCue) -> bool:
        """Once an answer has come."""
        member = self._members[cue.member]
        if member.answer is None:
            return False
        if cue.action == "TakeAnswer":
            member.take()
        else:
            member.lose()
        return True

    def _lets_go(self, cue: GroupCue) -> bool:
        """Once it was fenced."""
        member = self._members[cue.member]
        if not member.was_fenced:
            return False
        member.let_go()
        return True

    # ---- what has happened

    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        """A step of the specification happens; an idle heartbeat is none."""
        if row.get("group") != self._score.group:
            return
        if action == "Heartbeat":
            named = row["args"]
            left = named["epoch"], named["assigned"], named["revoking"]
            before, self._left[named["member"]] = self._left.get(named["member"]), left
            if left == before and self._cue is not None and self._cue.action == "LoseMember":
                return
        self._told.append(Told(action, row))

    def holds(self, message: Message) -> bool:
        """Nothing passes between brokers that a step is made of."""
        return False

    # ---- the end

    def _on_leaving(self) -> None:
        """Whatever they were told they take; what they then own they commit, and leave."""
        self._have_all([PromptedMember.take, PromptedMember.commit, PromptedMember.leave, PromptedMember.finish])

    def _have_all(self, acts: Sequence[Callable[[PromptedMember], None]]) -> None:
        """Each act by all members, one after the other; then the group is left to somebody with a will of its own."""
        for member in self._members.values():
            acts[0](member)
        if len(acts) > 1:
            self._world.after(FAREWELL_MS * MICROSECONDS_A_MS, self._have_all, acts[1:])
        else:
            self._cluster.add_client(Member(protocol="consumer", group=self._score.group, misfortunes_percent=0))


ACTS: dict[str, Callable[[GroupConductor, GroupCue], None]] = {
    "JoinGroup": GroupConductor._beat_as,
    "Heartbeat": GroupConductor._beat_as,
    "LetGo": GroupConductor._beat_as,
    "LeaveGroup": GroupConductor._leave_as,
    "UpdateTarget": GroupConductor._beat_as_next,
    "LoseMember": GroupConductor._forget,
}
"""Steps that somebody has to do something for."""

MADE: dict[str, Callable[[GroupConductor, GroupCue], bool]] = {
    "TakeAnswer": GroupConductor._takes_or_loses,
    "LoseAnswer": GroupConductor._takes_or_loses,
    "LetGo": GroupConductor._lets_go,
}
"""Steps of members alone, which no coordinator tells of."""
