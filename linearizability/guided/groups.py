"""The driver of groups: takes the members of one consumer group (KIP-848) and its coordinator through a script.

A scripted member sends a heartbeat when the driver says so. One heartbeat may be several steps of the specification (the
member joins, the assignor runs, the heartbeat is answered): the coordinator must trace the script's steps in their order.
The traced assignments show which partition the specification means by which name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

from linearizability.guided.coordinators import CoordinatorDriver
from linearizability.guided.scripted_member import ScriptedMember
from linearizability.guided.scripts import GroupScript, GroupStep
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.schedule import GROUPS_TOPIC, Member
from linearizability.simulation.traffic import Message
from linearizability.simulation.world import MICROSECONDS_A_MS

WITHIN_MS = {"LoseMember": 2_500}
"""How long a step may take; group.consumer.session.timeout.ms is 1,000 in these schedules."""
DEFAULT_WITHIN_MS = 100
IDLE_HEARTBEAT_MS = 200
"""How often the other members send heartbeats while one member's session expires."""
BETWEEN_LAST_ACTS_MS = 20
"""Pause between the members' last acts."""


class TracedStep(NamedTuple):
    """An action that the coordinator has traced."""

    action: str
    row: Mapping[str, Any]


class GroupDriver(CoordinatorDriver[GroupStep]):
    """Drives one group, whose members are scripted clients."""

    topic = GROUPS_TOPIC

    def __init__(self, cluster: SimulatedCluster, script: GroupScript, members: dict[str, ScriptedMember]) -> None:
        super().__init__(cluster, script.steps, script.brokers)
        self._script = script
        self._members = members
        self._traced: deque[TracedStep] = deque()
        """Traced actions that no step of the script has matched yet."""
        self._joined: set[str] = set()
        self._left: dict[str, Any] = {}
        """Member -> its epoch, assignment and revocations after its last heartbeat."""
        numbers = range(len(script.partitions))
        self._namings = [dict(zip(script.partitions, order, strict=True)) for order in permutations(numbers)]
        """The bijections from the specification's partition names to indexes that the trace has not excluded."""

    # ---- the beginning

    def start(self) -> None:
        """The specification's first state: all clients know the coordinator, and the group has no member."""
        self._bring_shard(self._are_ready, self._next_step)

    def _are_ready(self) -> bool:
        return all(member.has_found_coordinator and member.is_ready for member in self._members.values())

    def _serves(self) -> bool:
        node = self._cluster.machine(self._nodes[0]).node
        return node is not None and bool(node.groups.coordination.loaded())

    # ---- steps

    def _bound_ms(self, step: GroupStep) -> int:
        return WITHIN_MS.get(step.action, DEFAULT_WITHIN_MS)

    def _act(self, step: GroupStep) -> None:
        """A step that was traced together with an earlier one needs no cause."""
        act = ACTS.get(step.action)
        if act is not None and not self._traced:
            act(self, step)

    def _is_made(self, step: GroupStep) -> bool:
        made = MADE.get(step.action)
        if made is not None:
            return made(self, step)
        return bool(self._traced) and self._agrees(self._traced[0], step)

    def _agrees(self, traced: TracedStep, step: GroupStep) -> bool:
        """Whether the coordinator's next action is the script's step."""
        named = traced.row["args"]
        if traced.action != step.action or named.get("member", step.member) != step.member:
            return False
        if step.action == "Heartbeat":
            return named["epoch"] == step.epoch and bool(self._meanings({step.member: named["assigned"]}, step))
        return step.action != "UpdateTarget" or bool(self._meanings(named["target"], step))

    def _meanings(self, traced: Mapping[str, Iterable[str]], step: GroupStep) -> list[dict[str, int]]:
        """The bijections of names under which the traced partitions are the script's."""
        wanted = step.target if step.action == "UpdateTarget" else {step.member: step.partitions}
        given = {member: {int(each.rpartition(":")[2]) for each in parts} for member, parts in traced.items()}
        return [
            naming
            for naming in self._namings
            if all({naming[name] for name in names} == given.get(member, set()) for member, names in wanted.items())
        ]

    def _on_made(self, step: GroupStep) -> None:
        if step.action in MADE:
            return
        named = self._traced.popleft().row["args"]
        if step.action == "JoinGroup":
            self._joined.add(step.member)
        elif step.action in ("LeaveGroup", "LoseMember"):
            self._joined.discard(step.member)
            self._members[step.member].lose()
        elif step.action == "Heartbeat":
            self._namings = self._meanings({step.member: named["assigned"]}, step)
        elif step.action == "UpdateTarget":
            self._namings = self._meanings(named["target"], step)

    # ---- acts

    def _heartbeat_as(self, step: GroupStep) -> None:
        self._members[step.member].heartbeat()

    def _leave_as(self, step: GroupStep) -> None:
        self._members[step.member].leave()

    def _heartbeat_as_next(self, step: GroupStep) -> None:
        """The assignor runs within a heartbeat: that of the member whose Heartbeat step comes next."""
        later = (each for each in self._script.steps[self._position :] if each.action == "Heartbeat")
        member = next((each.member for each in later), None)
        if member is not None:
            self._members[member].heartbeat()

    def _let_session_expire(self, step: GroupStep) -> None:
        """All members but one send heartbeats, without other effect, until that one's session expires."""
        if self._step is not step or self._traced:
            return
        for name in sorted(self._joined - {step.member}):
            self._members[name].heartbeat_idly()
        self._world.after(IDLE_HEARTBEAT_MS * MICROSECONDS_A_MS, self._let_session_expire, step)

    # ---- steps of members alone

    def _takes_or_drops(self, step: GroupStep) -> bool:
        """The step is taken as soon as the member has a response."""
        member = self._members[step.member]
        if member.answer is None:
            return False
        if step.action == "TakeAnswer":
            member.take()
        else:
            member.lose()
        return True

    def _gives_up_partitions(self, step: GroupStep) -> bool:
        """The step is taken as soon as the member was fenced."""
        member = self._members[step.member]
        if not member.was_fenced:
            return False
        member.give_up_partitions()
        return True

    # ---- what has happened

    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        """Record a traced action; a heartbeat that changes nothing while a session expires is no step."""
        if row.get("group") != self._script.group:
            return
        if action == "Heartbeat":
            named = row["args"]
            left = named["epoch"], named["assigned"], named["revoking"]
            before, self._left[named["member"]] = self._left.get(named["member"]), left
            if left == before and self._step is not None and self._step.action == "LoseMember":
                return
        self._traced.append(TracedStep(action, row))

    def holds(self, message: Message) -> bool:
        """No step depends on messages between brokers."""
        return False

    # ---- the end

    def _on_end(self) -> None:
        """The members apply their last responses, commit what they own, and leave."""
        self._do_for_all([ScriptedMember.take, ScriptedMember.commit, ScriptedMember.leave, ScriptedMember.finish])

    def _do_for_all(self, acts: Sequence[Callable[[ScriptedMember], None]]) -> None:
        """Each act by all members, one act after the other; then an ordinary member joins the group."""
        for member in self._members.values():
            acts[0](member)
        if len(acts) > 1:
            self._world.after(BETWEEN_LAST_ACTS_MS * MICROSECONDS_A_MS, self._do_for_all, acts[1:])
        else:
            self._cluster.start_planned(Member(protocol="consumer", group=self._script.group, faults_percent=0))


ACTS: dict[str, Callable[[GroupDriver, GroupStep], None]] = {
    "JoinGroup": GroupDriver._heartbeat_as,
    "Heartbeat": GroupDriver._heartbeat_as,
    "LetGo": GroupDriver._heartbeat_as,
    "LeaveGroup": GroupDriver._leave_as,
    "UpdateTarget": GroupDriver._heartbeat_as_next,
    "LoseMember": GroupDriver._let_session_expire,
}
"""Steps that a client has to cause."""

MADE: dict[str, Callable[[GroupDriver, GroupStep], bool]] = {
    "TakeAnswer": GroupDriver._takes_or_drops,
    "LoseAnswer": GroupDriver._takes_or_drops,
    "LetGo": GroupDriver._gives_up_partitions,
}
"""Steps of members alone, which are not in the coordinator's trace."""
