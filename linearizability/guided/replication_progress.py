"""The progress of a driven partition: the parts of its state that show that a step of replication was taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from linearizability.guided.driver import Driver
from linearizability.guided.scripts import NodeStep, ReplicationScript
from linearizability.simulation.cluster import SimulatedCluster
from reference.protocol.primitives import NodeId
from reference.replication.partition import Partition

FENCING = frozenset({"RegisterBroker", "FenceBroker", "ControlledShutdown"})
NOT_YET = -1


class Decision(NamedTuple):
    """A change of the partition by the controller."""

    end: int
    """The end of its record in the metadata log."""
    leader: int
    isr: frozenset[int]
    replicas: frozenset[int]
    """The target replicas, once a reassignment is complete."""
    is_setting: bool = False
    """Whether it changes min.insync.replicas."""


class Progress(Driver[NodeStep]):
    """Follows the script's only partition."""

    def __init__(self, cluster: SimulatedCluster, script: ReplicationScript) -> None:
        super().__init__(cluster, script.steps, script.all_brokers)
        self._script = script
        self._key = script.topic, 0
        self._decisions: list[Decision] = []
        self._numbers: dict[int, int] = {0: 0}
        """The specification's number of a decision -> the cluster's, which may have needed more of them."""
        self._registered: dict[int, int] = {}
        """Restarted brokers that have not taken up their replicas -> the end of their registration in the metadata log."""
        self._fenced: set[int] = set()
        self._came: set[tuple[str, int]] = set()
        """Actions traced since the step began, and their brokers."""
        self._first_epoch = 0
        self._min_isr = 0
        """The controller's min.insync.replicas."""

    def _is_made(self, step: NodeStep) -> bool:
        return DONE[step.action](self, step)

    def _replica(self, broker: int) -> Partition | None:
        node = self._cluster.machine(broker).node
        return node.partitions.get(self._key) if node is not None else None

    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        """Record a traced action, and the decision that it is."""
        if not self._decisions:
            return
        if "offset" not in row:
            if row.get("partition") == f"{self._script.topic}-0":
                self._came.add((action, number))
            return
        broker = row.get("args", {}).get("broker", row.get("args", {}).get("leader", -1))
        self._came.add((action, broker))
        if action == "ChangeMinIsr":
            self._min_isr = row["args"]["minIsr"]
        if action in FENCING:
            self._fenced.add(broker)
        elif action == "UnfenceBroker":
            self._fenced.discard(broker)
        if action == "RegisterBroker" and broker in self._registered:
            self._registered[broker] = row["offset"]
        changed = (row.get("partitions") or {}).get(f"{self._script.topic}-0")
        if changed is not None and action != "End" and (action != "Reassign" or self._is_reassigning()):
            replicas = frozenset(changed["replicas"]) - {*changed["removing"]}
            is_setting = action == "ChangeMinIsr"
            isr = frozenset(changed["isr"])
            self._decisions.append(Decision(row["offset"], changed["leader"], isr, replicas, is_setting))

    def _is_reassigning(self) -> bool:
        """Whether a reassignment is the script's step: the driver also reassigns to prepare other steps."""
        return self._step is not None and self._step.action == "Reassign"

    def _has_come(self, step: NodeStep) -> bool:
        return (step.action, step.broker) in self._came

    def _has_begun(self, step: NodeStep) -> bool:
        replica = self._replica(step.broker)
        return (
            replica is not None
            and replica.state.leader_epoch == self._first_epoch + step.leader_epoch
            and step.broker not in self._registered_and_waiting()
            and replica.is_leader == (step.action == "BecomeLeader")
        )

    def _registered_and_waiting(self) -> set[int]:
        """Restarted brokers that do not serve yet."""
        return {
            broker
            for broker in self._registered
            if (node := self._cluster.machine(broker).node) is None or not node.has_caught_up
        }

    def _has_committed(self, step: NodeStep) -> bool:
        replica = self._replica(step.broker)
        number = self._numbers.get(step.decision)
        if replica is None or number is None:
            return False
        isr, pending = self._decisions[number].isr, replica.pending
        return {*replica.state.isr} == isr and (pending is None or {*pending.isr} != isr)

    def _has_answered(self, step: NodeStep) -> bool:
        replica = self._replica(step.broker)
        if self._has_come(step) or replica is None or replica.leading is None:
            return self._has_come(step)
        progress = replica.leading.followers.get(NodeId(step.other))
        node = self._cluster.machine(step.other).node
        epoch = node.membership.broker_epoch if node is not None else -1
        return progress is not None and progress.end == step.end and progress.broker_epoch == epoch

    def _ends_at(self, step: NodeStep) -> bool:
        replica = self._replica(step.broker)
        return replica is not None and replica.log.log_end_offset == step.end

    def _is_marked(self, step: NodeStep) -> bool:
        replica = self._replica(step.broker)
        return replica is not None and replica.high_watermark >= step.end

    def _has_set(self, step: NodeStep) -> bool:
        """Kafka's controller writes no record for a setting that stays as it is."""
        return self._min_isr == step.min_isr

    def _has_learnt(self, step: NodeStep) -> bool:
        replica = self._replica(step.broker)
        return replica is not None and replica.min_isr == step.min_isr

    def _has_none(self, step: NodeStep) -> bool:
        return self._replica(step.broker) is None

    def _proposes_more(self, step: NodeStep) -> bool:
        replica = self._replica(step.broker)
        return replica is not None and replica.pending is not None and step.other in replica.pending.isr

    def _proposes_less(self, step: NodeStep) -> bool:
        replica = self._replica(step.broker)
        return replica is not None and replica.pending is not None and step.other not in replica.pending.isr

    def _proposes_nothing(self, step: NodeStep) -> bool:
        replica = self._replica(step.broker)
        return replica is not None and replica.pending is None

    def _is_down(self, step: NodeStep) -> bool:
        return not self._cluster.machine(step.broker).is_up

    def _is_up(self, step: NodeStep) -> bool:
        return self._cluster.machine(step.broker).is_up


DONE: dict[str, Callable[[Progress, NodeStep], bool]] = {
    "RegisterBroker": Progress._has_come,
    "UnfenceBroker": Progress._has_come,
    "FenceBroker": Progress._has_come,
    "ControlledShutdown": Progress._has_come,
    "AlterPartition": Progress._has_come,
    "ElectLeader": Progress._has_come,
    "ElectUncleanLeader": Progress._has_come,
    "Reassign": Progress._has_come,
    "CallOffReassignment": Progress._has_come,
    "ChangeMinIsr": Progress._has_set,
    "BecomeLeader": Progress._has_begun,
    "BecomeFollower": Progress._has_begun,
    "CommitIsr": Progress._has_committed,
    "LearnMinIsr": Progress._has_learnt,
    "GiveUpReplica": Progress._has_none,
    "AnswerFetch": Progress._has_answered,
    "AppendFetched": Progress._ends_at,
    "AdoptHighWatermark": Progress._is_marked,
    "Truncate": Progress._ends_at,
    "AdvanceHighWatermark": Progress._is_marked,
    "ExpandIsr": Progress._proposes_more,
    "ShrinkIsr": Progress._proposes_less,
    "RollBackIsr": Progress._proposes_nothing,
    "Crash": Progress._is_down,
    "ShutDown": Progress._is_down,
    "Restart": Progress._is_up,
    "Produce": Progress._ends_at,
    "Retry": Progress._ends_at,
    "Acknowledge": Progress._has_come,
    "Consume": Progress._has_come,
}
"""Action -> whether the state shows that it was taken."""
