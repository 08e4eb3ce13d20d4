"""A short hunt on the target under judgement, once for each of its starts, and what its history shows.

Clients work on a topic of their own while nodes are killed, stopped and frozen, as far as the target has hooks for it; then
all is healed, read once more, and judged by the rules of `linearizability.rules`. The history stays with the run's results:
`tidegauge history check` judges it again.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from conformance.batches import batches
from conformance.broker import Broker
from conformance.results import Lack
from conformance.steps import built_on
from conformance.unmarked import Unmarked, over, unmarked
from conformance.wire import Failed
from reference.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from linearizability.history.reader import History
    from linearizability.rules.rule import Anomaly
    from linearizability.workload.drain import Unread

PLANNED_FAULTS: tuple[tuple[str, Literal["leader", "follower", "controller", "any"], float], ...] = (
    ("kill", "leader", 1.0),
    ("isolate", "leader", 9.0),
    ("pause", "leader", 4.0),
    ("stop", "any", 0.5),
    ("kill", "follower", 3.0),
    ("pause", "controller", 2.0),
    ("storm", "leader", 0.5),
)
"""Fault, target and seconds; one after the other, each when the target has recovered. Faults without a hook of the target are
left out."""
QUIET_S = 4.0
"""The pause between two faults: a broker that starts slowly must have time to serve."""
MINUTES = 2.0
"""The most time for all faults; faults that a slow broker has not seen by then are left out."""
AT_WORK_WITHIN_S = 60.0
"""The first fault waits for clients of every kind to have done their work once."""
RATE_PER_S = 200.0
SEED = 12
WITNESSES = 3
"""How many anomalies a failure reports; the history has them all."""


KNOWN = "KAFKA-20734: transactions that are over have no marker in a partition"


@dataclass(frozen=True)
class Hunt:
    """What a hunt has left behind."""

    result: Any
    """`linearizability.faults.hunt.RoundResult`."""
    judgement: Any
    """`linearizability.pipeline.verdict.Judgement`."""
    transaction_of: Mapping[int, str] = field(default_factory=dict[int, str])
    """The transaction of an operation, by the operation's number."""
    unmarked: Sequence[Unmarked] = ()
    """Looked for where something is wrong."""

    def count(self, what: str) -> int:
        """How many operations ended so: `commit:ok`."""
        return self.judgement.history.tally.operations[what]

    def anomalies(self, rules: Collection[str]) -> list[Anomaly]:
        """What these rules found and the contract does not permit."""
        return [
            anomaly
            for found in self.judgement.findings
            if found.rule in rules and not found.permitted
            for anomaly in found.anomalies
        ]

    def reports_all(self, rules: Collection[str]) -> bool:
        """Whether every anomaly of these rules has a witness, and not only the first so many."""
        return all(found.count == len(found.anomalies) for found in self.judgement.findings if found.rule in rules)

    @property
    def hidden(self) -> list[Unmarked]:
        """What keeps readers of committed records from all that follows."""
        return [each for each in self.unmarked if each.hides]

    def for_want_of_a_marker(self, anomaly: Anomaly) -> bool:
        """Whether it is about a transaction that has no marker, or lies behind one that hides what follows."""
        names = {self.transaction_of.get(operation) for operation in anomaly.operations}
        return any(
            each.transaction in names
            or (each in self.hidden and each.partition == anomaly.partition and each.first_offset <= anomaly.offset)
            for each in self.unmarked
        )

    def stopped_by(self, unread: Unread) -> bool:
        """Whether the final read came to such a transaction, and no further."""
        return any(each.partition == unread.partition and each.first_offset == unread.position for each in self.hidden)

    @property
    def unexplained(self) -> list[str]:
        """Why the run is not known to be valid, but for what transactions without a marker account for."""
        from linearizability.rules import RULES
        from linearizability.rules.rule import Weight

        explained = {unread.reason for unread in self.result.unread if self.stopped_by(unread)}
        unproven = {found.rule for found in self.judgement.findings if RULES[found.rule].weight is Weight.UNPROVEN}
        reported = len(unproven) == len(self.judgement.reasons) and self.reports_all(unproven)
        if reported and all(self.for_want_of_a_marker(anomaly) for anomaly in self.anomalies(unproven)):
            explained.update(self.judgement.reasons)
        return [reason for reason in self.result.reasons if reason not in explained]


def hunted(broker: Broker) -> Hunt:
    """The hunt on this start of the target; the first who asks carries it out. Skips where its topic cannot be made."""
    from linearizability.workload.cluster import TopicNotMade

    if broker.subject.hunt is None:
        try:
            broker.subject.hunt = _carry_out(broker)
        except TopicNotMade as error:
            broker.subject.hunt = str(error)
    if isinstance(broker.subject.hunt, str):
        broker.skip(broker.subject.hunt)
    return broker.subject.hunt


