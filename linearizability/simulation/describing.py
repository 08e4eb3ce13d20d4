"""Check that the coordinator describes a stable group with the members and assignments that the members themselves have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from linearizability.client.group_member import decode_assignment
from linearizability.simulation.client import Key, SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.grouping import SimulatedMember
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS, Line
from linearizability.simulation.reconciling import ReconcilingMember
from linearizability.simulation.schedule import GROUPS_TOPIC
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from reference.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from reference.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

DESCRIBE_GROUPS, LIST_GROUPS, CONSUMER_GROUP_DESCRIBE = 15, 16, 69
VERSIONS = {DESCRIBE_GROUPS: 5, LIST_GROUPS: 5, CONSUMER_GROUP_DESCRIBE: 1}
STABLE = "Stable"
Shares = dict[str, list[Key]]
"""Member id -> its partitions."""


class SimulatedDescriber(SimulatedClient):
    """Repeats the requests until all responses agree with the members; `difference` describes the last disagreement.

    Members that have died, and groups without a member left, are not expected.
    """

    def __init__(
        self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, members: Sequence[SimulatedMember]
    ) -> None:
        super().__init__(cluster, number, recorder)
        self._groups: dict[str, list[SimulatedMember]] = {}
        for member in members:
            if not member.finished:
                self._groups.setdefault(member.member.group, []).append(member)
        self._steps: Iterator[Callable[[Line], None]] = iter(())
        self.difference = "the coordinator was not found"

    def on_ready(self) -> None:
        self._begin()

    def on_leader_ready(self, line: Line) -> None:
        self._begin()

    def on_lost(self, line: Line) -> None:
        self._again()

    def _again(self) -> None:
        self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self._begin)

    def _begin(self) -> None:
        if self.finished or self.in_flight:
            return
        living = {group: [one for one in members if not one.finished] for group, members in self._groups.items()}
        self._groups = {group: members for group, members in living.items() if members}
        self._steps = iter([self._list, *(self._describing(group) for group in self._groups)] if self._groups else [])
        self._next()

    def _next(self) -> None:
        node = self.home.node if self.cluster.is_alone else self.cluster.leader_of((GROUPS_TOPIC, 0))
        line = self.line_to(node) if node is not None else None
        step = next(self._steps, None)
        if step is None:
            self.finish()
        elif line is None:
            self._again()
        else:
            step(line)

    def _ask(self, line: Line, key: int, body: Any, answered: Callable[[Any, Any], None], group: str = "") -> None:
        self.ask(key, VERSIONS[key], body, answered, group, line=line)

    def _require(self, holds: bool, difference: str) -> None:
        """Send the next request, or begin again."""
        if holds:
            self._next()
        else:
            self.difference = difference
            self._again()

    # ---- all groups

    def _list(self, line: Line) -> None:
        self._ask(line, LIST_GROUPS, ListGroupsRequest(states_filter=[STABLE]), self._listed)

    def _listed(self, body: ListGroupsResponse, _: Any) -> None:
        listed = {group.group_id: group.group_state for group in body.groups}
        holds = body.error_code == ErrorCode.NONE and {*self._groups} <= {*listed} and {*listed.values()} == {STABLE}
        self._require(holds, f"of the stable groups {sorted(self._groups)} are listed {listed}")

    # ---- one group

    def _describing(self, group: str) -> Callable[[Line], None]:
        if isinstance(self._groups[group][0], ReconcilingMember):
            key, answered = CONSUMER_GROUP_DESCRIBE, self._reconciled
            body: Any = ConsumerGroupDescribeRequest(group_ids=[group])
        else:
            key, body, answered = DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group]), self._classic
        return lambda line: self._ask(line, key, body, answered, group)

    def _classic(self, body: DescribeGroupsResponse, group: str) -> None:
        described = body.groups[0]
        shares = {
            each.member_id: sorted(decode_assignment(bytes(each.member_assignment))) for each in described.members
        }
        self._compare(group, described.error_code, described.group_state, shares)

    def _reconciled(self, body: ConsumerGroupDescribeResponse, group: str) -> None:
        described = body.groups[0]
        shares = {each.member_id: _owned(each.assignment) for each in described.members}
        targets = {each.member_id: _owned(each.target_assignment) for each in described.members}
        epochs = {each.member_epoch for each in described.members} | {described.group_epoch, described.assignment_epoch}
        is_one = shares == targets and len(epochs) == 1
        self._compare(group, described.error_code, described.group_state if is_one else "Reconciling", shares)

    def _compare(self, group: str, code: int, state: str, shares: Shares) -> None:
        known = {member.member_id: sorted(member.places) for member in self._groups[group]}
        holds = code == ErrorCode.NONE and state == STABLE and shares == known
        self._require(
            holds, f"{group} is described as {state}, error {code}, with {shares}, and its members know {known}"
        )


def _owned(assignment: ConsumerGroupDescribeResponse.Assignment) -> list[Key]:
    return sorted((each.topic_name, index) for each in assignment.topic_partitions for index in each.partitions)
