"""What has happened to a partition while a score is played: by what each step of replication is seen to have been made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from linearizability.simulation.conducting.conductor import Conductor
from linearizability.simulation.score import Cue, Score
from reference.replication.partition import Partition

if TYPE_CHECKING:
    from linearizability.simulation.life import Cluster

FENCING = frozenset({"RegisterBroker", "FenceBroker", "ControlledShutdown"})
NOT_YET = -1


class Decision(NamedTuple):
    """A change of the partition by the controller."""

    end: int
    """Where it ends in the metadata log."""
    leader: int
    isr: frozenset[int]
    replicas: frozenset[int]
    """Who is to have a replica, once a reassignment is over."""
    is_setting: bool = False
    """Whether it changes min.insync.replicas."""


class Progress(Conductor[Cue]):
    """Knows how far the score's only partition has come."""

    def __init__(self, cluster: Cluster, score: Score) -> None:
        super().__init__(cluster, score.cues, score.all_brokers)
        self._score = score
        self._key = score.topic, 0
        self._decisions: list[Decision] = []
        self._numbers: dict[int, int] = {0: 0}
        """The specification's number of a decision -> the cluster's, which may have needed more of them."""
        self._registered: dict[int, int] = {}
        """Brokers in a new life that have not taken up their replicas, and where their registration ends."""
        self._fenced: set[int] = set()
        self._came: set[tuple[str, int]] = set()
        """Steps since the cue, and whose they are."""
        self._first_epoch = 0
        self._min_isr = 0
        """What the controller has min.insync.replicas set to."""

    def _is_made(self, cue: Cue) -> bool:
        return DONE[cue.action](self, cue)

    def _replica(self, broker: int) -> Partition | None:
        node = self._cluster.machine(broker).node
        return node.partitions.get(self._key) if node is not None else None

    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        """A step of the specification happens."""
        if not self._decisions:
            return
        if "offset" not in row:
            if row.get("partition") == f"{self._score.topic}-0":
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
        changed = (row.get("partitions") or {}).get(f"{self._score.topic}-0")
        if changed is not None and action != "End" and (action != "Reassign" or self._is_reassigning()):
            replicas = frozenset(changed["replicas"]) - {*changed["removing"]}
            is_setting = action == "ChangeMinIsr"
            isr = frozenset(changed["isr"])
            self._decisions.append(Decision(row["offset"], changed["leader"], isr, replicas, is_setting))

    def _is_reassigning(self) -> bool:
        """Whether that is the score's decision: the stage is set by reassignments, too."""
        return self._cue is not None and self._cue.action == "Reassign"

    def _has_come(self, cue: Cue) -> bool:
        return (cue.action, cue.broker) in self._came

    def _has_begun(self, cue: Cue) -> bool:
        replica = self._replica(cue.broker)
        return (
            replica is not None
            and replica.reign.leader_epoch == self._first_epoch + cue.leader_epoch
            and cue.broker not in self._registered_and_waiting()
            and replica.is_leader == (cue.action == "BecomeLeader")
        )

    def _registered_and_waiting(self) -> set[int]:
        """Brokers in a new life that do not serve yet."""
        return {
            broker
            for broker in self._registered
            if (node := self._cluster.machine(broker).node) is None or not node.is_serving
        }

    def _has_committed(self, cue: Cue) -> bool:
        replica = self._replica(cue.broker)
        number = self._numbers.get(cue.decision)
        if replica is None or number is None:
            return False
        isr, pending = self._decisions[number].isr, replica.pending
        return {*replica.reign.isr} == isr and (pending is None or {*pending.isr} != isr)

    def _has_answered(self, cue: Cue) -> bool:
        replica = self._replica(cue.broker)
        if self._has_come(cue) or replica is None:
            return self._has_come(cue)
        progress = replica.followers.get(cue.other)
        node = self._cluster.machine(cue.other).node
        epoch = node.membership.broker_epoch if node is not None else -1
        return progress is not None and progress.end == cue.end and progress.broker_epoch == epoch

    def _ends_at(self, cue: Cue) -> bool:
        replica = self._replica(cue.broker)
        return replica is not None and replica.log.log_end_offset == cue.end

    def _is_marked(self, cue: Cue) -> bool:
        replica = self._replica(cue.broker)
        return replica is not None and replica.high_watermark >= cue.end

    def _has_set(self, cue: Cue) -> bool:
        """A setting that is what it was before is no change to Kafka's controller."""
        return self._min_isr == cue.min_isr

    def _has_learnt(self, cue: Cue) -> bool:
        replica = self._replica(cue.broker)
        return replica is not None and replica.min_isr == cue.min_isr

    def _has_none(self, cue: Cue) -> bool:
        return self._replica(cue.broker) is None

    def _proposes_more(self, cue: Cue) -> bool:
        replica = self._replica(cue.broker)
        return replica is not None and replica.pending is not None and cue.other in replica.pending.isr

    def _proposes_less(self, cue: Cue) -> bool:
        replica = self._replica(cue.broker)
        return replica is not None and replica.pending is not None and cue.other not in replica.pending.isr

    def _proposes_nothing(self, cue: Cue) -> bool:
        replica = self._replica(cue.broker)
        return replica is not None and replica.pending is None

    def _is_down(self, cue: Cue) -> bool:
        return not self._cluster.machine(cue.broker).is_up

    def _is_up(self, cue: Cue) -> bool:
        return self._cluster.machine(cue.broker).is_up


DONE: dict[str, Callable[[Progress, Cue], bool]] = {
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
"""By what a step is seen to have been made."""
