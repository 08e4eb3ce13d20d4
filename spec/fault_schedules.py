"""Behaviours of the specification as fault schedules: what a simulated cluster has to suffer to be led where the model went.

A behaviour's steps are given places on a time line, wide enough for what they take in a cluster. Faults are made of those
that are somebody's doing: lives end and begin, live brokers are fenced for being cut off, leaderships move, members lag.
Between who is to miss a record, because something else happens before it hears of it, and its leader the connection is cut
for that time. Everything else, the protocol's own steps, is left to the cluster, so that a schedule only leads near a
behaviour: seeds draw what is left. The value is `linearizability.simulation`'s, format tidegauge-schedule/1, and is run by
`tidegauge replay`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

TOPIC = "orders"
FIRST_MS = {2: 500, 3: 900}
"""By the number of replicas: when the first step has its place. By then the first leader leads."""
AFTER_MS = 400
BATCH_MS = 20
"""A record is produced so often."""

DEFAULT_MS = 15
WIDTHS_MS = {
    "FenceBroker": 900,
    "ShrinkIsr": 650,
    "ControlledShutdown": 300,
    "ElectLeader": 150,
    "ElectUncleanLeader": 300,
    "RegisterBroker": 150,
    "UnfenceBroker": 150,
    "BecomeLeader": 60,
    "Produce": 40,
    "Retry": 40,
}
"""How long a step may take in a cluster; broker.session.timeout.ms is 600 there, replica.lag.time.max.ms 400."""

CONTINUAL = {"Produce", "AnswerFetch", "AppendFetched", "AdvanceHighWatermark", "AdoptHighWatermark", "Acknowledge"}
"""Steps that a busy cluster takes all the time: what follows one at once in the behaviour waits for one here."""

ROUNDS = 4
"""So often a cluster is led along one behaviour."""

SLOW_BY_MS = 250
SLOW_FOR_MS = 700

DISTURBING = {"Crash", "FenceBroker", "ElectLeader", "ElectUncleanLeader", "ShrinkIsr", "ControlledShutdown"}
HEARING = {"AppendFetched", "Truncate"}
ACKS = {"all": "all", "one": "1", "zero": "0"}

MUTANT_OF: dict[str, tuple[str, int]] = {
    "AcknowledgeBeforeHighWatermark": ("acknowledged-before-commit", 0),
    "ElectOutsideIsr": ("unclean-election", 0),
    "IgnoreMinIsr": ("min-isr-ignored", 0),
    "IgnoreProposedIsr": ("kip-497", 0),
    "LastReplicaStanding": ("kip-966", 0),
    "ServeBeforeReplay": ("replay-skipped", 0),
    "TruncateToHighWatermark": ("kip-101-loss", 0),
}
"""Switch -> the mutant with the same bug (linearizability/mutants), and a seed with which its counterexample fails."""

SEVERAL_CHANGES = "two changes of leader that different brokers hear of in different orders: few seeds were tried"
NOT_LED_TO = {
    "TruncateByRequestedEpoch": SEVERAL_CHANGES,
    "TruncateWithoutFencing": SEVERAL_CHANGES,
    "FetchWithoutFencing": SEVERAL_CHANGES,
    "RollBackCommittedIsr": "an answer to AlterPartition has to be lost, and its retry not: no fault of a schedule does that",
    "AdmitStaleBrokerEpoch": "a life has to end between a fetch and the proposal that follows from it: seven seeds missed it",
    "AdmitFencedBroker": "a fenced broker has to be proposed; the leader proposes none that it knows to be fenced",
    "ForgetSequences": "an answer to a producer has to be lost; the mutants that forget sequences differ from the switch",
}
"""Switches whose counterexample fails with no seed tried so far, and why; `tidegauge fuzz --mutant` finds their bugs."""

Event = Mapping[str, Any]
Fault = dict[str, Any]


def fault_schedule(behaviour: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The schedule of one line of `tidegauge spec behaviours`."""
    begin, *events = behaviour["events"]
    steps = [event for event in events if event["action"] not in ("BecomeLeader", "BecomeFollower") or _is_later(event)]
    line = TimeLine(begin, steps)
    faults = sorted(line.faults(), key=lambda fault: fault["at_ms"])
    acks = {ACKS[step["args"]["acks"]] for step in steps if step["action"] == "Produce"} or {"all"}
    unclean = any(step["action"] == "ElectUncleanLeader" for step in steps)
    configs = {"min.insync.replicas": str(begin["minIsr"]), "unclean.leader.election.enable": str(unclean).lower()}
    producers = [
        {"kind": "producer", "acks": each, "batches": line.end_ms // BATCH_MS, "records": 1, "pause_ms": BATCH_MS}
        for each in sorted(acks)
    ]
    return {
        "format": "tidegauge-schedule/1",
        "seed": seed,
        # One more than a majority of replicas: where two of them do not hear each other, the controller still hears both.
        "nodes": 2 * len(begin["brokers"]) - 1,
        "duration_ms": line.end_ms,
        "topics": [{"name": TOPIC, "configs": configs}],
        "clients": [*producers, {"kind": "consumer", "start": "earliest"}],
        "faults": faults,
    }


def _is_later(event: Event) -> bool:
    """Not the first reign's, with which every trace begins."""
    return event["args"]["leaderEpoch"] > 0


def _takes_part(step: Event) -> set[int]:
    """The brokers whose step it is, or of whom it is."""
    named = step["args"]
    return {named[name] for name in ("broker", "follower", "leader") if name in named}


class TimeLine:
    """The steps of one behaviour and their times."""

    def __init__(self, begin: Event, steps: Sequence[Event]) -> None:
        self._leader = begin["partition"]["leader"]
        self._brokers: list[int] = begin["brokers"]
        self._steps = steps
        self._times: list[int] = []
        now_ms = FIRST_MS[len(self._brokers)]
        for step in steps:
            self._times.append(now_ms)
            now_ms += WIDTHS_MS.get(step["action"], DEFAULT_MS)
        self._round_ms = now_ms + AFTER_MS
        self.end_ms = ROUNDS * self._round_ms

    def faults(self) -> Iterator[Fault]:
        """All that is to be done to the cluster, in all rounds."""
        once = [*self._once()]
        for turn in range(ROUNDS):
            yield from (fault | {"at_ms": fault["at_ms"] + turn * self._round_ms} for fault in once)

    def _once(self) -> Iterator[Fault]:
        yield self._lead(self._leader, 50)
        for place, step in enumerate(self._steps):
            at_ms = self._times[place]
            match step["action"]:
                case "Crash":
                    yield self._down("power-loss" if self._loses_tail(place) else "crash", place)
                case "ShutDown":
                    yield self._down("stop", place)
                case "FenceBroker" if self._is_up(step["args"]["broker"], place):
                    yield self._until("isolate", place, "UnfenceBroker")
                case "ShrinkIsr":
                    arguments = step["args"]
                    for_ms = self._time_of_next("ExpandIsr", arguments["follower"], place) - at_ms
                    yield self._cut(arguments["follower"], arguments["leader"], at_ms - 100, for_ms)
                case "ExpandIsr":
                    yield self._slow_by_half(step["args"]["leader"], at_ms)
                case "ElectLeader":
                    yield self._lead(step["args"]["broker"], at_ms) | self._trap(place)
                    yield from (self._slow_by_half(broker, at_ms) for broker in self._late_to_hear(place))
                case _:
                    pass
        yield from self._lags()

    def _lead(self, broker: int, at_ms: int) -> Fault:
        others = (broker, *(each for each in self._brokers if each != broker))
        return {"at_ms": at_ms, "kind": "lead", "topic": TOPIC, "others": others}

    def _cut(self, follower: int, leader: int, at_ms: int, for_ms: int) -> Fault:
        return {"at_ms": at_ms, "kind": "cut", "node": follower, "others": (leader,), "for_ms": for_ms}

    def _slow_by_half(self, broker: int, at_ms: int) -> Fault:
        """Some of a broker's connections are slow, which of them the seed decides: it may hear of its leader, and not of
        the controller."""
        return {"at_ms": at_ms - 50, "kind": "uneven", "node": broker, "for_ms": SLOW_FOR_MS, "amount": SLOW_BY_MS}

    def _late_to_hear(self, place: int) -> Iterator[int]:
        """Brokers that go on in the reign before, after the controller has begun another."""
        for broker in self._brokers:
            later = (step for step in self._steps[place + 1 :] if broker in _takes_part(step))
            following = next(later, None)
            if following is not None and following["action"] not in ("BecomeLeader", "BecomeFollower"):
                yield broker

    def _time_of_next(self, action: str, broker: int, place: int) -> int:
        """When a later step of this kind happens to a broker; the end, where none does."""
        for later in range(place + 1, len(self._steps)):
            step = self._steps[later]
            if step["action"] == action and broker in _takes_part(step):
                return self._times[later]
        return self._round_ms

    def _until(self, kind: str, place: int, action: str) -> Fault:
        broker, at_ms = self._steps[place]["args"]["broker"], self._times[place]
        return {
            "at_ms": at_ms,
            "kind": kind,
            "node": broker,
            "for_ms": self._time_of_next(action, broker, place) - at_ms,
        }

    def _down(self, kind: str, place: int) -> Fault:
        return self._until(kind, place, "Restart") | self._trap(place)

    def _trap(self, place: int) -> Fault:
        """What follows a step that happens all the time strikes when one has happened."""
        before = self._steps[place - 1]["action"] if place else ""
        return {"after": before} if before in CONTINUAL else {}

    def _loses_tail(self, place: int) -> bool:
        broker, end = self._steps[place]["args"]["broker"], self._steps[place]["leo"]
        later = (step for step in self._steps[place:] if step["action"] == "Restart")
        return next((step["args"]["end"] < end for step in later if step["args"]["broker"] == broker), False)

    def _is_up(self, broker: int, place: int) -> bool:
        about = [step["action"] for step in self._steps[:place] if step["args"].get("broker") == broker]
        lives = [action for action in about if action in ("Crash", "ShutDown", "Restart")]
        return not lives or lives[-1] == "Restart"

    def _lags(self) -> Iterator[Fault]:
        """Who is to hear of a record only after something else has happened is cut off from its leader until then."""
        for place, step in enumerate(self._steps):
            if step["action"] not in ("Produce", "Retry"):
                continue
            leader = step["args"]["leader"]
            for follower in self._brokers:
                heard = self._heard(follower, place)
                between = {each["action"] for each in self._steps[place:heard]}
                if follower != leader and between & DISTURBING:
                    until_ms = self._times[heard] if heard < len(self._steps) else self._round_ms
                    yield self._cut(follower, leader, self._times[place] - 5, until_ms - self._times[place])

    def _heard(self, follower: int, place: int) -> int:
        """The place at which a follower hears of what stands at this place."""
        for later in range(place + 1, len(self._steps)):
            step = self._steps[later]
            if step["action"] in HEARING and step["args"]["follower"] == follower:
                return later
        return len(self._steps)
