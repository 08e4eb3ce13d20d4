"""The conductor: plays a score on a cluster, step by step.

Whatever passes between the score's brokers and may be part of a step waits on the wire until the step's cue. What changes
nothing passes, a little late: an idle follower's fetch, which keeps it in the ISR, and the heartbeats of brokers that are
not fenced. A cue is over when the cluster's state shows the step, so that one that came with the step before is passed by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from linearizability.simulation.client import SimulatedClient
from linearizability.simulation.gates import Gates
from linearizability.simulation.prompting import PromptedProducer
from linearizability.simulation.schedule import Fault, Producer
from linearizability.simulation.score import Cue, Score
from linearizability.simulation.traffic import Message
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode
from reference.replication.partition import Partition

if TYPE_CHECKING:
    from linearizability.simulation.life import Cluster

BEAT_MS = 2
"""So often the conductor looks whether a step was made."""
IDLE_MS = 20
"""So long a message waits that changes nothing."""
TURN_MS = 40
"""What an operator's reordering of the replicas takes."""
READY_WITHIN_MS = 15_000
LAST_MS = 60
"""So long everything but fetches is held up after the last step, too, while one more record is produced: what the steps
brought about shows."""
CODA_MS = 3_000

WITHIN_MS = {
    "FenceBroker": 2_500, "RegisterBroker": 2_000, "UnfenceBroker": 1_000, "ElectLeader": 1_000, "ShrinkIsr": 4_000,
    "ControlledShutdown": 1_000, "ShutDown": 8_000, "ElectUncleanLeader": 1_500, "BecomeLeader": 800,
    "BecomeFollower": 800, "Reassign": 1_000,
}  # fmt: skip
"""How long a step may take; broker.session.timeout.ms is 600, replica.lag.time.max.ms 1500, while a score is played."""
DEFAULT_WITHIN_MS = 300

OWN_ACCORD_MS = 60
OWN_ACCORD = frozenset({"Acknowledge", "Consume", "AdvanceHighWatermark", "AdoptHighWatermark"})
"""Steps that nobody can be made to take: they come at once, came before already, or are done without."""

BROKERS_STEPS = frozenset({"RegisterBroker", "UnfenceBroker", "FenceBroker", "ControlledShutdown"})
CONTROLLERS_STEPS = BROKERS_STEPS | {"AlterPartition", "ElectLeader", "ElectUncleanLeader", "Reassign"}
FOLLOWERS_STEPS = frozenset({"AppendFetched", "AdoptHighWatermark", "Truncate"})
LEADERS_STEPS = frozenset({"AnswerFetch", "ExpandIsr"})
FETCHING = frozenset({"fetch", "fetch-answer"})
FENCING = frozenset({"RegisterBroker", "FenceBroker", "ControlledShutdown"})
BEGINS = frozenset({"BecomeLeader", "BecomeFollower"})


CODA = Producer(batches=5, records=1, pause_ms=20)
"""Who produces once the score is over."""

NOT_YET = -1


class Decision(NamedTuple):
    """A change of the partition by the controller."""

    end: int
    """Where it ends in the metadata log."""
    leader: int
    isr: frozenset[int]


