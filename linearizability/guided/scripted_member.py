"""A scripted member of a consumer group (KIP-848): its driver (`groups.py`) decides when it sends a heartbeat, and whether it
applies or drops a response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from linearizability.client.errors import error_name, error_of
from linearizability.client.group_member import JOINING, LEAVING, assigned_partitions, owned_partitions
from linearizability.client.requests import GROUP, commit_request
from linearizability.guided.scripts import GroupScript
from linearizability.history.operations import commit
from linearizability.simulation.client import Key, SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.grouping import FIND_COORDINATOR, OFFSET_COMMIT
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS, Line
from linearizability.simulation.reconciling import CONSUMER_GROUP_HEARTBEAT
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from reference.protocol.messages.offset_commit import OffsetCommitResponse

VERSIONS = {FIND_COORDINATOR: 4, CONSUMER_GROUP_HEARTBEAT: 1, OFFSET_COMMIT: 9}
REBALANCE_TIMEOUT_MS = 30_000
"""More than a script takes: no member is fenced because it is slow to give up partitions."""


class Answer(NamedTuple):
    """A member's epoch and assignment from now on."""

    epoch: int
    partitions: frozenset[Key]


class ScriptedMember(SimulatedClient):
    """One member of a script's group; all requests go to the script's only broker."""

    def __init__(
        self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, script: GroupScript, id: str
    ) -> None:
        super().__init__(cluster, number, recorder)
        self.id = id
        self._script = script
        self._home = script.brokers[0]
        self.epoch = JOINING
        self.owned: frozenset[Key] = frozenset()
        self.answer: Answer | None = None
        """The response that was not applied yet."""
        self.was_fenced = False
        """Whether the last heartbeat was refused."""
        self.has_found_coordinator = False

    # ---- what the driver calls

    def heartbeat(self) -> None:
        """Send the member epoch and the owned partitions; a member without an epoch asks to join."""
        self.answer = None
        self._say(self.epoch, self._on_heartbeat)

    def heartbeat_idly(self) -> None:
        """Keep the session; the response changes nothing and is ignored."""
        self._say(self.epoch, self._ignore_response)

    def take(self) -> None:
        """Apply the response that came."""
        if self.answer is not None:
            self.epoch, self.owned = self.answer
            self.answer = None
            self._note()

    def lose(self) -> None:
        """Drop the response that came."""
        self.answer = None

    def give_up_partitions(self) -> None:
        """Give up everything, as a fenced member does."""
        self.epoch, self.owned, self.answer, self.was_fenced = JOINING, frozenset(), None, False
        self._note()

    def leave(self) -> None:
        """Leave the group."""
        self._say(LEAVING, self._ignore_response)
        self.give_up_partitions()

    def commit(self) -> None:
        """Commit offset 0 of every owned partition."""
        if not self.owned or not self.is_ready:
            return
        offsets: dict[str | int, int] = {f"{name}-{index}": 0 for name, index in sorted(self.owned)}
        operation = self.recorder.invoke("commit", [commit(self._script.group, offsets, self.epoch, self.id)])
        body = commit_request(
            self._script.group,
            dict.fromkeys(sorted(self.owned), 0),
            generation=self.epoch,
            member_id=self.id,
            apart=True,
        )
        self.ask(OFFSET_COMMIT, VERSIONS[OFFSET_COMMIT], body, self._committed, operation)

    def _committed(self, body: OffsetCommitResponse, operation: int) -> None:
        code = error_of(body)
        self.count("OffsetCommit", code)
        if code == ErrorCode.NONE:
            self.recorder.ok(operation)
        else:
            self.recorder.info(operation, error_name(code))

    # ---- connections

    def on_ready(self) -> None:
        self.ask_metadata()

    def on_metadata(self) -> None:
        if not self.has_found_coordinator:
            body = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[self._script.group])
            self.ask(FIND_COORDINATOR, VERSIONS[FIND_COORDINATOR], body, self._found)

    def _found(self, body: FindCoordinatorResponse, _: Any) -> None:
        self.has_found_coordinator = body.coordinators[0].error_code == ErrorCode.NONE
        if not self.has_found_coordinator:
            self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self.on_metadata)

    def on_line_down(self, line: Line, reason: str) -> None:
        """There is one broker: connect to it again."""
        super().on_line_down(line, reason)
        self._home = self._script.brokers[0]

    # ---- heartbeats

    def _say(self, epoch: int, answered: Callable[[ConsumerGroupHeartbeatResponse, Any], None]) -> None:
        if not self.is_ready:
            return
        owned = ((self.topic_ids[name], index) for name, index in sorted(self.owned))
        body = ConsumerGroupHeartbeatRequest(
            group_id=self._script.group,
            member_id=self.id,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=[self._script.topic],
            topic_partitions=owned_partitions(owned, apart=True),
        )
        self.ask(CONSUMER_GROUP_HEARTBEAT, VERSIONS[CONSUMER_GROUP_HEARTBEAT], body, answered)

    def _on_heartbeat(self, body: ConsumerGroupHeartbeatResponse, _: Any) -> None:
        self.count("ConsumerGroupHeartbeat", body.error_code)
        self.was_fenced = body.error_code != ErrorCode.NONE
        if not self.was_fenced:
            self.answer = Answer(body.member_epoch, self._keys(body))

    def _ignore_response(self, body: ConsumerGroupHeartbeatResponse, _: Any) -> None:
        self.count("ConsumerGroupHeartbeat", body.error_code)

    def _keys(self, body: ConsumerGroupHeartbeatResponse) -> frozenset[Key]:
        """Every heartbeat is a full one, so that every response has an assignment."""
        names = {id: name for name, id in self.topic_ids.items()}
        assert body.assignment is not None
        return frozenset((names[id], index) for id, index in assigned_partitions(body))

    def _note(self) -> None:
        keys = [f"{name}-{index}" for name, index in sorted(self.owned)]
        claim = {"generation": self.epoch, "member": self.id} if self.epoch != JOINING else {}
        self.recorder.ok(self.recorder.invoke("assign", keys=keys, group=self._script.group, **claim))
