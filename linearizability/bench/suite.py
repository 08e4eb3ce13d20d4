"""`tidegauge bench suite`: measures the conformance suite against planted lies.

Each *lie* (`linearizability.mutants.wire`) is one divergence that a proxy plants between the suite and a sound broker. The
suite is run on the requirements that speak of the lie, and on a seeded sample of those that only use the lie's API:
*bystanders*, of which none may fail. Worker processes do that for one lie after the other (`conformance.liars`). A share of the
lies is judged by the whole suite, as a command. What came out is stored as soon as a lie is over, with the fingerprint of
what decides it (the lie's row, the requirements that speak of it); `--resume` runs only what is missing or stale.

Which requirement uses which API, and how long it takes, is seen in one run through the proxy without a lie (`--baseline`).
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linearizability.interrupting import leave, until_interrupted
from linearizability.progress import Progress
from linearizability.stored import make_folder_of, replace_file
from linearizability.targets import leash

if TYPE_CHECKING:
    from linearizability.mutants.wire.rewriting import Lie

FOLDER = Path(__file__).parent
STORE = FOLDER / "suite.json"
REQUIREMENTS = FOLDER.parents[1] / "conformance" / "requirements"
TABLES = FOLDER.parent / "mutants" / "wire"
RUN_TIMEOUT_S = 900
WHOLE_RUN_TIMEOUT_S = 3600
QUICK_S = 3.0
"""A requirement that takes longer without a lie is no bystander."""
SPEAKERS, BYSTANDERS = 8, 8
"""The most requirements of an area that speaks of a lie, and the most bystanders."""
FAILED, ENGINE_ERROR = "fail", "engine error"


@dataclass(frozen=True)
class Trial:
    """The result of one lie."""

    found_by: list[str]
    """Requirements that speak of the lie and failed."""
    bystanders: list[str]
    """Others that failed."""
    blocked: int
    judged: int
    engine_errors: dict[str, str] = field(default_factory=dict[str, str])
    """Requirement -> error in the suite. The empty name is for a run that did not end or reported nothing."""
    whole: bool = False
    seconds: float = 0.0
    fingerprint: str = ""

    @property
    def found(self) -> bool:
        return bool(self.found_by or self.bystanders)


@dataclass(frozen=True)
class Usage:
    """A requirement's APIs and time without a lie."""

    verdict: str
    seconds: float
    apis: list[str]


# ---- what is run


def fingerprint(lie: Lie) -> str:
    """Return a checksum of what decides a lie's trial: its row in the tables, and the requirements that speak of it.

    Not the helpers: after a change of these, run without `--resume`.
    """
    digest = hashlib.sha256(_row(lie.name).encode())
    for id, text in _requirements().items():
        if id in lie.accusers or id[:3] in lie.accusers:
            digest.update(text.encode())
    return digest.hexdigest()[:12]


@cache
def _text(path: Path) -> str:
    return path.read_text()


def _row(name: str) -> str:
    rows = [line for path in sorted(TABLES.glob("*.py")) for line in _text(path).splitlines()]
    return next(line for line in rows if line.strip().startswith(f'Lie("{name}"'))


RECORDS = ("requirement", "of_the_hunt")
"""The decorators whose first argument is the id of a requirement."""


@cache
def _requirements() -> dict[str, str]:
    """Return the source text of each requirement's record and test; helpers that are `built_on` one are not that one."""
    found: dict[str, str] = {}
    for path in sorted(REQUIREMENTS.glob("*.py")):
        lines = _text(path).splitlines()
        for node in ast.parse(_text(path)).body:
            for by in node.decorator_list if isinstance(node, ast.FunctionDef) else []:
                if not isinstance(by, ast.Call) or ast.unparse(by.func) not in RECORDS:
                    continue
                if by.args and isinstance(by.args[0], ast.Constant):
                    found[str(by.args[0].value)] = "\n".join(lines[by.lineno - 1 : node.end_lineno])
    return found


