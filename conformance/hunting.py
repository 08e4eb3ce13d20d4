"""A short hunt on the target under judgement, once for each of its starts, and the judgement of its history.

Clients work on a separate topic while nodes are killed, stopped and frozen, as far as the target has the hooks. Then all
faults end, the clients read the whole topic, and the rules of `linearizability.rules` judge the history. The history is kept
with the run's results: `tidegauge history check` judges it again.
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
from reference.protocol.messages.create_topics import CreateTopicsRequest

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
"""Fault, its node and its duration in seconds. Each begins when the target has recovered from the one before. Faults without
a hook of the target are left out."""
QUIET_S = 4.0
"""The pause between two faults, so that a broker that starts slowly serves in between."""
MINUTES = 2.0
"""The time limit for all faults; faults that have not begun by then are left out."""
AT_WORK_WITHIN_S = 60.0
"""How long the first fault waits until clients of every kind have completed an operation."""
RATE_PER_S = 200.0
SEED = 12
WITNESSES = 3
"""The most anomalies in a failure's text; the history has all of them."""


KNOWN = "KAFKA-20734: transactions that are over have no marker in a partition"


@dataclass(frozen=True)
class Hunt:
    """The results of a hunt."""

    result: Any
    """`linearizability.faults.hunt.RoundResult`."""
    judgement: Any
    """`linearizability.pipeline.verdict.Judgement`."""
    transaction_of: Mapping[int, str] = field(default_factory=dict[int, str])
    """Operation id -> its transaction."""
    unmarked: Sequence[Unmarked] = ()
    """Searched only where the run is not valid."""

    def count(self, what: str) -> int:
        """The number of operations with this outcome, for instance `commit:ok`."""
        return self.judgement.history.tally.operations[what]

    def anomalies(self, rules: Collection[str]) -> list[Anomaly]:
        """The anomalies that these rules found and the contract does not permit."""
        return [
            anomaly
            for found in self.judgement.findings
            if found.rule in rules and not found.permitted
            for anomaly in found.anomalies
        ]

    def reports_all(self, rules: Collection[str]) -> bool:
        """Whether the findings of these rules list every anomaly, and not only the first ones."""
        return all(found.count == len(found.anomalies) for found in self.judgement.findings if found.rule in rules)

    @property
    def hidden(self) -> list[Unmarked]:
        """The unmarked transactions that hide all later records from read_committed consumers."""
        return [each for each in self.unmarked if each.hides]

    def for_want_of_a_marker(self, anomaly: Anomaly) -> bool:
        """Whether an anomaly is about a transaction without a marker, or about an offset that such a transaction hides."""
        names = {self.transaction_of.get(operation) for operation in anomaly.operations}
        return any(
            each.transaction in names
            or (each in self.hidden and each.partition == anomaly.partition and each.first_offset <= anomaly.offset)
            for each in self.unmarked
        )

    def stopped_by(self, unread: Unread) -> bool:
        """Whether the final read stopped at a hidden transaction."""
        return any(each.partition == unread.partition and each.first_offset == unread.position for each in self.hidden)

    @property
    def unexplained(self) -> list[str]:
        """The reasons why the run is not valid, without those that transactions without a marker explain."""
        from linearizability.rules import RULES
        from linearizability.rules.rule import Weight

        explained = {unread.reason for unread in self.result.unread if self.stopped_by(unread)}
        unproven = {found.rule for found in self.judgement.findings if RULES[found.rule].weight is Weight.UNPROVEN}
        reported = len(unproven) == len(self.judgement.reasons) and self.reports_all(unproven)
        if reported and all(self.for_want_of_a_marker(anomaly) for anomaly in self.anomalies(unproven)):
            explained.update(self.judgement.reasons)
        return [reason for reason in self.result.reasons if reason not in explained]


def hunted(broker: Broker) -> Hunt:
    """The hunt on this start of the target; the first call runs it. Skips where its topic cannot be created."""
    from linearizability.workload.cluster import TopicNotMade

    broker.version_for(CreateTopicsRequest)  # skips where it is not served: no topic would come
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
    """Whether the target supports this fault."""
    from linearizability.faults.fault import select
    from linearizability.targets import TargetError

    try:
        return bool(select([fault], target, None))
    except TargetError:
        return False


def _without_a_marker(
    broker: Broker, name: str, partitions: int, history: History
) -> tuple[dict[int, str], list[Unmarked]]:
    """The transaction of each operation; and the ended transactions that lack a marker in the topic's logs."""
    from linearizability.history.events import operations_of

    sends = [each for each in operations_of(history).values() if each.f == "send" and "txn" in each.fields]
    transaction_of_value = {mop["value"]: each.fields["txn"] for each in sends for mop in each.mops}
    topic = broker.await_topic(name, partitions)
    logs = {number: batches(broker.log(topic, partition=number)) for number in range(partitions)}
    return {each.id: each.fields["txn"] for each in sends}, over(broker, unmarked(logs, transaction_of_value))


@built_on("ACK-17")
def expect_none(broker: Broker, *rules: str, evidence: dict[str, int]) -> None:
    """Require that the hunt found no anomaly of these rules. Skips where `evidence` is missing or the verdict is unknown.

    A broker that loses its records at a restart breaks all rules; ACK-17 judges that. Anomalies of Kafka's transactions
    without a marker are tolerated where the requirement has a tolerance.
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
    """The first anomalies as text, and the number of further ones."""
    more = f" (and {len(anomalies) - WITNESSES} more)" if len(anomalies) > WITNESSES else ""
    return "; ".join(f"{anomaly.rule}: {anomaly.text}" for anomaly in anomalies[:WITNESSES]) + more
