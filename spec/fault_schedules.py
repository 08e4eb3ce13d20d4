"""Behaviours of the specification as schedules, whose script a replay driver runs on a simulated cluster.

The driver holds a message between brokers until a step needs it, and causes the steps of clients, operators and faults (a
crash, an election, a produced record). The cluster takes a step only if its own rules allow it. The reference follows a
behaviour of the unchanged specification to its end; in a counterexample it stops, at the latest, at the step that only the
switch allows. The mutant with the same bug continues and breaks the promise. The format is tidegauge-schedule/1, which
`tidegauge replay` runs. Behaviours of coordinators are in `coordinator_schedules.py`.
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
"""Timeouts under which no held request times out, unless the timeout is a step."""

ACKS = {"all": "all", "one": "1", "zero": "0"}
SECOND_BROKERS = ("leader", "follower")
NO_BROKER = -1

MUTANT_OF: dict[str, str] = {
    "AcknowledgeBeforeHighWatermark": "acks-all-as-one",
    "AdmitFencedBroker": "fencing-unnoticed",
    "AdmitStaleBrokerEpoch": "former-incarnation-unnoticed",
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
ScriptStep = dict[str, Any]


def fault_schedule(behaviour: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The schedule of one line of `tidegauge spec behaviours`."""
    begin, *events = behaviour["events"]
    if "voters" in begin:
        return quorum_schedule(behaviour, seed)
    if "brokers" not in begin:
        return coordinator_schedule(behaviour, seed)
    steps = [event for event in events if not _begins_first_leader_epoch(event)]
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
        "script": {
            "topic": TOPIC,
            "brokers": brokers,
            "others": others,
            "idempotent": any(step["action"] == "Retry" for step in steps),
            "steps": [_scripted(place, steps) for place in range(len(steps))],
        },
    }


def _begins_first_leader_epoch(event: Event) -> bool:
    """Whether the step begins the first leader epoch, which the simulated cluster begins without a script."""
    return event["action"] in ("BecomeLeader", "BecomeFollower") and event["args"]["partitionEpoch"] == 0


def _scripted(place: int, steps: Sequence[Event]) -> ScriptStep:
    step = steps[place]
    named = step["args"]
    scripted: ScriptStep = {"action": step["action"]}
    if "partition" in step:
        scripted |= {
            "broker": named.get("broker", named.get("leader", NO_BROKER)),
            "leader": step["partition"]["leader"],
        }
        if step["action"] == "Reassign":
            scripted["replicas"] = named["replicas"]
        if "minIsr" in named:
            scripted["min_isr"] = named["minIsr"]
        return scripted | {"decision": step["partition"]["partitionEpoch"]}
    scripted["broker"] = step["node"]
    other = next((named[name] for name in SECOND_BROKERS if named.get(name, step["node"]) != step["node"]), NO_BROKER)
    if other != NO_BROKER:
        scripted["other"] = other
    if "partitionEpoch" in named:
        scripted["decision"] = named["partitionEpoch"]
    if step["action"] == "LearnMinIsr":
        scripted |= {"decision": _newest(steps[:place])["partitionEpoch"], "min_isr": named["minIsr"]}
    if step["action"] == "GiveUpReplica":
        scripted["decision"] = _newest(steps[:place], without=step["node"])["partitionEpoch"]
    if "leaderEpoch" in named:
        scripted["leader_epoch"] = named["leaderEpoch"]
    if "acks" in named:
        scripted["acks"] = ACKS[named["acks"]]
    end = named.get("highWatermark" if "HighWatermark" in step["action"] else "end")
    if end is not None:
        scripted["end"] = end
    if step["action"] == "Crash":
        scripted |= {"loses_tail": _loses_tail(place, steps), "fetches_late": _fetches_late(place, steps)}
    return scripted


def _newest(steps: Sequence[Event], without: int = NO_BROKER) -> Event:
    """The controller's newest record of the partition; with `without` the newest one in which that broker has no replica."""
    records = (step["partition"] for step in reversed(steps) if "partition" in step)
    return next(record for record in records if without not in record["replicas"])


def _loses_tail(place: int, steps: Sequence[Event]) -> bool:
    broker, end = steps[place]["args"]["broker"], steps[place]["leo"]
    later = (step for step in steps[place:] if step["action"] == "Restart")
    return next((step["args"]["end"] < end for step in later if step["args"]["broker"] == broker), False)


def _fetches_late(place: int, steps: Sequence[Event]) -> bool:
    """Whether a leader acts on a fetch that the broker sent before this crash: a leader proposes only upon a fetch."""
    broker = steps[place]["args"]["broker"]
    about = (step["action"] for step in steps[place + 1 :] if step["args"].get("follower") == broker)
    return next((action == "ExpandIsr" for action in about if action in ("AnswerFetch", "ExpandIsr")), False)