def selection(lie: Lie, usage: dict[str, Usage], seed: int) -> list[str]:
    """Return the requirements to run for a lie: those that speak of it, and bystanders."""
    from linearizability.mutants.wire.rewriting import BASIC

    draw = random.Random(f"{seed}/{lie.name}")
    speakers: list[str] = []
    for accuser in lie.accusers:
        of_area = [id for id in usage if id[:3] == accuser and lie.api in ("", *usage[id].apis)]
        speakers += draw.sample(of_area, min(SPEAKERS, len(of_area))) if len(accuser) == 3 else [accuser]
    others = [
        id
        for id, used in usage.items()
        if not lie.is_spoken_of_by(id)
        and used.verdict == "pass"
        and used.seconds < QUICK_S
        and lie.api in ("", *used.apis)
    ]
    return sorted({*speakers, *BASIC.get(lie.api, ()), *draw.sample(others, min(BYSTANDERS, len(others)))})


_started: list[subprocess.Popen[Any]] = []


def start_suite(command: Sequence[str], **more: Any) -> subprocess.Popen[Any]:
    """Start the suite as a process that Ctrl-C does not reach. `end_suites` ends it."""
    process = leash.start(command, **more)
    _started.append(process)
    return process


def end_suites() -> None:
    """Terminate the running suites without waiting for their verdicts."""
    for process in _started:
        if process.poll() is None:
            leash.kill_group(process.pid, signal.SIGTERM)