def _carry_out(broker: Broker) -> Hunt:
    from linearizability.faults import all_faults
    from linearizability.faults.hunt import Plan, Round
    from linearizability.faults.injection import Injection
    from linearizability.faults.schedule import Schedule, Wave
    from linearizability.pipeline.engine import check
    from linearizability.workload.cluster import TopicRefused

    all_faults()
    target = broker.target
    planned_faults = [planned_fault for planned_fault in PLANNED_FAULTS if offers(target, planned_fault[0])]
    waves = [
        Wave(injections=[Injection(at_s=0, fault=fault, who=who, pick=0, seconds=seconds)], quiet_s=QUIET_S)
        for fault, who, seconds in planned_faults
    ]
    name = f"history-{uuid.uuid4().hex[:8]}"
    folder: Path = broker.subject.folder / name
    folder.mkdir(parents=True)
    names = [fault for fault, *_ in planned_faults]
    plan = Plan(
        target=target.spec,
        minutes=MINUTES,
        seed=SEED,
        faults=names,
        rate_per_s=RATE_PER_S,
        transactions=True,
        engine="local",
    )
    (folder / "plan.json").write_text(plan.model_dump_json(indent=1) + "\n")
    schedule = Schedule(seed=SEED, seconds=MINUTES * 60, waves=waves)
    hunt = Round(plan, target, None, folder, name, schedule, at_work_within_s=AT_WORK_WITHIN_S)
    try:
        result = hunt.run(lambda text: None)
    except TopicRefused as refused:
        if refused.code != ErrorCode.INVALID_CONFIG:
            raise
        broker.skip(str(refused), Lack.CONFIGURATION)
    judgement = next(iter(check([folder], engine="local")))
    if judgement.verdict == "valid" and not result.reasons:
        return Hunt(result, judgement)
    target.keep_data = True
    assert judgement.history is not None, "the local engine keeps what it judges"
    return Hunt(result, judgement, *_without_a_marker(broker, name, hunt.profile.partitions, judgement.history))


def offers(target: Any, fault: str) -> bool:
    """Whether the target can be hurt so."""
    from linearizability.faults.fault import select
    from linearizability.targets import TargetError

    try:
        return bool(select([fault], target, None))
    except TargetError:
        return False


def _without_a_marker(
    broker: Broker, name: str, partitions: int, history: History
) -> tuple[dict[int, str], list[Unmarked]]:
    """The transaction of each operation; and those transactions that are over and that the topic's logs do not end."""
    from linearizability.history.events import operations_of

    sends = [each for each in operations_of(history).values() if each.f == "send" and "txn" in each.fields]
    transaction_of_value = {mop["value"]: each.fields["txn"] for each in sends for mop in each.mops}
    topic = broker.await_topic(name, partitions)
    logs = {number: batches(broker.log(topic, partition=number)) for number in range(partitions)}
    return {each.id: each.fields["txn"] for each in sends}, over(broker, unmarked(logs, transaction_of_value))


@built_on("ACK-17")
def expect_none(broker: Broker, *rules: str, evidence: dict[str, int]) -> None:
    """No anomaly of these rules, where there was enough to see. Skips where the hunt shows too little: that is no pass.

    A broker that forgets its records where it is started again breaks all of them: ACK-17 says so.
    What Kafka does to transactions without a marker is tolerated where the requirement says so.
    """
    found = hunted(broker)
    reported = ", ".join(f"{count} {what}" for what, count in evidence.items())
    broker.saw(f"{reported}; faults {found.result.faults}; history {found.result.folder}")
    anomalies = found.anomalies(rules)
    tolerant = bool(broker.requirement.tolerated) and found.reports_all(rules)
    others = [anomaly for anomaly in anomalies if not (tolerant and found.for_want_of_a_marker(anomaly))]
    if others:
        raise Failed(reported_of(others))
    if anomalies:
        broker.tolerate(f"{KNOWN}: {reported_of(anomalies)}")
        return
    missing = [what for what, count in evidence.items() if count <= 0]
    if missing:
        broker.skip(f"the hunt shows too little: no {', no '.join(missing)}")
    if found.result.verdict == "unknown":
        broker.skip("; ".join(found.result.reasons[:WITNESSES]))


def reported_of(anomalies: Sequence[Anomaly]) -> str:
    """The first few in words, and how many there are."""
    more = f" (and {len(anomalies) - WITNESSES} more)" if len(anomalies) > WITNESSES else ""
    return "; ".join(f"{anomaly.rule}: {anomaly.text}" for anomaly in anomalies[:WITNESSES]) + more
