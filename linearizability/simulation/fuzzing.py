"""Runs many schedules in several processes; shrinks and keeps those that fail."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from linearizability.history.excuses import EXCUSE
from linearizability.pipeline.verdict import INVALID
from linearizability.simulation.drawing import draw
from linearizability.simulation.explanation import keep
from linearizability.simulation.fuzzing_summary import Found, Plan, Small, Summary
from linearizability.simulation.judging import Outcome, judge, run_schedule
from linearizability.simulation.remote_interpreter import RemoteInterpreter, Task
from linearizability.simulation.schedule import Schedule
from linearizability.simulation.shrink import shrink

SEEDS_A_TASK = 10
SHRINK_S = 30.0
"""How long one failure is shrunk at most. On a slow machine it stays larger."""


Progress = Callable[[Summary], None]


def fuzz(plan: Plan, progress: Progress = lambda summary: None) -> Summary:
    """Run schedules by ascending seeds. Ctrl-C ends early and leaves a usable folder; a full disk loses no verdict."""
    began = time.monotonic()
    summary = Summary(plan)
    (plan.folder / "config.json").write_text(json.dumps(_configuration(plan), indent=1) + "\n")
    try:
        for runs in _run(plan, began):
            for run in runs:
                summary.add(run)
                if is_find(plan, run):
                    if summary.seconds_to_first is None:
                        summary.seconds_to_first = round(time.monotonic() - began, 2)
                        summary.schedules_to_first = len(summary.runs)
                    summary.found.append(Found(run.seed, run.rule, run.text))
            summary.seconds = time.monotonic() - began
            progress(summary)
            if plan.until_found and summary.found:
                break
    except KeyboardInterrupt:
        summary.interrupted = True
    summary.seconds = time.monotonic() - began
    try:
        for number, found in enumerate(summary.found[: plan.kept], 1):
            _keep_small(plan, found, plan.folder / f"failure-{number}")
    except KeyboardInterrupt:
        summary.interrupted = True
    except OSError as error:
        summary.not_kept = str(error.strerror)
    try:
        (plan.folder / "summary.json").write_text(json.dumps(summary.to_json(), indent=1) + "\n")
        (plan.folder / "pairs.json").write_text(json.dumps(dict(sorted(summary.pairs.items())), indent=1) + "\n")
    except OSError as error:
        summary.not_kept = str(error.strerror)
    return summary


def _configuration(plan: Plan) -> dict[str, Any]:
    chosen = {name: value for name, value in vars(plan).items() if name != "folder"}
    return chosen | {"python": platform.python_version()}


def _tasks(plan: Plan, began: float) -> Iterator[range]:
    """Yield ranges of seeds until there are enough or time is over."""
    seed = plan.first_seed
    end = None if plan.schedules is None else seed + plan.schedules
    while end is None or seed < end:
        if plan.seconds is not None and time.monotonic() - began >= plan.seconds:
            return
        step = min(SEEDS_A_TASK, end - seed) if end is not None else SEEDS_A_TASK
        yield range(seed, seed + step)
        seed += step


def _run(plan: Plan, began: float) -> Iterator[list[Small]]:
    """Yield the results of all tasks in the order of their seeds."""
    tasks = _tasks(plan, began)
    if plan.engine == "spark":
        from linearizability.simulation.on_spark import run_on_spark

        shared = replace(plan, folder=Path())  # what tasks need of it is the same on every machine
        yield from run_on_spark(partial(run_in_worker, plan=shared), tasks, plan.master, plan.spark)
        return
    if plan.jobs == 1:
        yield from _run_here(plan, tasks)
    else:
        yield from _run_in_processes(plan, tasks)


def _run_here(plan: Plan, tasks: Iterator[range]) -> Iterator[list[Small]]:
    """The runs one by one: an interrupt costs the run that it meets."""
    _prepare(plan.mutant, plan.python)
    thresholds = gc.get_threshold()
    collect_rarely()
    try:
        for seeds in tasks:
            for seed in seeds:
                yield _run_many(range(seed, seed + 1), plan)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        _prepare(None, "")


def _run_in_processes(plan: Plan, tasks: Iterator[range]) -> Iterator[list[Small]]:
    """The results of tasks that processes run. After an interrupt each ends its present run, and what is finished counts."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    waiting: dict[int, Future[list[Small]]] = {}
    with ProcessPoolExecutor(plan.jobs, context, _start_worker, (plan.mutant, plan.python, stop)) as pool:
        submitted = delivered = 0
        more = True
        try:
            while more or waiting:
                while more and len(waiting) < plan.jobs * 2:
                    seeds = next(tasks, None)
                    more = seeds is not None
                    if seeds is not None:
                        waiting[submitted] = pool.submit(_run_many, seeds, plan)
                        submitted += 1
                if not waiting:
                    return
                wait(waiting.values(), return_when=FIRST_COMPLETED)
                while delivered in waiting and waiting[delivered].done():
                    yield waiting.pop(delivered).result()
                    delivered += 1
        except KeyboardInterrupt:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            yield from (future.result() for _, future in sorted(waiting.items()) if not future.cancelled())
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def is_find(plan: Plan, run: Outcome | Small) -> bool:
    """Whether a run shows what is looked for: a mutant's own broken promise, where it names one."""
    if run.verdict != INVALID:
        return False
    if plan.mutant is None:
        return True
    from linearizability.mutants.registry import MUTANTS

    return MUTANTS[plan.mutant].is_found_by(run.rule)


_stop: Event | None = None
"""Set in a worker process when it is to begin no further run."""