def run_suite(name: str, ids: Sequence[str], behind: str, folder: Path, timeout_s: float) -> list[dict[str, Any]]:
    """Return the JSON lines of `tidegauge run` on the proxy, with one without an id if it did not end or reported nothing."""
    target = f"exec:{sys.executable} -m linearizability.mutants.wire adapter {name} {behind}"
    command = [sys.executable, "-m", "tidegauge", "run", *ids, "--target", target, "--json", "--results", str(folder)]
    process = start_suite(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said, complaint = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        leash.kill_group(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        return [*_lines(said), {"id": "", "verdict": ENGINE_ERROR, "reason": f"no end within {timeout_s:g} s"}]
    except KeyboardInterrupt:
        end_suites()
        process.communicate()
        raise
    finally:
        leash.let_go(process.pid)
    lines = _lines(said)
    if not lines:
        lines = [{"id": "", "verdict": ENGINE_ERROR, "reason": complaint.strip()[-300:]}]
    return lines


def _lines(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
    return [line for line in found if "id" in line]


class Worker:
    """A process that judges one lie after the other on brokers that it keeps open. A context manager."""

    def __init__(self, behind: str) -> None:
        self.command = [sys.executable, "-m", "conformance.liars", "--target", behind]
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process and self.process.stdin:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
            self.process.wait()
            leash.let_go(self.process.pid)

    def judge(self, lie: Lie, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the verdicts, or a line without an id if the process ended or was too slow. The next lie gets a new
        process."""
        if self.process is None or self.process.poll() is not None:
            self.process = start_suite(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin and self.process.stdout
        limit = threading.Timer(RUN_TIMEOUT_S, self.process.kill)
        limit.start()
        try:
            self.process.stdin.write(json.dumps({"lie": lie.name, "ids": list(ids)}) + "\n")
            self.process.stdin.flush()
            said = self.process.stdout.readline()
        except BrokenPipeError:
            said = ""
        finally:
            limit.cancel()
        if said:
            return json.loads(said)["lines"]
        code = self.process.wait()
        return [{"id": "", "verdict": ENGINE_ERROR, "reason": f"the suite ended with exit code {code}"}]


def judge_by_whole_suite(lie: Lie, behind: str) -> list[dict[str, Any]]:
    """Return the verdicts of all requirements."""
    with tempfile.TemporaryDirectory() as folder:
        lines = run_suite(lie.name, [], behind, Path(folder), WHOLE_RUN_TIMEOUT_S)
        if any("Traceback" in path.read_text(errors="replace") for path in Path(folder).rglob("adapter.log")):
            lines.append({"id": "", "verdict": ENGINE_ERROR, "reason": "the lie itself failed: see the adapter's log"})
        return lines


def try_lie(lie: Lie, usage: dict[str, Usage], worker: Worker, behind: str, seed: int, whole: bool) -> Trial:
    """Run the requirements of a lie and return its result."""
    began = time.monotonic()
    lines = judge_by_whole_suite(lie, behind) if whole else worker.judge(lie, selection(lie, usage, seed))
    failed = [line["id"] for line in lines if line["verdict"] == FAILED]
    return Trial(
        found_by=[id for id in failed if lie.is_spoken_of_by(id)],
        bystanders=[id for id in failed if not lie.is_spoken_of_by(id)],
        blocked=sum(line["verdict"] == "blocked" for line in lines),
        judged=sum(line["verdict"] in ("pass", "tolerated", FAILED) for line in lines),
        engine_errors={line["id"]: line["reason"] for line in lines if line["verdict"] == ENGINE_ERROR},
        whole=whole,
        seconds=round(time.monotonic() - began, 1),
        fingerprint=fingerprint(lie),
    )


def baseline(behind: str) -> dict[str, Usage]:
    """Run the whole suite through the proxy without a lie. Errors: RuntimeError if it leaves no report."""
    with tempfile.TemporaryDirectory() as folder:
        run_suite("honest", [], behind, Path(folder), WHOLE_RUN_TIMEOUT_S)
        reports = [*Path(folder).rglob("report.json")]
        if not reports:
            raise RuntimeError("the run without a lie left no report")
        return usage_of(reports[0])


def usage_of(report: Path) -> dict[str, Usage]:
    """Return the usage of a report's requirements."""
    found: dict[str, Usage] = {}
    for judgement in json.loads(report.read_text())["judgements"]:
        if judgement["verdict"] in ("pass", "tolerated", FAILED):
            apis = sorted({exchange["api"] for exchange in judgement["exchanges"]} - {"", "ApiVersions"})
            known = [api for api in apis if api] + (
                ["ApiVersions"] if judgement["requirement"]["id"][:3] == "API" else []
            )
            found[judgement["requirement"]["id"]] = Usage(judgement["verdict"], round(judgement["seconds"], 1), known)
    return found


# ---- the store


@dataclass
class Store:
    """The stored results, one line each."""

    usage: dict[str, Usage] = field(default_factory=dict[str, Usage])
    trials: dict[str, Trial] = field(default_factory=dict[str, Trial])
    rewritten: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """First seed -> final report of a batch of trials with random rewritings."""

    @staticmethod
    def read(path: Path) -> Store:
        """Return the stored results, empty if there is no file."""
        kept = json.loads(path.read_text()) if path.exists() else {}
        usage = {id: Usage(*values) for id, values in kept.get("baseline", {}).items()}
        trials = {name: Trial(**values) for name, values in kept.get("lies", {}).items()}
        return Store(usage, trials, kept.get("rewritten", {}))

    def write(self, path: Path) -> None:
        """Store the results."""
        parts = {
            "baseline": {id: [*asdict(self.usage[id]).values()] for id in sorted(self.usage)},
            "lies": {name: asdict(self.trials[name]) for name in sorted(self.trials)},
            "rewritten": self.rewritten,
        }
        text = ",\n".join(f' "{part}": {{\n{_rows(rows)}\n }}' for part, rows in parts.items())
        replace_file(path, f"{{\n{text}\n}}\n")


def _rows(rows: dict[str, Any]) -> str:
    return ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())


# ---- random rewritings

REWRITTEN_AT_ONCE = 250
"""Trials of one batch, on one broker in one process."""


def rewrite(wanted: int, jobs: int, kept: dict[str, dict[str, Any]], done: Callable[[], None], until: float) -> None:
    """Judge requirements on `wanted` randomly rewritten responses (`conformance.rewritten`)."""
    for first in range(0, 1 << 30, REWRITTEN_AT_ONCE):
        if str(first) in kept:
            continue
        if sum(batch["rewritten"] for batch in kept.values()) >= wanted or time.monotonic() > until:
            return
        began = time.monotonic()
        command = [
            sys.executable,
            "-m",
            "conformance.rewritten",
            "--first",
            str(first),
            "--trials",
            str(REWRITTEN_AT_ONCE),
        ]
        ended = subprocess.run(
            [*command, "--jobs", str(jobs)], stdout=subprocess.PIPE, text=True, timeout=WHOLE_RUN_TIMEOUT_S, check=False
        )
        *trials, said = [json.loads(line) for line in ended.stdout.splitlines()]
        bad = [trial for trial in trials if trial["verdict"] in (ENGINE_ERROR, "hangs") or trial["overran"]]
        for trial in bad:
            print(json.dumps(trial), file=sys.stderr, flush=True)
        kept[str(first)] = said | {
            "bad_seeds": [trial["seed"] for trial in bad],
            "seconds": round(time.monotonic() - began),
        }
        done()


def rewritings_reported(kept: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the counts of all batches."""
    sums = {
        name: sum(batch[name] for batch in kept.values())
        for name in ("trials", "rewritten", "engine_errors", "overran")
    }
    peak_mb = max((batch["peak_mb"] for batch in kept.values()), default=0)
    return sums | {"peak_mb": peak_mb, "bad_seeds": [seed for batch in kept.values() for seed in batch["bad_seeds"]]}


# ---- the report


def summary(trials: dict[str, Trial], lies: dict[str, Lie]) -> dict[str, Any]:
    """Return the counts of trials, and the results to look at."""
    spoken = [name for name in trials if lies[name].spoken_of]
    accused = {name: trials[name].bystanders for name in trials if trials[name].bystanders}
    return {
        "planted": len(trials),
        "found": sum(trial.found for trial in trials.values()),
        "found_by_the_right_one": sum(bool(trials[name].found_by) for name in spoken),
        "spoken_of": len(spoken),
        "not_found": [name for name in spoken if not trials[name].found_by],
        "gaps": [name for name in trials if not (lies[name].spoken_of or lies[name].unseen)],
        "unseen": {name: lies[name].unseen for name in trials if lies[name].unseen},
        "bystanders_accused": sum(map(len, accused.values())),
        "lies_with_bystanders": accused,
        "blocked": sum(trial.blocked for trial in trials.values()),
        "judged": sum(trial.judged for trial in trials.values()),
        "engine_errors": {name: trial.engine_errors for name, trial in trials.items() if trial.engine_errors},
        "stale": sum(trial.fingerprint != fingerprint(lies[name]) for name, trial in trials.items()),
        "whole_runs": sum(trial.whole for trial in trials.values()),
        "seconds": round(sum(trial.seconds for trial in trials.values())),
    }


def suite(
    lies: Annotated[
        list[str] | None, typer.Option("--lie", help="A lie; may repeat. All by default, or as many as --count says.")
    ] = None,
    count: Annotated[int, typer.Option(min=0, help="So many lies, drawn by the seed; 0 means all.")] = 0,
    areas: Annotated[
        list[str] | None, typer.Option("--area", help="Only lies that this area speaks of; may repeat.")
    ] = None,
    whole: Annotated[int, typer.Option(min=0, help="So many of them are judged by the whole suite.")] = 0,
    rewritings: Annotated[
        int,
        typer.Option(min=0, help="Rewrite so many answers at random instead, to see that nothing in the suite breaks."),
    ] = 0,
    jobs: Annotated[
        int, typer.Option(min=1, max=64, help="So many runs, or rewritten requirements, side by side.")
    ] = 2,
    seed: Annotated[int, typer.Option(help="Draws lies and bystanders.")] = 0,
    behind: Annotated[str, typer.Option(help="The sound broker behind the proxy.")] = "reference:1",
    minutes: Annotated[float, typer.Option(min=0.01, help="Begin no run after this time.")] = 1e6,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep what is stored, and run what is missing or stale.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--baseline", help="Run the suite without a lie first, and store that.")
    ] = False,
    store: Annotated[Path, typer.Option(help="Where results are kept.")] = STORE,
    json_: Annotated[bool, typer.Option("--json", help="The last line of standard output is one JSON object.")] = False,
) -> None:
    """Plant lies at the wire between the conformance suite and a sound broker: which are found, by which requirements, and
    which are accused wrongly; resumable.
    """
    from linearizability.mutants.wire.lies import LIES

    unknown = [name for name in lies or () if name not in LIES]
    if unknown:
        raise typer.BadParameter(
            f"{unknown[0]!r} is no lie: `python -m linearizability.mutants.wire list`", param_hint="--lie"
        )
    make_folder_of(store)
    kept = Store.read(store)
    chosen = [LIES[name] for name in lies or LIES if not areas or {id[:3] for id in LIES[name].accusers} & set(areas)]
    if count:
        chosen = random.Random(seed).sample(chosen, min(count, len(chosen)))
    entire = {lie.name for lie in random.Random(f"whole {seed}").sample(chosen, min(whole, len(chosen)))}
    names = {lie.name for lie in chosen}
    kept.trials = {name: each for name, each in kept.trials.items() if name in LIES and (resume or name not in names)}
    missing = [lie for lie in chosen if _is_missing(lie, kept.trials, lie.name in entire)]
    said: dict[str, Any] = {}
    with until_interrupted(said):
        if again or not kept.usage:
            kept.usage = baseline(behind)
            kept.write(store)
        until = time.monotonic() + minutes * 60
        if not rewritings or lies or count or areas:
            _run_all(missing, entire, kept, (store, behind, seed, jobs, until))
        if rewritings:
            kept.rewritten = kept.rewritten if resume else {}
            rewrite(rewritings, jobs, kept.rewritten, lambda: kept.write(store), until)
    said |= summary({lie.name: kept.trials[lie.name] for lie in chosen if lie.name in kept.trials}, LIES)
    said["rewritings"] = rewritings_reported(kept.rewritten)
    print(json.dumps(said) if json_ else json.dumps(said, indent=1))
    failed = said["engine_errors"] or said["bystanders_accused"] or said["not_found"] or said["rewritings"]["bad_seeds"]
    leave(said, 1 if failed else 0)


def _is_missing(lie: Lie, trials: dict[str, Trial], whole: bool) -> bool:
    trial = trials.get(lie.name)
    return trial is None or trial.fingerprint != fingerprint(lie) or (whole and not trial.whole)


def _run_all(lies: Sequence[Lie], entire: set[str], kept: Store, how: tuple[Path, str, int, int, float]) -> None:
    """Run the missing lies, several at a time, and store each at its end."""
    store, behind, seed, jobs, until = how
    idle: SimpleQueue[Worker] = SimpleQueue()

    def one(lie: Lie) -> Trial | None:
        worker = idle.get()
        try:
            in_time = time.monotonic() < until
            return try_lie(lie, kept.usage, worker, behind, seed, lie.name in entire) if in_time else None
        finally:
            idle.put(worker)

    with ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        for _ in range(jobs):
            idle.put(stack.enter_context(Worker(behind)))
        running = {pool.submit(one, lie): lie for lie in lies}
        progress = stack.enter_context(Progress(len(lies)))
        try:
            for number, done in enumerate(as_completed(running), 1):
                lie, trial = running[done], done.result()
                if trial is not None:
                    kept.trials[lie.name] = trial
                    kept.write(store)
                    progress.keep(f"{lie.name}: {_in_words(trial)}")
                progress.often(f"{number} of {len(lies)} lies tried", number)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            end_suites()
            raise


def _in_words(trial: Trial) -> str:
    parts = [f"found by {', '.join(trial.found_by) or 'none'}"]
    parts += [f"accused {', '.join(trial.bystanders)}"] if trial.bystanders else []
    parts += [f"engine errors {trial.engine_errors}"] if trial.engine_errors else []
    return f"{'; '.join(parts)} ({trial.judged} judged, {trial.seconds} s)"
