# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# PyArrow has no types.
"""Gives the verdict on a simulated run, by broken invariants or by the history rules on its clients' observations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linearizability.history.derivation import Derivation
from linearizability.history.facts import FactsBuilder
from linearizability.history.operations import INVOKE
from linearizability.history.streams import History, contract_of_all, unify
from linearizability.pipeline.engine import judge_history
from linearizability.pipeline.verdict import INVALID, UNKNOWN, Judgement
from linearizability.rules import RULES
from linearizability.rules.rule import Weight
from linearizability.simulation.history_recorder import ClientHistory
from linearizability.simulation.run import FinishedRun, execute
from linearizability.simulation.schedule import Schedule
from linearizability.simulation.world import Trace


@dataclass
class Outcome(FinishedRun):
    """The result of one run. `rule` is the violated promise: an invariant's name, or the history rules that find it invalid."""

    verdict: str = INVALID
    judgement: Judgement | None = None
    """The judgement of the clients' histories; None if the run ended early."""

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "rule": self.rule,
            "text": self.text,
            "seed": self.schedule.seed,
            "mutant": self.schedule.mutant,
            "digest": self.digest,
            "steps": self.steps,
            "virtual_ms": self.virtual_ms,
            "messages": self.messages,
            "acknowledged": self.acknowledged,
            "acknowledged_by_all": self.acknowledged_by_all,
            "leader_changes": self.leader_changes,
            "consumed": self.consumed,
            "anomalies": self.judgement.anomalies if self.judgement else {},
            "permitted": self.judgement.permitted if self.judgement else {},
            "excused": self.judgement.excused if self.judgement else {},
            "counts": dict(sorted(self.counts.items())),
        }


def run_schedule(
    schedule: Schedule,
    keep_trace: bool = False,
    history_folder: Path | None = None,
    by_history: bool = False,
    rows: list[dict[str, Any]] | None = None,
) -> tuple[Outcome, Trace]:
    """Run one schedule and judge it; `cluster.execute` explains the other arguments."""
    finished, trace = execute(schedule, keep_trace, by_history, rows)
    if history_folder is not None:
        for history in finished.histories:
            history.write(history_folder, f"seed-{schedule.seed}")
    return judge(finished), trace


def judge(finished: FinishedRun) -> Outcome:
    """Return the verdict on a run. The history rules are skipped if it ended with a violation."""
    outcome = Outcome(**vars(finished))
    if not finished.rule:
        judgement = outcome.judgement = judge_histories(f"seed-{finished.schedule.seed}", finished.histories)
        outcome.verdict = judgement.verdict
        if judgement.verdict == INVALID:
            outcome.rule, outcome.text = _condemning(judgement)
        elif judgement.verdict == UNKNOWN:
            outcome.text = "; ".join(judgement.reasons)
    return outcome


def judge_histories(run: str, histories: Sequence[ClientHistory]) -> Judgement:
    """Return the verdict of the history rules on the histories of one run's clients."""
    builder = FactsBuilder(run)
    history = History(id=run, contract=contract_of_all([each.contract for each in histories]))
    for each in histories:
        derivation = Derivation(builder, each.contract, each.process << 32)
        for event in each.events:
            if event["type"] == "mark":
                history.marks.append(event)
            elif event["type"] == INVOKE:
                derivation.invoke(event["operation"], event["process"], event)
            else:
                derivation.complete(event["operation"], event["process"], event)
        derivation.finish(complete=True)
        history.tally.add(derivation.tally)
        history.names.update(derivation.names)
    history.facts = unify([builder.take()])
    history.marks.sort(key=lambda mark: mark["time"])
    return judge_history(history)


def _condemning(judgement: Judgement) -> tuple[str, str]:
    """Return the rules that found anomalies that the contract does not permit, and the first anomaly."""
    guilty = [item for item in judgement.findings if not item.permitted and RULES[item.rule].weight is Weight.VIOLATION]
    first = next((anomaly for item in guilty for anomaly in item.anomalies), None)
    text = f"{first.topic}-{first.partition}: {first.text}" if first else ""
    return ", ".join(sorted({item.rule for item in guilty})), text