def _start_worker(mutant: str | None, python: str, stop: Event) -> None:
    import signal

    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _prepare(mutant, python)
    collect_rarely()


def run_in_worker(seeds: range, plan: Plan) -> list[Small]:
    """Run some schedules in a process that may have run others before, with another mutant."""
    _prepare(plan.mutant, plan.python)
    if not gc.get_freeze_count():
        collect_rarely()
    return _run_many(seeds, plan)


ALLOCATIONS_A_COLLECTION = 20_000


def collect_rarely() -> None:
    """A run makes few cycles and is short: the collector skips what exists already, and looks at new objects less often."""
    gc.freeze()
    gc.set_threshold(ALLOCATIONS_A_COLLECTION)


_planted: Any = None
_interpreter: RemoteInterpreter | None = None


def _prepare(mutant: str | None, python: str) -> None:
    """Plant a mutant in this process, in place of one that was there; or start the interpreter that executes the runs."""
    global _planted, _interpreter
    if _planted is not None:
        _planted.__exit__(None, None, None)
        _planted = None
    if _interpreter is not None:
        _interpreter.close()
        _interpreter = None
    if python:
        _interpreter = RemoteInterpreter(python)
    elif mutant is not None:
        from linearizability.mutants.registry import planted

        _planted = planted(mutant)
        _planted.__enter__()


def _run_many(seeds: range, plan: Plan) -> list[Small]:
    finished: list[Small] = []
    task = Task(
        seeds.start, len(seeds), plan.mutant, plan.nodes, plan.workload, plan.coordination, plan.by_history, plan.traces
    )
    if _is_stopped():
        return finished
    for outcome, rows, seconds in runs(task, _interpreter):
        if plan.traces and outcome.schedule.is_traceable:
            write_rows(rows, plan.folder / "traces" / f"seed-{outcome.schedule.seed}")
        permitted: Counter[str] = Counter()
        excused: Counter[str] = Counter()
        excuses = sum(event.get("f") == EXCUSE for history in outcome.histories for event in history.events)
        if outcome.judgement is not None:
            for rule, reasons in outcome.judgement.permitted.items():
                permitted[rule] += sum(reasons.values())
            for rules in outcome.judgement.excused.values():
                excused.update(rules)
        finished.append(
            Small(
                outcome.schedule.seed,
                outcome.verdict,
                outcome.rule,
                outcome.text,
                outcome.messages,
                outcome.acknowledged,
                outcome.acknowledged_by_all,
                outcome.leader_changes,
                seconds,
                outcome.counts,
                dict(permitted),
                excuses,
                dict(excused),
                outcome.digest,
            )
        )
        if _is_stopped() or (plan.until_found and is_find(plan, outcome)):
            break
    return finished


def _is_stopped() -> bool:
    return _stop is not None and _stop.is_set()


def runs(task: Task, interpreter: RemoteInterpreter | None) -> Iterator[tuple[Outcome, list[dict[str, Any]], float]]:
    """Each run's outcome, its actions if `with_rows`, and the CPU seconds of this interpreter and the other together.

    Without another interpreter they run here, where the mutant is planted already. Errors: InterpreterError.
    """
    if interpreter is not None:
        began = time.process_time()
        for received in interpreter.runs(task):
            outcome = judge(received.finished)
            yield outcome, received.rows, received.seconds + time.process_time() - began
            began = time.process_time()
        return
    for seed in range(task.first_seed, task.first_seed + task.count):
        began = time.process_time()
        rows: list[dict[str, Any]] = []
        schedule = draw(seed, task.mutant, task.nodes, task.workload, task.coordination)
        outcome, _ = run_schedule(schedule, by_history=task.by_history, rows=rows if task.with_rows else None)
        yield outcome, rows, time.process_time() - began


def write_rows(rows: Iterable[Mapping[str, Any]], folder: Path) -> None:
    """One cluster's steps, in a folder of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cluster.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


# ---- one schedule, with its mutant


def run_planted(
    schedule: Schedule, keep_trace: bool = False, history_folder: Path | None = None, by_history: bool = False
) -> tuple[Outcome, Any]:
    """Run one schedule with the bug that it names."""
    if schedule.mutant is None:
        return run_schedule(schedule, keep_trace, history_folder, by_history)
    from linearizability.mutants.registry import planted

    with planted(schedule.mutant):
        return run_schedule(schedule, keep_trace, history_folder, by_history)


def _keep_small(plan: Plan, found: Found, folder: Path) -> None:
    """Shrink a failing schedule and write its folder."""
    original = draw(found.seed, plan.mutant, plan.nodes, plan.workload, plan.coordination)
    rules = set(found.rule.split(", "))

    def fails(candidate: Schedule) -> bool:
        outcome, _ = run_planted(candidate, by_history=plan.by_history)
        return outcome.verdict == INVALID and bool(rules & set(outcome.rule.split(", ")))

    until = time.monotonic() + SHRINK_S
    small, found.trials = shrink(original, fails, patience=lambda: time.monotonic() < until)
    found.folder = str(folder)
    keep_run(small, folder, plan.by_history)
    (folder / "original.json").write_text(original.to_json() + "\n")


def keep_run(schedule: Schedule, folder: Path, by_history: bool = False) -> Outcome:
    """Run a schedule again and write all its files into a folder."""
    history = folder / "history"
    history.mkdir(parents=True, exist_ok=True)
    outcome, trace = run_planted(schedule, keep_trace=True, history_folder=history, by_history=by_history)
    keep(folder, schedule, outcome, trace)
    return outcome
