"""The conductor of replication: plays a score on one partition's replicas, step by step."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import TYPE_CHECKING, Any

from linearizability.simulation.conducting.replication_progress import NOT_YET, Decision
from linearizability.simulation.conducting.replication_waits import BEGINS, Holding
from linearizability.simulation.prompting import PromptedProducer
from linearizability.simulation.schedule import Fault
from linearizability.simulation.score import Cue, Score
from linearizability.simulation.world import MICROSECONDS_A_MS

if TYPE_CHECKING:
    from linearizability.simulation.life import Cluster

TURN_MS = 40
"""What an operator's reordering of the replicas takes."""

WITHIN_MS = {
    "FenceBroker": 2_500, "RegisterBroker": 2_000, "UnfenceBroker": 1_000, "ElectLeader": 1_000, "ShrinkIsr": 4_000,
    "ControlledShutdown": 1_000, "ShutDown": 8_000, "ElectUncleanLeader": 1_500, "BecomeLeader": 800,
    "BecomeFollower": 800, "Reassign": 1_000, "CallOffReassignment": 1_000, "ChangeMinIsr": 1_000,
}  # fmt: skip
"""How long a step may take; broker.session.timeout.ms is 600, replica.lag.time.max.ms 1500, while a score is played."""
DEFAULT_WITHIN_MS = 300

OWN_ACCORD_MS = 60
OWN_ACCORD = frozenset({"Acknowledge", "Consume", "AdvanceHighWatermark", "AdoptHighWatermark"})
"""Steps that nobody can be made to take: they come at once, came before already, or are done without."""

WHILE_UNHEARD = OWN_ACCORD | {"Produce", "Retry"}
"""Steps that a leader makes with what it has: they do not wait for what it is yet to hear."""

BROKERS_STEPS = frozenset({"RegisterBroker", "UnfenceBroker", "FenceBroker", "ControlledShutdown"})
OPERATORS_STEPS = frozenset({"ElectLeader", "Reassign", "CallOffReassignment", "ChangeMinIsr"})
CONTROLLERS_STEPS = BROKERS_STEPS | OPERATORS_STEPS | {"AlterPartition", "ElectUncleanLeader"}
REPLAYS = BEGINS | {"CommitIsr", "LearnMinIsr", "GiveUpReplica"}
"""Steps in which a broker hears of decisions."""


