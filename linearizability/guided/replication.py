"""The driver of replication: takes one partition's replicas and the controller through a script."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Any

from linearizability.guided.replication_holds import BEGINS, ReplicationHolds
from linearizability.guided.replication_progress import NOT_YET, Decision
from linearizability.guided.scripted_producer import ScriptedProducer
from linearizability.guided.scripts import NodeStep, ReplicationScript
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.schedule import Fault
from linearizability.simulation.world import MICROSECONDS_A_MS

REORDER_MS = 40
"""How long an operator's reordering of the replicas takes."""

WITHIN_MS = {
    "FenceBroker": 2_500, "RegisterBroker": 2_000, "UnfenceBroker": 1_000, "ElectLeader": 1_000, "ShrinkIsr": 4_000,
    "ControlledShutdown": 1_000, "ShutDown": 8_000, "ElectUncleanLeader": 1_500, "BecomeLeader": 800,
    "BecomeFollower": 800, "Reassign": 1_000, "CallOffReassignment": 1_000, "ChangeMinIsr": 1_000,
}  # fmt: skip
"""How long a step may take; broker.session.timeout.ms is 600, replica.lag.time.max.ms 1500 in these schedules."""
DEFAULT_WITHIN_MS = 300

SPONTANEOUS_MS = 60
SPONTANEOUS = frozenset({"Acknowledge", "Consume", "AdvanceHighWatermark", "AdoptHighWatermark"})
"""Steps that the driver cannot cause: they come at once, came with an earlier step, or are skipped."""

WITHOUT_REPLAY = SPONTANEOUS | {"Produce", "Retry"}
"""Steps that a leader takes without waiting for the metadata that it has not replayed."""

BROKERS_STEPS = frozenset({"RegisterBroker", "UnfenceBroker", "FenceBroker", "ControlledShutdown"})
OPERATORS_STEPS = frozenset({"ElectLeader", "Reassign", "CallOffReassignment", "ChangeMinIsr"})
CONTROLLERS_STEPS = BROKERS_STEPS | OPERATORS_STEPS | {"AlterPartition", "ElectUncleanLeader"}
REPLAYS = BEGINS | {"CommitIsr", "LearnMinIsr", "GiveUpReplica"}
"""Steps in which a broker replays decisions."""


