"""Behaviours of the specification as schedules: a simulated cluster is led through the steps, one by one.

Each step becomes a cue of a score (`linearizability/simulation/score.py`): what passes between brokers waits until a step
needs it, and what is somebody's doing (a crash, an election, a record that is produced) is done when its turn comes. The
cluster takes a step only where its own rules allow it: a sound one follows a behaviour of the sound specification to its
end, and leaves a counterexample at the latest at the step that the switch allows. With the mutant that has the same bug it
goes on, and breaks the promise. The value is format tidegauge-schedule/1, and is run by `tidegauge replay`. Behaviours of
coordinators have a module of their own, `coordinator_schedules.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spec.coordinator_schedules import LONGEST_MS, coordinator_schedule
from spec.quorum_schedules import quorum_schedule

TOPIC = "orders"
PROPERTIES = {
    "replica.lag.time.max.ms": "1500",
    "broker.session.timeout.ms": "600",
    "controller.quorum.request.timeout.ms": "30000",
    "controller.quorum.fetch.timeout.ms": "30000",
    "replica.fetch.wait.max.ms": "20",
    "replica.fetch.backoff.ms": "10",
}
"""Nobody loses patience with what is held up, but for those whose losing it is a step."""

ACKS = {"all": "all", "one": "1", "zero": "0"}
SECOND_BROKERS = ("leader", "follower")
NOBODY = -1

MUTANT_OF: dict[str, str] = {
    "AcknowledgeBeforeHighWatermark": "acks-all-as-one",
    "AdmitFencedBroker": "fencing-unnoticed",
    "AdmitStaleBrokerEpoch": "former-life-unnoticed",
    "CommitBeforeMinIsr": "commit-before-min-isr",
    "ElectOutsideIsr": "unclean-election",
    "FetchWithoutFencing": "fetch-without-fencing",
    "ForgetSequences": "duplicate-appended",
    "IgnoreMinIsr": "min-isr-ignored",
    "IgnoreProposedIsr": "kip-497",
    "KeepDroppedEligible": "dropped-kept-eligible",
    "LastReplicaStanding": "kip-966",
    "RollBackCommittedIsr": "stale-proposal-rolled-back",
    "ServeBeforeReplay": "replay-skipped",
    "TruncateByRequestedEpoch": "kip-279",
    "TruncateToHighWatermark": "kip-101-loss",
    "TruncateWithoutFencing": "fetch-without-fencing",
}
"""Switch -> the mutant with the same bug (linearizability/mutants)."""

Event = Mapping[str, Any]
Cue = dict[str, Any]


def fault_schedule(behaviour: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The schedule of one line of `tidegauge spec behaviours`."""
    begin, *events = behaviour["events"]
    if "voters" in begin:
        return quorum_schedule(behaviour, seed)
    if "brokers" not in begin:
        return coordinator_schedule(behaviour, seed)
    steps = [event for event in events if not _is_of_the_first_reign(event)]
    first = begin["partition"]
    brokers = sorted(first["replicas"], key=lambda broker: (broker != first["leader"], broker))
    others = sorted({*begin["brokers"]} - {*brokers})
    controller = max(begin["brokers"]) + 1
    unclean = any(step["action"] == "ElectUncleanLeader" for step in steps)
    configs = {"min.insync.replicas": str(begin["minIsr"]), "unclean.leader.election.enable": str(unclean).lower()}
    return {
        "format": "tidegauge-schedule/1",
        "seed": seed,
        "nodes": controller,
        "voters": [controller],
        "duration_ms": LONGEST_MS,
        "properties": PROPERTIES,
        "topics": [{"name": TOPIC, "configs": configs, "replicas": brokers}],
        "clients": [{"kind": "consumer", "start": "earliest"}],
        "score": {
            "topic": TOPIC,
            "brokers": brokers,
            "others": others,
            "idempotent": any(step["action"] == "Retry" for step in steps),
            "cues": [_cue(place, steps) for place in range(len(steps))],
        },
    }


def _is_of_the_first_reign(event: Event) -> bool:
    """Every trace begins with the first reign, and so does every cluster."""
    return event["action"] in ("BecomeLeader", "BecomeFollower") and event["args"]["partitionEpoch"] == 0


def _cue(place: int, steps: Sequence[Event]) -> Cue:
    step = steps[place]
    named = step["args"]
    cue: Cue = {"action": step["action"]}
    if "partition" in step:
        cue |= {"broker": named.get("broker", named.get("leader", NOBODY)), "leader": step["partition"]["leader"]}
        if step["action"] == "Reassign":
            cue["replicas"] = named["replicas"]
        if "minIsr" in named:
            cue["min_isr"] = named["minIsr"]
        return cue | {"decision": step["partition"]["partitionEpoch"]}
    cue["broker"] = step["node"]
    other = next((named[name] for name in SECOND_BROKERS if named.get(name, step["node"]) != step["node"]), NOBODY)
    if other != NOBODY:
        cue["other"] = other
    if "partitionEpoch" in named:
        cue["decision"] = named["partitionEpoch"]
    if step["action"] == "LearnMinIsr":
        cue |= {"decision": _newest(steps[:place])["partitionEpoch"], "min_isr": named["minIsr"]}
    if step["action"] == "GiveUpReplica":
        cue["decision"] = _newest(steps[:place], without=step["node"])["partitionEpoch"]
    if "leaderEpoch" in named:
        cue["leader_epoch"] = named["leaderEpoch"]
    if "acks" in named:
        cue["acks"] = ACKS[named["acks"]]
    end = named.get("highWatermark" if "HighWatermark" in step["action"] else "end")
    if end is not None:
        cue["end"] = end
    if step["action"] == "Crash":
        cue |= {"loses_tail": _loses_tail(place, steps), "fetches_late": _fetches_late(place, steps)}
    return cue


def _newest(steps: Sequence[Event], without: int = NOBODY) -> Event:
    """The controller's newest record, or the newest one that gives a broker no replica."""
    records = (step["partition"] for step in reversed(steps) if "partition" in step)
    return next(record for record in records if without not in record["replicas"])


def _loses_tail(place: int, steps: Sequence[Event]) -> bool:
    broker, end = steps[place]["args"]["broker"], steps[place]["leo"]
    later = (step for step in steps[place:] if step["action"] == "Restart")
    return next((step["args"]["end"] < end for step in later if step["args"]["broker"] == broker), False)


def _fetches_late(place: int, steps: Sequence[Event]) -> bool:
    """Whether a leader goes by what a broker told it in the life that ends here: a leader proposes only when it is fetched
    from."""
    broker = steps[place]["args"]["broker"]
    about = (step["action"] for step in steps[place + 1 :] if step["args"].get("follower") == broker)
    return next((action == "ExpandIsr" for action in about if action in ("AnswerFetch", "ExpandIsr")), False)
