"""A hunt: clients work on a target under a schedule of faults; then all is healed, read once more, and judged.

One hunt has one round or several; each has its own topic, schedule, histories and verdict, in a folder that can be
judged and carried out again by itself. With `until_found` rounds are short and go on until one is invalid.

    folder/plan.json        what was asked for: enough to carry it out again
    folder/round-2/         (the folder itself, where there is one round)
        schedule.json       the injections
        history/            what the clients saw, one file a client, and what the nemesis did
        clients/            the clients' own output
        verdict.json
        explorer.html       of an invalid round: a page that plays what clients did
    folder/reduced/         the smallest schedule that failed too, where it was asked for
    folder/target/          the nodes' properties and logs
    folder/summary.json     the worst verdict and all counts
"""

import itertools
import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from linearizability.faults import all_faults
from linearizability.faults.backend import Listener, open_on_backend
from linearizability.faults.plan import Plan
from linearizability.faults.reduction import reduce
from linearizability.faults.round import Round, RoundResult, drawn_schedule
from linearizability.faults.schedule import Schedule
from linearizability.faults.summary import judge_by_spark, sum_up
from linearizability.progress import time_left
from linearizability.targets.cluster import ClusterTarget

REDUCTION_ATTEMPTS = 2


def hunt(plan: Plan, folder: Path, say: Listener, schedules: Sequence[Schedule] = ()) -> dict[str, Any]:
    """Carry the plan out and return its summary. `schedules` replace those that would be drawn.

    Errors: TargetError; EnginesDisagree. Ctrl-C ends the round in good order: what was recorded is judged.
    """
    (folder / "plan.json").write_text(plan.model_dump_json(indent=1) + "\n")
    began = time.monotonic()
    results: list[RoundResult] = []
    rounds = len(schedules) or plan.rounds
    described: dict[str, Any] = {}
    interrupted = False
    all_faults()
    with ExitStack() as stack:
        say(f"starting {plan.target}")
        target, network = open_on_backend(plan, folder, stack, say, schedules)
        described = target.describe()
        for number in range(1, rounds + 1):
            home = folder if rounds == 1 else folder / f"round-{number}"
            home.mkdir(exist_ok=True)
            seed = plan.round_seed(number)
            schedule = schedules[number - 1] if schedules else drawn_schedule(plan, target, network, seed)
            this = Round(plan, target, network, home, f"hunt-{folder.name[:16].lower()}-{number}", schedule)
            left = time_left((number - 1) / rounds, time.monotonic() - began)
            say(f"round {number} of {rounds}: {this}{left}")
            results.append(this.run(say))
            say(f"round {number}: {results[-1].verdict}")
            interrupted = this.interrupted
            found = results[-1].verdict == "invalid"
            if found and isinstance(target, ClusterTarget):
                target.keep_data = True
            if found and plan.reduce_minutes and not interrupted:
                reduce_found(this, results[-1], folder / "reduced", say)
            if (found and plan.until_found) or interrupted:
                break
    if plan.engine != "local" and not interrupted:
        say("judging again in one PySpark job")
        judge_by_spark(results)
    summary = sum_up(plan, results, described, time.monotonic() - began, folder, interrupted)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return summary


def reduce_found(found: "Round", result: RoundResult, folder: Path, say: Listener) -> None:
    """Make the schedule smaller on the open target; leaves the smallest that failed in `folder/schedule.json`."""
    folder.mkdir(exist_ok=True)
    until = time.monotonic() + found.plan.reduce_minutes * 60
    attempts = itertools.count(1)

    def fails(candidate: Schedule) -> bool:
        for _ in range(REDUCTION_ATTEMPTS):
            number = next(attempts)
            home = folder / f"attempt-{number}"
            home.mkdir()
            again = Round(found.plan, found.target, found.network, home, f"{found.topic}-r{number}", candidate)
            outcome = again.run(lambda text: None)
            hit = outcome.verdict == "invalid" and bool(outcome.anomalies.keys() & result.anomalies.keys())
            injections = sum(len(wave.injections) for wave in candidate.waves)
            say(f"attempt {number}: {len(candidate.waves)} waves, {injections} injections: {outcome.verdict}")
            if hit:
                candidate.save(folder / "schedule.json")
                return True
            if time.monotonic() > until:
                break
        return False

    say("making the schedule smaller")
    reduce(found.schedule, fails, lambda: time.monotonic() > until)
