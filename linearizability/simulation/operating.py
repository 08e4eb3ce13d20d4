"""The operator changes the cluster while clients work: reassigns replicas, sets configurations, moves leaders back.

What it asks may be refused or lost, as operators know; it tries a few times. It must never cost a promise. So it leaves
min.insync.replicas alone while a partition has an empty ISR: a change forgets the eligible leader replicas too (KIP-966,
ClearElrRecord), and such a partition is never led again without an unclean election. Apache Kafka 4.3.1 does the same
(seen with a topic of one replica, its broker killed, the configuration set, the broker started again).

The ISR may empty while such a change is on its way all the same. Then, once all is healed, the operator has an unclean
election held, of the replica whose log reaches farthest: that one has whatever was committed, and nothing is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from linearizability.client.errors import error_of
from linearizability.simulation.client import SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS, Line
from linearizability.simulation.schedule import Fault
from linearizability.simulation.voting import change_of_voters
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.elect_leaders import ElectLeadersRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.primitives import LeaderEpoch, NodeId, Offset, TopicName
from reference.protocol.schema import Message

ELECT_LEADERS, INCREMENTAL_ALTER_CONFIGS, ALTER_PARTITION_REASSIGNMENTS = 43, 44, 45
ADD_VOTER, REMOVE_VOTER = 80, 81
VERSIONS = {
    ELECT_LEADERS: 2, INCREMENTAL_ALTER_CONFIGS: 1, ALTER_PARTITION_REASSIGNMENTS: 0, ADD_VOTER: 1, REMOVE_VOTER: 0
}  # fmt: skip
PREFERRED, UNCLEAN = range(2)
SET = 0
TOPIC_RESOURCE = 2
MIN_ISR = "min.insync.replicas"
TRIES = 20
TIMEOUT_MS = 1_000
LOOK_EVERY_MS = 500
"""How often the operator looks, once all is healed, for partitions without an electable replica."""

NOT_NOW = frozenset(
    {
        ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.BROKER_NOT_AVAILABLE,
    }
)  # fmt: skip
"""Errors that pass."""


@dataclass(slots=True)
class _Task:
    """A request, and how often it may still be tried."""

    name: str
    key: int
    body: Message
    changes_min_isr_of: TopicName = ""
    tries: int = TRIES


class Operator(SimulatedClient):
    """Carries out, one after the other, the faults that are an operator's work."""

    def __init__(self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder) -> None:
        super().__init__(cluster, number, recorder)
        self._work: deque[_Task] = deque()
        self._reconfigured: set[TopicName] = set()
        """The topics whose min.insync.replicas it was to change."""

    def take(self, fault: Fault) -> None:
        """Queue this fault to be carried out."""
        task = _Task(fault.kind, *_request(fault), fault.topic if MIN_ISR in fault.configs else "")
        self._work.append(task)
        self._next()

    def watch_leaders(self) -> None:
        """All is healed: from now on, elect a leader for each partition that the changes have left without an electable one."""
        if self.finished:
            return
        if not self._work:
            for topic in sorted(self._reconfigured):
                for index, logs in self.cluster.unelectable(topic).items():
                    self._elect_farthest(topic, index, logs)
            self._next()
        self.world.after(LOOK_EVERY_MS * MICROSECONDS_A_MS, self.watch_leaders)

    def _elect_farthest(self, topic: TopicName, index: int, logs: Mapping[NodeId, tuple[LeaderEpoch, Offset]]) -> None:
        """An unclean election takes the first live replica."""
        reassign = Fault(at_ms=0, kind="reassign", topic=topic, partition=index, others=farthest_first(logs))
        self._work.append(_Task("reassign", *_request(reassign)))
        partitions = [ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[index])]
        elect = ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=partitions, timeout_ms=TIMEOUT_MS)
        self._work.append(_Task("elect-unclean", ELECT_LEADERS, elect))

    def on_ready(self) -> None:
        self._next()

    def on_lost(self, line: Line) -> None:
        if self._work and self._work[0].tries <= 0:
            self._work.popleft()

    def _next(self) -> None:
        if not self._work or not self.is_ready or self.in_flight or self.finished:
            return
        task = self._work[0]
        task.tries -= 1
        if task.changes_min_isr_of:
            if not self.cluster.in_sync_everywhere(task.changes_min_isr_of):
                self._again_or_never()
                return
            self._reconfigured.add(task.changes_min_isr_of)
        self.ask(task.key, VERSIONS[task.key], task.body, self._answered, task)

    def _answered(self, body: Any, task: _Task) -> None:
        code = error_of(body)
        self.count(f"operator {task.name}", code)
        if code in NOT_NOW:
            self._again_or_never()
        else:
            self._work.popleft()
            self._next()

    def _again_or_never(self) -> None:
        if self._work[0].tries <= 0:
            self._work.popleft()
        self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self._next)


def farthest_first(logs: Mapping[NodeId, tuple[LeaderEpoch, Offset]]) -> tuple[NodeId, ...]:
    """Replicas by the last leader epoch and the end of their logs: the first has whatever was committed.

    Who has the last epoch of all has what was committed before it, and of two such logs the longer one begins as the other.
    """
    return tuple(sorted(logs, key=logs.__getitem__, reverse=True))


def _request(fault: Fault) -> tuple[int, Message]:
    """Return the request of a fault."""
    match fault.kind:
        case "reassign":
            request = AlterPartitionReassignmentsRequest
            replicas = [*map(NodeId, fault.others)] or None
            partition = request.ReassignablePartition(partition_index=fault.partition, replicas=replicas)
            topic = request.ReassignableTopic(name=fault.topic, partitions=[partition])
            return ALTER_PARTITION_REASSIGNMENTS, request(timeout_ms=TIMEOUT_MS, topics=[topic])
        case "config":
            request = IncrementalAlterConfigsRequest
            configs = [
                request.AlterableConfig(name=name, config_operation=SET, value=value)
                for name, value in fault.configs.items()
            ]
            resource = request.AlterConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=fault.topic, configs=configs
            )
            return INCREMENTAL_ALTER_CONFIGS, request(resources=[resource])
        case "add-voter" | "remove-voter":
            return ADD_VOTER if fault.kind == "add-voter" else REMOVE_VOTER, change_of_voters(fault)
        case _:
            return ELECT_LEADERS, ElectLeadersRequest(
                election_type=PREFERRED, topic_partitions=None, timeout_ms=TIMEOUT_MS
            )
