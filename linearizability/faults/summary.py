"""The summary of a hunt's rounds, which both engines judge."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linearizability.faults.plan import Plan
from linearizability.faults.round import RoundResult
from linearizability.results import suite_version


class EnginesDisagree(Exception):
    """The local engine and PySpark judge one history differently: our fault, whatever the broker did."""


def judge_by_spark(results: Sequence[RoundResult]) -> None:
    """All rounds in one PySpark job, compared with what the local engine said. Errors: EnginesDisagree."""
    from linearizability.pipeline.engine import check

    judgements = check([Path(result.folder) for result in results], engine="spark", master="local[2]")
    for result, judgement in zip(results, judgements, strict=True):
        result.engines["spark"] = judgement.verdict
        same = (judgement.verdict, judgement.anomalies, judgement.permitted) == (
            result.engines["local"],
            result.anomalies,
            result.permitted,
        )
        if not same:
            raise EnginesDisagree(
                f"{result.folder}: local says {result.engines['local']} {result.anomalies}, "
                f"PySpark says {judgement.verdict} {judgement.anomalies}"
            )


def sum_up(
    plan: Plan, results: Sequence[RoundResult], target: dict[str, Any], seconds: float, folder: Path, interrupted: bool
) -> dict[str, Any]:
    """The worst verdict and the sums of all rounds. Of a plan that was not carried out to its end, valid rounds are unknown."""
    from linearizability.pipeline.verdict import worst

    totals = {
        name: sum(getattr(result, name) for result in results)
        for name in ("acknowledged", "unknown", "refused", "read", "committed", "aborted", "leader_changes", "facts")
    }
    anomalies: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    effects: Counter[str] = Counter()
    permitted: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        anomalies.update(result.anomalies)
        faults.update(result.faults)
        effects.update(result.effects)
        for name, causes in result.permitted.items():
            permitted[name].update(causes)
    found = next((result for result in results if result.verdict == "invalid"), None)
    verdict = worst([result.verdict for result in results])
    reasons = [reason for result in results for reason in result.reasons][:50]
    if interrupted and verdict == "valid":
        verdict = "unknown"
        reasons.append("interrupted before the end of the plan; what was recorded until then is valid")
    return {
        "verdict": verdict,
        "tidegauge": suite_version(),
        "target": plan.target,
        "seed": plan.seed,
        "rounds": len(results),
        "seconds": round(seconds, 1),
        **totals,
        "faults": dict(sorted(faults.items())),
        "effects": dict(sorted(effects.items())),
        "anomalies": dict(sorted(anomalies.items())),
        "permitted": {name: causes.total() for name, causes in sorted(permitted.items())},
        "permitted_because": {name: dict(causes) for name, causes in sorted(permitted.items())},
        "reasons": reasons,
        "agreement": [result.agreement.model_dump() for result in results if result.agreement is not None],
        "engines": sorted({engine for result in results for engine in result.engines}),
        "found_in": found.folder if found else None,
        "interrupted": interrupted,
        "folder": str(folder),
        "described": target,
    }