class NothingSurvives(Random):
    """Chance as bad as it can be: a power failure takes all that was not fsynced."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return start

    def random(self) -> float:
        return 1.0


class Conductor:
    """Plays one score; a doorkeeper of the network's gates meanwhile."""

    def __init__(self, cluster: Cluster, score: Score, producer: PromptedProducer) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._score = score
        self._producer = producer
        self._key = score.topic, 0
        self._place = 0
        self._cue: Cue | None = None
        """The step that may be made now; none while the stage is set for it."""
        self._until_us = 0
        self._decisions: list[Decision] = []
        self._numbers: dict[int, int] = {0: 0}
        """The specification's number of a decision -> the cluster's, which may have needed more of them."""
        self._heard: dict[int, int] = dict.fromkeys(score.brokers, 0)
        """Up to which decision each broker may hear of the metadata."""
        self._registered: dict[int, int] = {}
        """Brokers in a new life that have not taken up their replicas, and where their registration ends."""
        self._fenced: set[int] = set()
        self._came: set[tuple[str, int]] = set()
        """Steps since the cue, and whose they are."""
        self._first_epoch = 0
        self._last_producing = score.brokers[0]
        self._is_ending = False
        self._fetching: set[int] = set()
        """Brokers whose next fetch waits, for it is to outlive them."""
        self._coda: SimulatedClient | None = None
        self._coda_until_us = 0

    @property
    def _gates(self) -> Gates:
        assert self._cluster.network.gates is not None
        return self._cluster.network.gates

    # ---- beginning and end

    @property
    def is_over(self) -> bool:
        if self._coda is None:
            return False
        return self._coda.finished or self._world.now_us > self._coda_until_us

    def start(self) -> None:
        """The first broker begins a reign in which nobody has fetched yet: the specification's first state."""
        first, second, *_ = self._score.brokers
        self._wait_for(first, lambda: self._change_leader(second))

    def _change_leader(self, second: int) -> None:
        first = self._score.brokers[0]
        self._elect(second)
        self._wait_for(second, lambda: self._change_back(first))

    def _change_back(self, first: int) -> None:
        self._gates.doorkeeper = self
        self._elect(first)
        self._wait_for(first, self._begin)

    def _wait_for(self, leader: int, then: Callable[[], None]) -> None:
        """Until a broker leads, all are in sync and know of it."""
        until_us = self._world.now_us + READY_WITHIN_MS * MICROSECONDS_A_MS

        def look() -> None:
            if self._are_ready(leader):
                then()
            elif self._world.now_us > until_us:
                self._leave()
            else:
                self._world.after(BEAT_MS * MICROSECONDS_A_MS, look)

        look()

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
        self._decisions = [Decision(0, leader.reign.leader, frozenset(leader.reign.isr))]
        self._call()

    def _finish(self) -> None:
        """Every step was made."""
        self._is_ending = True
        if self._cluster.machine(self._last_producing).is_up:
            self._producer.produce(self._last_producing, "all")
        self._cluster.network.look_again()
        self._world.after(LAST_MS * MICROSECONDS_A_MS, self._leave)

    def _leave(self) -> None:
        """From here on the cluster is left alone, and has to work."""
        self._cue = None
        self._gates.doorkeeper = None
        self._cluster.network.look_again()
        for broker in self._score.brokers:
            self._cluster.machine(broker).start()
        self._producer.retire()
        self._coda = self._cluster.add_client(CODA)
        self._coda_until_us = self._world.now_us + CODA_MS * MICROSECONDS_A_MS

    # ---- cues

    def _call(self) -> None:
        """Begin with the next cue."""
        if self._place == len(self._score.cues):
            self._finish()
            return
        cue = self._score.cues[self._place]
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

    def _cue_in(self, cue: Cue) -> None:
        self._cue = cue
        self._world.trace.note(f"cue {self._place} {cue.action} {cue.broker}")
        if self._world.trace.keep:
            self._world.trace.tell("world", "world", f"cue {self._place}: {cue.action} {cue.broker}")
        bound_ms = OWN_ACCORD_MS if cue.action in OWN_ACCORD else WITHIN_MS.get(cue.action, DEFAULT_WITHIN_MS)
        self._until_us = self._world.now_us + bound_ms * MICROSECONDS_A_MS
        if cue.action in BEGINS or cue.action == "CommitIsr":
            self._heard[cue.broker] = max(self._heard[cue.broker], self._numbers.get(cue.decision, 0))
        act = ACTS.get(cue.action)
        if act is not None:
            act(self, cue)
        self._beat()

    def _beat(self) -> None:
        cue = self._cue
        if cue is None:
            return
        if DONE[cue.action](self, cue) or (cue.action in OWN_ACCORD and self._world.now_us > self._until_us):
            if cue.action in BEGINS:
                self._registered.pop(cue.broker, None)
            if cue.action == "ExpandIsr":
                self._fetching.discard(cue.other)
            if cue.action in CONTROLLERS_STEPS:
                self._numbers[cue.decision] = len(self._decisions) - 1
            self._place += 1
            self._world.counts["cues"] += 1
            self._cue = None
            self._call()
        elif self._world.now_us > self._until_us:
            self._leave()
        else:
            self._cluster.network.look_again()
            self._world.after(BEAT_MS * MICROSECONDS_A_MS, self._beat)

    def _has_to_turn(self, cue: Cue) -> bool:
        """Whether the controller might choose another leader than the score's: it takes the first replica that may lead."""
        return cue.action in BROKERS_STEPS and cue.leader not in (-1, self._decisions[-1].leader)

    def _turn_to(self, broker: int) -> None:
        """Make a broker the preferred one."""
        assert self._cluster.operator is not None
        self._cluster.operator.take(self._operation("reassign", broker))

    def _operation(self, kind: Any, first: int) -> Fault:
        others = (first, *(each for each in self._score.brokers if each != first))
        return Fault(at_ms=0, kind=kind, topic=self._score.topic, others=others)

    # ---- acts

    def _elect(self, broker: int) -> None:
        assert self._cluster.operator is not None
        self._turn_to(broker)
        self._cluster.operator.take(self._operation("elect-preferred", broker))

    def _elect_for(self, cue: Cue) -> None:
        self._elect(cue.broker)

    def _reassign(self, cue: Cue) -> None:
        assert self._cluster.operator is not None
        self._cluster.operator.take(Fault(at_ms=0, kind="reassign", topic=self._score.topic, others=cue.replicas))

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

    # ---- what has happened

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
        if action in FENCING:
            self._fenced.add(broker)
        elif action == "UnfenceBroker":
            self._fenced.discard(broker)
        if action == "RegisterBroker" and broker in self._registered:
            self._registered[broker] = row["offset"]
        changed = (row.get("partitions") or {}).get(f"{self._score.topic}-0")
        if changed is not None and action != "End" and (action != "Reassign" or self._is_reassigning()):
            self._decisions.append(Decision(row["offset"], changed["leader"], frozenset(changed["isr"])))

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

    # ---- what must wait

    def holds(self, message: Message) -> bool:
        """Whether a message has no cue yet."""
        if message.asker not in self._score.brokers or (self._is_ending and message.kind in FETCHING):
            return False
        return HOLDS[message.kind](self, message)

    def loses(self, message: Message) -> bool:
        """A proposal is refused as stale for an earlier copy was accepted, and the answer to that never came."""
        return self._is_cue(message, "RollBackIsr") and message.kind == "proposal-answer" and not _refuses(message.body)

    def _is_cue(self, message: Message, *actions: str) -> bool:
        return self._cue is not None and self._cue.action in actions and self._cue.broker == message.asker

    def _is_between(self, message: Message, followers: frozenset[str], leaders: frozenset[str]) -> bool:
        """Whether the cue is a step of the two: of the follower that asks, or of the leader that is asked."""
        cue = self._cue
        if cue is None:
            return False
        pair = message.asker, message.asked
        return (cue.action in followers and (cue.broker, cue.other) == pair) or (
            cue.action in leaders and (cue.other, cue.broker) == pair
        )

    def _holds_fetch(self, message: Message) -> bool:
        if self._is_between(message, FOLLOWERS_STEPS, LEADERS_STEPS):
            return False
        if self._is_between(message, frozenset(), frozenset({"ShrinkIsr"})):
            return True
        if message.asker in self._fetching:
            return True
        waited_us = self._world.now_us - message.since_us
        return waited_us < IDLE_MS * MICROSECONDS_A_MS or not self._is_idle(message)

    def _is_idle(self, message: Message) -> bool:
        """Whether a fetch tells its leader nothing that counts."""
        leader = self._replica(message.asked)
        progress = leader.followers.get(message.asker) if leader is not None and leader.is_leader else None
        if leader is None or progress is None or message.asker not in leader.reign.isr:
            return False
        asked = _partition_of(message.body.topics)
        if asked is not None and asked.current_leader_epoch != leader.reign.leader_epoch:
            return False
        end = asked.fetch_offset if asked is not None else self._end_of(message.asker)
        if progress.end < 0:
            return end <= leader.high_watermark and not self._is_to_leave(message.asker, message.asked)
        return end == progress.end and progress.broker_epoch == message.body.replica_state.replica_epoch

    def _end_of(self, broker: int) -> int:
        replica = self._replica(broker)
        return replica.log.log_end_offset if replica is not None else NOT_YET

    def _is_to_leave(self, follower: int, leader: int) -> bool:
        """Whether a follower is to leave the ISR before it has fetched in this reign."""
        for cue in self._score.cues[self._place :]:
            if (cue.broker, cue.other) == (leader, follower) and cue.action in ("AnswerFetch", "ShrinkIsr"):
                return cue.action == "ShrinkIsr"
        return False

    def _holds_fetch_answer(self, message: Message) -> bool:
        data, follower = _partition_of(message.body.responses), self._replica(message.asker)
        if data is None or follower is None or data.error_code != ErrorCode.NONE:
            return False
        if follower.is_leader or follower.reign.leader != message.asked:
            return False
        brings = bool(data.records) or data.diverging_epoch.epoch >= 0
        if not brings and min(data.high_watermark, follower.log.log_end_offset) == follower.high_watermark:
            return False
        if not brings and message.asker in self._fetching:
            return False
        return not self._is_between(message, FOLLOWERS_STEPS, frozenset() if brings else LEADERS_STEPS)

    def _holds_metadata(self, message: Message) -> bool:
        broker = message.asker
        data = _partition_of(message.body.responses)
        if data is None or data.error_code != ErrorCode.NONE:
            return False
        registered = self._registered.get(broker, NOT_YET)
        if registered != NOT_YET and data.high_watermark >= registered and not self._is_cue(message, *BEGINS):
            return True
        following = self._heard[broker] + 1
        return following < len(self._decisions) and data.high_watermark >= self._decisions[following].end

    def _holds_proposal(self, message: Message) -> bool:
        return not self._is_cue(message, "AlterPartition", "RollBackIsr")

    def _holds_proposal_answer(self, message: Message) -> bool:
        return not self._is_cue(message, "CommitIsr", "RollBackIsr", *BEGINS)

    def _holds_registration(self, message: Message) -> bool:
        return not self._is_cue(message, "RegisterBroker")

    def _holds_heartbeat(self, message: Message) -> bool:
        if message.asker in self._fenced:
            return not self._is_cue(message, "UnfenceBroker", "ShutDown")
        return self._is_cue(message, "FenceBroker", "ShutDown")


