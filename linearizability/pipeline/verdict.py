"""From findings to a verdict: valid, invalid or unknown, never valid by accident.

- *invalid*: a rule found a violation that the contract does not permit, and that no defect of the record can explain.
- *unknown*: nothing is invalid, but something is missing: facts (a torn file), trust (a clock that steps back), evidence (no
  acknowledged send, no read), or proof (an acknowledged record that no client looked for).
- *valid*: neither. What the contract permits is listed and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from linearizability.history.contract import EXCUSED
from linearizability.history.derivation_state import Tally
from linearizability.history.files import CLOCK, MISSING, Defect
from linearizability.history.operations import REGISTERS
from linearizability.history.streams import History
from linearizability.pipeline.series import Series
from linearizability.rules import RULES
from linearizability.rules.rule import UNPROVEN, Anomaly, Found, Weight

VALID, UNKNOWN, INVALID = "valid", "unknown", "invalid"
EXIT_CODES = {VALID: 0, INVALID: 1, UNKNOWN: 2}
MAX_REASONS = 50
"""Reasons that are listed one by one; the rest is counted."""


@dataclass
class Judgement:
    """The verdict on one history, with findings and reasons."""

    id: str
    verdict: str
    findings: list[Found] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    facts: int = 0
    engine: str = "local"
    labels: list[str] | None = None
    given: dict[str, Any] = field(default_factory=dict)
    """The terms of the contract that the caller has given, for a history that does not declare them."""
    history: History | None = field(default=None, repr=False, compare=False)
    """The history itself, where it is in memory; for reports."""
    series: Series | None = field(default=None, repr=False, compare=False)
    """The run's series over time, where its facts are not in memory."""

    @property
    def anomalies(self) -> dict[str, int]:
        """Every anomaly that was found, permitted or not: type -> count."""
        counts: Counter[str] = Counter()
        for item in self.findings:
            counts[item.rule] += item.count
        return dict(sorted(counts.items()))

    @property
    def permitted(self) -> dict[str, dict[str, int]]:
        """Of those, the ones that the contract permits: type -> reason -> count."""
        permitted: dict[str, dict[str, int]] = {}
        for item in self.findings:
            if item.permitted and not item.open:
                reasons = permitted.setdefault(item.rule, {})
                reasons[item.permitted] = reasons.get(item.permitted, 0) + item.count
        return dict(sorted(permitted.items()))

    @property
    def excused(self) -> dict[str, dict[str, int]]:
        """Of the permitted ones, those that the contract alone would not permit: excuse -> type -> count."""
        excused: dict[str, dict[str, int]] = {}
        for rule, reasons in self.permitted.items():
            for reason, count in reasons.items():
                if reason.startswith(EXCUSED):
                    excused.setdefault(reason, {})[rule] = count
        return dict(sorted(excused.items()))

    @property
    def share_excused(self) -> str:
        """How many anomalies rest on excuses, in words; empty where none does."""
        count = sum(sum(rules.values()) for rules in self.excused.values())
        return f"{count} of {sum(self.anomalies.values())} anomalies rest on excuses" if count else ""

    def in_words(self) -> list[str]:
        """Each type of anomaly with its count, and how many of them are permitted, by what."""
        words = []
        for rule, count in self.anomalies.items():
            reasons = "; ".join(f"{each} permitted: {reason}" for reason, each in self.permitted.get(rule, {}).items())
            words.append(f"{rule} × {count}" + (f" ({reasons})" if reasons else ""))
        return words

    def witnesses(self) -> list[Anomaly]:
        return [anomaly for item in self.findings for anomaly in item.anomalies]

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "verdict": self.verdict,
            "anomalies": self.anomalies,
            "permitted": self.permitted,
            "excused": {
                "anomalies": sum(sum(rules.values()) for rules in self.excused.values()),
                "of": sum(self.anomalies.values()),
                "by": self.excused,
            },
            "reasons": self.reasons,
            "facts": self.facts,
            "engine": self.engine,
            "contract_given": self.given,
        }


def judge(
    identifier: str, findings: Iterable[Found], tally: Tally, defects: Iterable[Defect], facts: int, engine: str
) -> Judgement:
    """The verdict on one history."""
    findings, defects = sorted(findings, key=_order), list(defects)
    kinds = {defect.kind for defect in defects}
    is_invalid = False
    reasons: Counter[str] = Counter()
    for item in findings:
        rule = RULES[item.rule]
        if rule.weight is Weight.NOTE or (item.permitted and not item.open):
            continue
        if item.open:
            reasons[f"{item.rule}: {item.permitted.removeprefix(UNPROVEN)}"] += item.count
            continue
        if rule.weight is Weight.UNPROVEN:
            reasons[f"{item.rule}: {rule.definition[0].lower()}{rule.definition[1:]}"] += item.count
        elif rule.rests_on_absence and MISSING in kinds:
            reasons[f"{item.rule}: what is missing from the history may explain it"] += item.count
        elif rule.rests_on_time and CLOCK in kinds:
            reasons[f"{item.rule}: the clock cannot be trusted"] += item.count
        else:
            is_invalid = True
    listed = [str(defect) for defect in defects[:MAX_REASONS]]
    if len(defects) > MAX_REASONS:
        listed.append(f"and {len(defects) - MAX_REASONS} more defects of the history")
    listed += [f"{count} × {reason}" for reason, count in reasons.items()]
    listed += lack_of_evidence(tally)
    verdict = INVALID if is_invalid else UNKNOWN if listed else VALID
    return Judgement(identifier, verdict, findings, listed, facts, engine)


def _order(item: Found) -> tuple[str, str, str, int]:
    first = item.anomalies[0]
    return item.rule, item.permitted, first.topic, first.partition


EMPTY, REGISTERS_UNANSWERED = "the history is empty", "no operation on a register was answered"
NOTHING_ACKNOWLEDGED, NOTHING_READ = "no send was acknowledged", "no record was read"
LACKS = frozenset({EMPTY, REGISTERS_UNANSWERED, NOTHING_ACKNOWLEDGED, NOTHING_READ})


def lack_of_evidence(tally: Tally) -> list[str]:
    """Why a history without any anomaly shows nothing: some of LACKS."""
    if not tally.invocations:
        return [EMPTY]
    functions = {name.split(":")[0] for name, count in tally.operations.items() if count}
    if functions & set(REGISTERS) and not functions & {"send", "txn", "poll"}:
        answered = any(tally.operations[f"{f}:ok"] for f in REGISTERS)
        return [] if answered else [REGISTERS_UNANSWERED]
    reasons = []
    if not tally.acknowledged and not tally.unanswered:
        reasons.append(NOTHING_ACKNOWLEDGED)
    if not tally.observed:
        reasons.append(NOTHING_READ)
    return reasons


def worst(verdicts: Iterable[str]) -> str:
    """Of several verdicts the worst counts; of none, nothing is known."""
    present = set(verdicts)
    return next((verdict for verdict in (INVALID, UNKNOWN, VALID) if verdict in present), UNKNOWN)