class NothingSurvives(Random):
    """Chance as bad as it can be: a power failure takes all that was not fsynced."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return start

    def random(self) -> float:
        return 1.0


class ReplicationConductor(Holding):
    """Plays one score on the replicas of a partition, whose producer is prompted."""

    def __init__(self, cluster: Cluster, score: Score, producer: PromptedProducer) -> None:
        super().__init__(cluster, score)
        self._producer = producer
        self._last_producing = score.brokers[0]
        self._to_hear: dict[int, int] = {}
        """Leaders that have an ISR from the answer alone, and up to which decision they are to hear of the metadata then."""

    # ---- the beginning

    def start(self) -> None:
        """The first broker begins a reign in which nobody has fetched yet: the specification's first state."""
        first, second, *_ = self._score.brokers
        self._wait_until(lambda: self._are_ready(first), lambda: self._change_leader(second))

    def _change_leader(self, second: int) -> None:
        first = self._score.brokers[0]
        self._elect(second)
        self._wait_until(lambda: self._are_ready(second), lambda: self._change_back(first))

    def _change_back(self, first: int) -> None:
        self._gates.doorkeeper = self
        self._elect(first)
        self._wait_until(lambda: self._are_ready(first), self._begin)

    def _are_ready(self, leader: int) -> bool:
        operator = self._cluster.operator
        replica = self._replica(leader)
        if replica is None or not replica.is_leader or operator is None or not operator.is_ready:
            return False
        followers = [self._replica(broker) for broker in self._score.brokers if broker != leader]
        known = all(each is not None and each.reign.leader_epoch == replica.reign.leader_epoch for each in followers)
        return known and {*replica.reign.isr} == {*self._score.brokers} and self._producer.is_prepared

    def _begin(self) -> None:
        leader = self._replica(self._score.brokers[0])
        assert leader is not None
        self._first_epoch = leader.reign.leader_epoch
        self._min_isr = leader.min_isr
        replicas = frozenset(leader.reign.replicas)
        self._decisions = [Decision(0, leader.reign.leader, frozenset(leader.reign.isr), replicas)]
        self._call()

    # ---- cues

    def _set_stage(self, cue: Cue) -> None:
        self._came.clear()
        if cue.fetches_late and cue.broker not in self._fetching:
            self._wait_for_fetch(cue)
        elif self._has_to_turn(cue):
            self._turn_to(cue.leader)
            self._world.after(TURN_MS * MICROSECONDS_A_MS, self._cue_in, cue)
        else:
            self._cue_in(cue)

    def _wait_for_fetch(self, cue: Cue) -> None:
        """Until a fetch of a broker is on its way, to arrive when the broker has begun another life."""
        self._fetching.add(cue.broker)
        self._cluster.network.look_again()
        self._world.after(TURN_MS * MICROSECONDS_A_MS, self._call)

    def _bound_ms(self, cue: Cue) -> int:
        return OWN_ACCORD_MS if cue.action in OWN_ACCORD else WITHIN_MS.get(cue.action, DEFAULT_WITHIN_MS)

    def _may_be_passed_by(self, cue: Cue) -> bool:
        return cue.action in OWN_ACCORD

    def _act(self, cue: Cue) -> None:
        if cue.action not in WHILE_UNHEARD:
            for broker, number in self._to_hear.items():
                self._let_hear(broker, number)
            self._to_hear.clear()
        if cue.action in REPLAYS:
            self._replay(cue)
        act = ACTS.get(cue.action)
        if act is not None:
            act(self, cue)

    def _replay(self, cue: Cue) -> None:
        """A broker may hear of more. A leader that has its answer due hears of a new setting later than of the ISR: not before
        the next step that needs it."""
        number = self._numbers.get(cue.decision, 0)
        replica = self._replica(cue.broker)
        settings = any(each.is_setting for each in self._decisions[self._heard[cue.broker] + 1 : number + 1])
        if cue.action == "CommitIsr" and settings and replica is not None and replica.pending is not None:
            self._to_hear[cue.broker] = number
        else:
            self._let_hear(cue.broker, number)

    def _let_hear(self, broker: int, number: int) -> None:
        self._heard[broker] = max(self._heard[broker], number)

    def _on_made(self, cue: Cue) -> None:
        if cue.action in BEGINS:
            self._registered.pop(cue.broker, None)
        if cue.action == "ExpandIsr":
            self._fetching.discard(cue.other)
        if cue.action in CONTROLLERS_STEPS:
            self._numbers[cue.decision] = len(self._decisions) - 1

    def _has_to_turn(self, cue: Cue) -> bool:
        """Whether the controller might choose another leader than the score's: it takes the first replica that may lead."""
        return cue.action in BROKERS_STEPS and cue.leader not in (-1, self._decisions[-1].leader)

    def _turn_to(self, broker: int) -> None:
        """Make a broker the preferred one, where it is to have a replica."""
        assert self._cluster.operator is not None
        self._cluster.operator.take(self._operation("reassign", broker))

    def _operation(self, kind: Any, first: int) -> Fault:
        replicas = self._decisions[-1].replicas if self._decisions else self._score.brokers
        return Fault(at_ms=0, kind=kind, topic=self._score.topic, others=self._in_order(replicas, first))

    def _in_order(self, replicas: Collection[int], first: int) -> tuple[int, ...]:
        """Replicas as the score names them, but for one that comes first, if it is among them."""
        named = [broker for broker in self._score.all_brokers if broker in replicas]
        return tuple(sorted(named, key=lambda broker: broker != first))

    # ---- the end

    def _play_end(self) -> None:
        """Everything but fetches is held up still, while one more record is produced."""
        if self._cluster.machine(self._last_producing).is_up:
            self._producer.produce(self._last_producing, "all")

    def _on_leaving(self) -> None:
        self._producer.retire()

    # ---- acts

    def _elect(self, broker: int) -> None:
        assert self._cluster.operator is not None
        self._turn_to(broker)
        self._cluster.operator.take(self._operation("elect-preferred", broker))

    def _elect_for(self, cue: Cue) -> None:
        self._elect(cue.broker)

    def _reassign(self, cue: Cue) -> None:
        """Whoever leads next comes first: the controller takes the first replica that may lead, once a leader is dropped."""
        led = self._decisions[-1].leader
        following = (each.leader for each in self._cues[self._place :] if each.leader not in (-1, led))
        first = next(following, led)
        self._operate("reassign", others=self._in_order(cue.replicas, first))

    def _call_off(self, cue: Cue) -> None:
        self._operate("reassign")

    def _change_min_isr(self, cue: Cue) -> None:
        if self._min_isr != cue.min_isr:
            self._operate("config", configs={"min.insync.replicas": str(cue.min_isr)})

    def _operate(self, kind: Any, **more: Any) -> None:
        assert self._cluster.operator is not None
        self._cluster.operator.take(Fault(at_ms=0, kind=kind, topic=self._score.topic, **more))

    def _crash(self, cue: Cue) -> None:
        machine = self._cluster.machine(cue.broker)
        if cue.loses_tail:
            machine.lose_power(NothingSurvives())
        else:
            machine.crash()

    def _stop(self, cue: Cue) -> None:
        self._cluster.machine(cue.broker).stop()

    def _start(self, cue: Cue) -> None:
        self._registered[cue.broker] = NOT_YET
        self._cluster.machine(cue.broker).start()

    def _produce(self, cue: Cue) -> None:
        self._last_producing = cue.broker
        self._producer.produce(cue.broker, cue.acks)

    def _retry(self, cue: Cue) -> None:
        self._producer.retry(cue.broker)


Act = Callable[[ReplicationConductor, Cue], None]
ACTS: dict[str, Act] = {
    "ElectLeader": ReplicationConductor._elect_for,
    "Reassign": ReplicationConductor._reassign,
    "CallOffReassignment": ReplicationConductor._call_off,
    "ChangeMinIsr": ReplicationConductor._change_min_isr,
    "Crash": ReplicationConductor._crash,
    "ShutDown": ReplicationConductor._stop,
    "ControlledShutdown": ReplicationConductor._stop,
    "Restart": ReplicationConductor._start,
    "Produce": ReplicationConductor._produce,
    "Retry": ReplicationConductor._retry,
}
"""Steps that somebody has to do something for, beyond letting messages pass."""
