"""A short hunt on the target under judgement, once for each of its starts, and what its history shows.

Clients work on a topic of their own while nodes are killed, stopped and frozen, as far as the target has hooks for it; then
all is healed, read once more, and judged by the rules of `linearizability.rules`. The history stays with the run's results:
`tidegauge history check` judges it again.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from conformance.broker import Broker
from conformance.wire import Failed

BLOWS: tuple[tuple[str, Literal["leader", "follower", "controller", "any"], float], ...] = (
    ("kill", "leader", 1.0),
    ("pause", "leader", 4.0),
    ("stop", "any", 0.5),
    ("kill", "follower", 3.0),
    ("pause", "controller", 2.0),
    ("storm", "leader", 0.5),
)
"""What is done, to whom, for how many seconds; one after the other, each when the target is whole again."""
QUIET_S = 4.0
"""Peace between two blows: a broker that starts slowly shows something too."""
MINUTES = 2.0
"""The blows that such a broker has not seen by then are left out."""
AT_WORK_WITHIN_S = 60.0
"""The first blow waits for clients of every kind to have done their work once."""
RATE_PER_S = 200.0
SEED = 12
WITNESSES = 3
"""How many anomalies a failure tells of; the history has them all."""


@dataclass(frozen=True)
class Hunt:
    """What a hunt has left behind."""

    result: Any
    """`linearizability.faults.hunt.RoundResult`."""
    judgement: Any
    """`linearizability.pipeline.verdict.Judgement`."""

    def count(self, what: str) -> int:
        """How many operations ended so: `commit:ok`."""
        return self.judgement.history.tally.operations[what]

    def anomalies(self, rules: Collection[str]) -> list[str]:
        """What these rules found and the contract does not permit, in words."""
        return [
            f"{found.rule}: {anomaly.text}"
            for found in self.judgement.findings
            if found.rule in rules and not found.permitted
            for anomaly in found.anomalies
        ]


def hunted(broker: Broker) -> Hunt:
    """The hunt on this start of the target; the first who asks carries it out."""
    if broker.subject.hunt is None:
        broker.subject.hunt = _carry_out(broker)
    return broker.subject.hunt


def _carry_out(broker: Broker) -> Hunt:
    from linearizability.faults import all_faults
    from linearizability.faults.fault import FAULTS
    from linearizability.faults.hunt import Plan, Round
    from linearizability.faults.schedule import Schedule, Wave
    from linearizability.faults.strike import Strike
    from linearizability.pipeline.engine import check

    all_faults()
    target = broker.target
    blows = [blow for blow in BLOWS if set(FAULTS[blow[0]].hooks) <= set(target.hooks)]
    waves = [
        Wave(strikes=[Strike(at_s=0, fault=fault, who=who, pick=0, seconds=seconds)], quiet_s=QUIET_S)
        for fault, who, seconds in blows
    ]
    name = f"history-{uuid.uuid4().hex[:8]}"
    folder: Path = broker.subject.folder / name
    folder.mkdir(parents=True)
    names = [fault for fault, *_ in blows]
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
    hunt = Round(plan, target, None, folder, SEED, name, schedule, at_work_within_s=AT_WORK_WITHIN_S)
    result = hunt.run(lambda text: None)
    return Hunt(result, next(iter(check([folder], engine="local"))))


def expect_none(broker: Broker, *rules: str, evidence: dict[str, int]) -> None:
    """No anomaly of these rules, where there was enough to see. Skips where the hunt shows too little: that is no pass."""
    found = hunted(broker)
    told = ", ".join(f"{count} {what}" for what, count in evidence.items())
    broker.saw(f"{told}; faults {found.result.faults}; history {found.result.folder}")
    anomalies = found.anomalies(rules)
    if anomalies:
        more = f" (and {len(anomalies) - WITNESSES} more)" if len(anomalies) > WITNESSES else ""
        raise Failed("; ".join(anomalies[:WITNESSES]) + more)
    missing = [what for what, count in evidence.items() if count <= 0]
    if missing:
        broker.skip(f"the hunt shows too little: no {', no '.join(missing)}")
    if found.result.verdict == "unknown":
        broker.skip("; ".join(found.result.reasons[:WITNESSES]))