Act = Callable[[Conductor, Cue], None]
ACTS: dict[str, Act] = {
    "ElectLeader": Conductor._elect_for,
    "Reassign": Conductor._reassign,
    "Crash": Conductor._crash,
    "ShutDown": Conductor._stop,
    "ControlledShutdown": Conductor._stop,
    "Restart": Conductor._start,
    "Produce": Conductor._produce,
    "Retry": Conductor._retry,
}
"""Steps that somebody has to do something for, beyond letting messages pass."""

DONE: dict[str, Callable[[Conductor, Cue], bool]] = {
    "RegisterBroker": Conductor._has_come,
    "UnfenceBroker": Conductor._has_come,
    "FenceBroker": Conductor._has_come,
    "ControlledShutdown": Conductor._has_come,
    "AlterPartition": Conductor._has_come,
    "ElectLeader": Conductor._has_come,
    "ElectUncleanLeader": Conductor._has_come,
    "Reassign": Conductor._has_come,
    "BecomeLeader": Conductor._has_begun,
    "BecomeFollower": Conductor._has_begun,
    "CommitIsr": Conductor._has_committed,
    "AnswerFetch": Conductor._has_answered,
    "AppendFetched": Conductor._ends_at,
    "AdoptHighWatermark": Conductor._is_marked,
    "Truncate": Conductor._ends_at,
    "AdvanceHighWatermark": Conductor._is_marked,
    "ExpandIsr": Conductor._proposes_more,
    "ShrinkIsr": Conductor._proposes_less,
    "RollBackIsr": Conductor._proposes_nothing,
    "Crash": Conductor._is_down,
    "ShutDown": Conductor._is_down,
    "Restart": Conductor._is_up,
    "Produce": Conductor._ends_at,
    "Retry": Conductor._ends_at,
    "Acknowledge": Conductor._has_come,
    "Consume": Conductor._has_come,
}
"""By what a step is seen to have been made."""

HOLDS: dict[str, Callable[[Conductor, Message], bool]] = {
    "fetch": Conductor._holds_fetch,
    "fetch-answer": Conductor._holds_fetch_answer,
    "metadata-fetch": lambda conductor, message: False,
    "metadata": Conductor._holds_metadata,
    "proposal": Conductor._holds_proposal,
    "proposal-answer": Conductor._holds_proposal_answer,
    "registration": Conductor._holds_registration,
    "heartbeat": Conductor._holds_heartbeat,
}
"""By the kind of a message: whether it must wait."""


def _partition_of(topics: Any) -> Any:
    """The only partition of a fetch, or of the answer to one; None where it says nothing of it."""
    return next((partition for topic in topics for partition in topic.partitions), None)


def _refuses(body: Any) -> bool:
    """Whether an answer to AlterPartition refuses the proposal."""
    codes = [body.error_code, *(each.error_code for topic in body.topics for each in topic.partitions)]
    return any(code != ErrorCode.NONE for code in codes)
