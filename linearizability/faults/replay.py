"""A stored hunt: its faults injected again, or its histories judged again."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from linearizability.faults import all_faults
from linearizability.faults.plan import Plan
from linearizability.faults.schedule import Schedule
from linearizability.faults.summary import EnginesDisagree

PLAN, SCHEDULE, VERDICT = "plan.json", "schedule.json", "verdict.json"


@dataclass(frozen=True)
class StoredHunt:
    """The contents of a result folder: the plan, and of each round the folder and the schedule."""

    plan: Plan
    folders: list[Path]
    schedules: list[Schedule]

    @classmethod
    def load(cls, path: Path) -> "StoredHunt":
        """A hunt's folder, with all its rounds, or the folder of one round. Errors: ValueError with the reason."""
        all_faults()  # registers them, so that the schedule's are known
        home = hunt_home(path)
        if home is None:
            raise ValueError(f"{path} holds no {PLAN}: it is no hunt's folder")
        try:
            plan = Plan.model_validate_json((home / PLAN).read_text())
        except (OSError, ValidationError) as error:
            raise ValueError(f"{home / PLAN} is no plan of a hunt: {error}") from None
        folders = [path] if (path / SCHEDULE).is_file() else sorted(home.glob("round-*"), key=_round_number)
        folders = [folder for folder in folders if (folder / SCHEDULE).is_file()]
        if not folders:
            raise ValueError(f"{path} holds no round with a {SCHEDULE}")
        return cls(plan, folders, [Schedule.load(folder / SCHEDULE) for folder in folders])


def hunt_home(path: Path) -> Path | None:
    """The hunt's folder of a path that is it or one of its rounds; None where it is neither."""
    return next((folder for folder in (path, path.resolve().parent) if (folder / PLAN).is_file()), None)


def judge_again(stored: StoredHunt, engine: str, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """The verdict on all stored rounds, without running anything; `say` is called once a round and engine.

    Errors: EnginesDisagree.
    """
    from linearizability.pipeline.engine import check
    from linearizability.pipeline.verdict import Judgement, worst

    engines = ("local", "spark") if engine == "both" else (engine,)
    judged: dict[str, list[Judgement]] = {name: [] for name in engines}
    for name in engines:
        say(f"judging {len(stored.folders)} rounds, engine {name}")
        for number, judgement in enumerate(check(stored.folders, engine=name, master="local[2]"), 1):
            judged[name].append(judgement)
            if number < len(stored.folders):
                say(f"{number} of {len(stored.folders)} rounds judged, engine {name}")
    first = judged[engines[0]]
    for other in engines[1:]:
        for one, two in zip(first, judged[other], strict=True):
            if (one.verdict, one.anomalies, one.permitted) != (two.verdict, two.anomalies, two.permitted):
                raise EnginesDisagree(f"{one.id}: {one.verdict} {one.anomalies}, but {two.verdict} {two.anomalies}")
    anomalies: Counter[str] = Counter()
    for judgement in first:
        anomalies.update(judgement.anomalies)
    differences = [each for folder in stored.folders for each in _differences(folder)]
    verdicts = [judgement.verdict for judgement in first] + ["invalid"] * bool(differences)
    return {
        "verdict": worst(verdicts),
        "target": stored.plan.target,
        "seed": stored.plan.seed,
        "rounds": len(first),
        "facts": sum(judgement.facts for judgement in first),
        "anomalies": dict(sorted(anomalies.items())),
        "reasons": [*differences, *(reason for judgement in first for reason in judgement.reasons)][:50],
        "engines": list(engines),
        "folders": [str(folder) for folder in stored.folders],
    }


def show_again(stored: StoredHunt) -> Path:
    """Write the page that plays what clients did in the first invalid round, or in the first; returns its path."""
    from linearizability.explorer.history import write_page
    from linearizability.pipeline.engine import check

    judged = list(zip(stored.folders, check(stored.folders), strict=True))
    folder, judgement = next((each for each in judged if each[1].verdict == "invalid"), judged[0])
    return write_page(folder, judgement)


def _differences(folder: Path) -> list[str]:
    """Where the nodes of a mixed cluster differed after the round, as its verdict says: their data folders are gone."""
    try:
        verdict = json.loads((folder / VERDICT).read_text())
    except OSError:
        return []
    return (verdict.get("agreement") or {}).get("differences", [])


def _round_number(folder: Path) -> int:
    digits = folder.name.removeprefix("round-")
    return int(digits) if digits.isdigit() else 0