class NothingSurvives(Random):
    """The worst choices: a power failure takes all bytes that were not fsynced."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return start

    def random(self) -> float:
        return 1.0


class ReplicationDriver(ReplicationHolds):
    """Drives the replicas of one partition, and its scripted producer."""

    def __init__(self, cluster: SimulatedCluster, script: ReplicationScript, producer: ScriptedProducer) -> None:
        super().__init__(cluster, script)
        self._producer = producer
        self._last_producing = script.brokers[0]
        self._to_replay: dict[int, int] = {}
        """Leaders that know an ISR from the AlterPartition response alone -> the decision up to which they replay later."""

    # ---- the beginning

    def start(self) -> None:
        """The specification's first state: the first broker begins a leader epoch in which no follower has fetched."""
        first, second, *_ = self._script.brokers
        self._wait_until(lambda: self._are_ready(first), lambda: self._change_leader(second))

    def _change_leader(self, second: int) -> None:
        first = self._script.brokers[0]
        self._elect(second)
        self._wait_until(lambda: self._are_ready(second), lambda: self._change_back(first))

    def _change_back(self, first: int) -> None:
        self._gates.filter = self
        self._elect(first)
        self._wait_until(lambda: self._are_ready(first), self._begin)

    def _are_ready(self, leader: int) -> bool:
        operator = self._cluster.operator
        replica = self._replica(leader)
        if replica is None or not replica.is_leader or operator is None or not operator.is_ready:
            return False
        followers = [self._replica(broker) for broker in self._script.brokers if broker != leader]
        known = all(each is not None and each.state.leader_epoch == replica.state.leader_epoch for each in followers)
        return known and {*replica.state.isr} == {*self._script.brokers} and self._producer.is_prepared

    def _begin(self) -> None:
        leader = self._replica(self._script.brokers[0])
        assert leader is not None
        self._first_epoch = leader.state.leader_epoch
        self._min_isr = leader.min_isr
        replicas = frozenset(leader.state.replicas)
        self._decisions = [Decision(0, leader.state.leader, frozenset(leader.state.isr), replicas)]
        self._next_step()

    # ---- steps

    def _prepare(self, step: NodeStep) -> None:
        self._came.clear()
        if step.fetches_late and step.broker not in self._fetching:
            self._wait_for_fetch(step)
        elif self._must_reorder(step):
            self._reorder_to(step.leader)
            self._world.after(REORDER_MS * MICROSECONDS_A_MS, self._begin_step, step)
        else:
            self._begin_step(step)

    def _wait_for_fetch(self, step: NodeStep) -> None:
        """Wait until a fetch of the broker is on its way: it arrives after the broker has restarted."""
        self._fetching.add(step.broker)
        self._cluster.network.look_again()
        self._world.after(REORDER_MS * MICROSECONDS_A_MS, self._next_step)

    def _bound_ms(self, step: NodeStep) -> int:
        return SPONTANEOUS_MS if step.action in SPONTANEOUS else WITHIN_MS.get(step.action, DEFAULT_WITHIN_MS)

    def _may_be_skipped(self, step: NodeStep) -> bool:
        return step.action in SPONTANEOUS

    def _act(self, step: NodeStep) -> None:
        if step.action not in WITHOUT_REPLAY:
            for broker, number in self._to_replay.items():
                self._allow_replay(broker, number)
            self._to_replay.clear()
        if step.action in REPLAYS:
            self._replay(step)
        act = ACTS.get(step.action)
        if act is not None:
            act(self, step)

    def _replay(self, step: NodeStep) -> None:
        """Let a broker replay more metadata. A leader that waits for an AlterPartition response replays a new
        min.insync.replicas later than the ISR: at the next step that needs it."""
        number = self._numbers.get(step.decision, 0)
        replica = self._replica(step.broker)
        settings = any(each.is_setting for each in self._decisions[self._may_replay[step.broker] + 1 : number + 1])
        if step.action == "CommitIsr" and settings and replica is not None and replica.pending is not None:
            self._to_replay[step.broker] = number
        else:
            self._allow_replay(step.broker, number)

    def _allow_replay(self, broker: int, number: int) -> None:
        self._may_replay[broker] = max(self._may_replay[broker], number)

    def _on_made(self, step: NodeStep) -> None:
        if step.action in BEGINS:
            self._registered.pop(step.broker, None)
        if step.action == "ExpandIsr":
            self._fetching.discard(step.other)
        if step.action in CONTROLLERS_STEPS:
            self._numbers[step.decision] = len(self._decisions) - 1

    def _must_reorder(self, step: NodeStep) -> bool:
        """Whether the controller might elect another leader than the script's: it takes the first eligible replica."""
        return step.action in BROKERS_STEPS and step.leader not in (-1, self._decisions[-1].leader)

    def _reorder_to(self, broker: int) -> None:
        """Make a broker the preferred leader, where it is a target replica."""
        assert self._cluster.operator is not None
        self._cluster.operator.take(self._operation("reassign", broker))

    def _operation(self, kind: Any, first: int) -> Fault:
        replicas = self._decisions[-1].replicas if self._decisions else self._script.brokers
        return Fault(at_ms=0, kind=kind, topic=self._script.topic, others=self._in_order(replicas, first))

    def _in_order(self, replicas: Collection[int], first: int) -> tuple[int, ...]:
        """Replicas in the script's order, but `first` at the front, if it is among them."""
        named = [broker for broker in self._script.all_brokers if broker in replicas]
        return tuple(sorted(named, key=lambda broker: broker != first))

    # ---- the end

    def _on_last_step(self) -> None:
        """Produce one more record; all messages but fetches still wait."""
        if self._cluster.machine(self._last_producing).is_up:
            self._producer.produce(self._last_producing, "all")

    def _on_end(self) -> None:
        self._producer.retire()

    # ---- acts

    def _elect(self, broker: int) -> None:
        assert self._cluster.operator is not None
        self._reorder_to(broker)
        self._cluster.operator.take(self._operation("elect-preferred", broker))

    def _elect_for(self, step: NodeStep) -> None:
        self._elect(step.broker)

    def _reassign(self, step: NodeStep) -> None:
        """The next leader comes first: once a leader is dropped, the controller elects the first eligible replica."""
        led = self._decisions[-1].leader
        following = (each.leader for each in self._steps[self._position :] if each.leader not in (-1, led))
        first = next(following, led)
        self._operate("reassign", others=self._in_order(step.replicas, first))

    def _call_off(self, step: NodeStep) -> None:
        self._operate("reassign")

    def _change_min_isr(self, step: NodeStep) -> None:
        if self._min_isr != step.min_isr:
            self._operate("config", configs={"min.insync.replicas": str(step.min_isr)})

    def _operate(self, kind: Any, **more: Any) -> None:
        assert self._cluster.operator is not None
        self._cluster.operator.take(Fault(at_ms=0, kind=kind, topic=self._script.topic, **more))

    def _crash(self, step: NodeStep) -> None:
        machine = self._cluster.machine(step.broker)
        if step.loses_tail:
            machine.lose_power(NothingSurvives())
        else:
            machine.crash()

    def _stop(self, step: NodeStep) -> None:
        self._cluster.machine(step.broker).stop()

    def _start(self, step: NodeStep) -> None:
        self._registered[step.broker] = NOT_YET
        self._cluster.machine(step.broker).start()

    def _produce(self, step: NodeStep) -> None:
        self._last_producing = step.broker
        self._producer.produce(step.broker, step.acks)

    def _retry(self, step: NodeStep) -> None:
        self._producer.retry(step.broker)


Act = Callable[[ReplicationDriver, NodeStep], None]
ACTS: dict[str, Act] = {
    "ElectLeader": ReplicationDriver._elect_for,
    "Reassign": ReplicationDriver._reassign,
    "CallOffReassignment": ReplicationDriver._call_off,
    "ChangeMinIsr": ReplicationDriver._change_min_isr,
    "Crash": ReplicationDriver._crash,
    "ShutDown": ReplicationDriver._stop,
    "ControlledShutdown": ReplicationDriver._stop,
    "Restart": ReplicationDriver._start,
    "Produce": ReplicationDriver._produce,
    "Retry": ReplicationDriver._retry,
}
"""Steps that an operator, a client or a fault causes, beyond letting messages pass."""
