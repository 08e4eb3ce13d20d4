"""The output of the suite's commands, and their exit codes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from conformance.results import Run

PASS, FAIL, UNKNOWN, BROKEN, WRONG_USAGE = 0, 1, 2, 3, 64
SEVERITY = (PASS, UNKNOWN, BROKEN, FAIL)
"""Exit codes from the best to the worst; of several runs the worst counts."""


def console() -> Console:
    from rich.console import Console

    return Console()


def print_line(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def verdicts_of(found: Run) -> dict[str, str]:
    return {judgement.requirement.id: str(judgement.verdict) for judgement in found.judgements}


def flakes_of(runs: list[Run]) -> list[str]:
    """Requirements whose verdict is not the same in all runs."""
    ids = [judgement.requirement.id for judgement in runs[0].judgements]
    return [id for id in ids if len({verdicts_of(one).get(id) for one in runs}) > 1]


def exit_code(found: Run) -> int:
    match str(found.verdict):
        case "pass":
            return PASS
        case "fail":
            return FAIL
        case _:
            return BROKEN if found.broken else UNKNOWN


def summary_of(runs: list[Run], flakes: list[str]) -> dict[str, Any]:
    """The last JSON line: the summary of the worst run, and the requirements whose verdicts differ between runs."""
    from conformance.results import coverage, profile_tallies, root_causes

    worst = max(runs, key=lambda one: SEVERITY.index(exit_code(one)))
    summary: dict[str, Any] = {
        "verdict": worst.verdict,
        "reason": worst.reason,
        "target": worst.target.spec,
        "kafka_version": worst.target.kafka_version,
        **{name: getattr(worst, name).model_dump(by_alias=True) for name in ("must", "should", "may")},
        "profiles": [
            tally.model_dump(mode="json") for tally in profile_tallies(worst.judgements, worst.target.kafka_version)
        ],
        "coverage": coverage(worst.judgements).model_dump(mode="json"),
        "root_causes": {cause.judgement.requirement.id: cause.blocks for cause in root_causes(worst.judgements)},
        "worse": [one.id for one in worst.worse],
        "better": [one.id for one in worst.better],
        "unexplained_deaths": worst.unexplained_deaths,
        "untestable": worst.untestable,
        "engine_errors": worst.engine_errors,
        "demonstrations": {each.command: each.verdict for each in worst.demonstrations},
        "seconds": round(sum(one.seconds for one in runs), 2),
        "folder": worst.folder,
    }
    if len(runs) > 1:
        summary |= {"runs": len(runs), "flakes": flakes, "folders": [one.folder for one in runs]}
    return summary
