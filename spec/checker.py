"""Runs TLC on one model and reads the verdict from its output; each way in which TLC can fail has a verdict of its own.

TLC exits 0 when a model holds, 12 on a safety and 13 on a liveness violation, 11 on a deadlock; every other code means that
it did not judge. The verdict is "holds" only where TLC printed its message of success and exited with 0.
"""

from __future__ import annotations

import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from spec.values import parse_state

SUCCESS = 2193
SIMULATED = 2209
FINISHED = 2186
STATISTICS = 2199
DEPTH = 2194
STATE = 2217
BACK_TO_STATE = 2122
STUTTERING = 2218
VIOLATED_AT_ONCE = 2107
"""TLC's message numbers, as `-tool` prints them."""

VIOLATIONS = {
    VIOLATED_AT_ONCE: r"Invariant (\w+) is violated by the initial",
    2110: r"Invariant (\w+) is violated",
    2108: r"Property (.+) is violated by the initial",
    2112: r"Action property (.+) is violated",
    2116: r"Temporal properties were violated",
}

MEMORY_MESSAGES = {1001, 1002, 1003, 1004}
"""Out of memory; fingerprints out of memory; stack overflow. A full disk is 2xxx and becomes `BROKEN`."""


class Verdict(StrEnum):
    HOLDS = "holds"
    SEARCHED = "searched"
    """A simulation ended and none of its behaviours broke a promise; other behaviours were not drawn."""
    VIOLATED = "violated"
    DEADLOCK = "deadlock"
    OUT_OF_TIME = "out of time"
    OUT_OF_MEMORY = "out of memory"
    WRONG_MODEL = "wrong model"
    """A module or a configuration has an error: TLC judged nothing."""
    NO_CHECKER = "no checker"
    """Java or TLC's jar is missing."""
    BROKEN = "broken"
    """TLC ended in another way."""


LONG_RUN = ("-XX:+UseParallelGC",)
SHORT_RUN = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A short run is mostly the JVM's warm-up: with only the first compiler (C1) it takes half the CPU time."""


@dataclass(frozen=True)
class Job:
    """One run of TLC: a folder's modules, the root module, and the configuration's text."""

    folder: Path | None
    """None if `modules` has all modules."""
    module: str
    configuration: str
    budget_s: float = 600.0
    memory_mb: int = 3000
    workers: int = 1
    coverage: bool = False
    options: tuple[str, ...] = ()
    jvm: tuple[str, ...] = LONG_RUN
    modules: dict[str, str] = field(default_factory=dict[str, str])
    """Further modules, by name: generated ones."""

    def texts(self) -> dict[str, str]:
        """All modules, by name."""
        here = sorted(self.folder.glob("*.tla")) if self.folder else []
        return {path.stem: path.read_text() for path in here} | self.modules


@dataclass(frozen=True)
class TraceStep:
    """One state of a counterexample and the action that led to it."""

    number: int
    action: str
    state: dict[str, object]


@dataclass(frozen=True)
class Outcome:
    verdict: Verdict
    violated: str = ""
    """Which invariant or property was violated; empty where TLC does not say (liveness)."""
    reason: str = ""
    generated: int = 0
    distinct: int = 0
    depth: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    coverage: dict[str, int] = field(default_factory=dict[str, int])
    """Action -> how often it was taken (`action_coverage`)."""
    trace: tuple[TraceStep, ...] = ()
    loop_to: int = 0
    """The number of the state to which a liveness counterexample returns; of its last state if it stutters."""
    output: str = ""


def check(job: Job, jar: Path | None = None) -> Outcome:
    """Run TLC in a temporary folder; `jar` is TLC's, by default the one among the artifacts."""
    try:
        java, jar = _tools(jar)
    except _Missing as missing:
        return Outcome(Verdict.NO_CHECKER, reason=str(missing))
    with tempfile.TemporaryDirectory(prefix="tidegauge-tlc-") as name:
        folder = Path(name)
        for module, text in job.texts().items():
            (folder / f"{module}.tla").write_text(text)
        (folder / f"{job.module}.cfg").write_text(job.configuration)
        outcome = _run(job, folder, java, jar)
        if not job.coverage:
            return outcome
        return replace(outcome, coverage=action_coverage(outcome.output, sorted(folder.glob("*.tla"))))


class _Missing(Exception):
    pass


def _tools(jar: Path | None) -> tuple[Path, Path]:
    from linearizability.targets.artifacts import ArtifactError, tlc_jar
    from linearizability.targets.java import JavaMissing, java

    try:
        return java(), jar or tlc_jar()
    except (ArtifactError, JavaMissing) as error:
        raise _Missing(str(error)) from error


def _run(job: Job, folder: Path, java: Path, jar: Path) -> Outcome:
    from linearizability.targets import leash

    command = [str(java), f"-Xmx{job.memory_mb}m", *job.jvm, "-XX:+ExitOnOutOfMemoryError"]
    command += ["-XX:GCTimeLimit=90", f"-Djava.io.tmpdir={folder}", "-cp", str(jar), "tlc2.TLC", "-tool"]
    command += ["-metadir", str(folder / "states"), "-workers", str(job.workers)]
    command += ["-coverage", "60"] if job.coverage else []
    command += [*job.options, "-config", f"{job.module}.cfg", job.module]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    timed_out = False
    with leash.start(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            output, _ = process.communicate(timeout=job.budget_s)
        except subprocess.TimeoutExpired:
            timed_out = True
            process.kill()
            output, _ = process.communicate()
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
            leash.let_go(process.pid)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    simulated = "-simulate" in job.options
    return read_output(output, process.returncode, timed_out, time.monotonic() - start, spent, simulated)


MESSAGE = re.compile(r"@!@!@STARTMSG (\d+):\d+ @!@!@\n(.*?)\n?@!@!@ENDMSG \1 @!@!@", re.S)


def read_output(
    output: str,
    code: int,
    timed_out: bool = False,
    seconds: float = 0,
    cpu_seconds: float = 0,
    simulated: bool = False,
) -> Outcome:
    """The outcome by TLC's output and exit code. A simulation prints no message of success: it succeeded if TLC finished."""
    messages = [(int(number), text) for number, text in MESSAGE.findall(output)]
    verdict, broken_property, reason = _verdict(messages, output, code, timed_out)
    trace, loop_to = _trace(messages)
    generated, distinct = _statistics(messages)
    if verdict == Verdict.BROKEN and simulated and code == 0 and generated and any(n == FINISHED for n, _ in messages):
        verdict, reason = Verdict.SEARCHED, ""
    depth = next((int(m[1]) for n, t in messages if n == DEPTH and (m := re.search(r"search is (\d+)", t))), 0)
    return Outcome(
        verdict=verdict,
        violated=broken_property,
        reason=reason,
        generated=generated,
        distinct=distinct,
        depth=depth or len(trace),
        seconds=round(seconds, 2),
        cpu_seconds=round(cpu_seconds, 2),
        trace=trace,
        loop_to=loop_to,
        output=output,
    )


def _verdict(messages: list[tuple[int, str]], output: str, code: int, timed_out: bool) -> tuple[Verdict, str, str]:
    numbers = {number for number, _ in messages}
    for number, text in messages:
        if number in VIOLATIONS and (found := re.search(VIOLATIONS[number], text)):
            if code not in (12, 13):
                break
            return Verdict.VIOLATED, found[1] if found.groups() else "", text.strip()
    if numbers & MEMORY_MESSAGES or "OutOfMemoryError" in output:
        return Verdict.OUT_OF_MEMORY, "", _last_error(messages, output)
    if timed_out:
        return Verdict.OUT_OF_TIME, "", f"stopped after its budget; {_progress(messages)}"
    if code == 0 and SUCCESS in numbers:
        return Verdict.HOLDS, "", ""
    if code == 11:
        return Verdict.DEADLOCK, "", _last_error(messages, output)
    if code in (10, 150, 151) or "ConfigFileException" in output or code in (75, 76, 77, 255):
        return Verdict.WRONG_MODEL, "", _last_error(messages, output)
    return Verdict.BROKEN, "", f"exit code {code}: {_last_error(messages, output)}"


NOISE = {
    2262,
    2187,
    2219,
    2220,
    2185,
    2189,
    2190,
    2191,
    2186,
    2200,
    2221,
    2268,
    2269,
    2401,
    STATE,
    STATISTICS,
    2201,
    2202,
}


def _last_error(messages: list[tuple[int, str]], output: str) -> str:
    texts = [" ".join(text.split()) for number, text in messages if number not in NOISE and number < 2700]
    plain = [
        line for line in re.sub(MESSAGE, "", output).splitlines() if re.match(r"\S.*(rror|not |Unknown|File)", line)
    ]
    return "; ".join([*texts[:3], *plain[:3]]) or " ".join(output.split()[-40:])


def _progress(messages: list[tuple[int, str]]) -> str:
    lines = [text.strip() for number, text in messages if number == 2200]
    return lines[-1] if lines else "no progress was reported"


def _statistics(messages: list[tuple[int, str]]) -> tuple[int, int]:
    generated = distinct = 0
    for number, text in messages:
        if number in (STATISTICS, 2200, 2206, SIMULATED) and (
            found := re.search(r"([\d,]+) states generated.*?(-1|[\d,]+) distinct states", text, re.S)
        ):
            generated, distinct = (max(0, int(group.replace(",", ""))) for group in found.groups())
    return generated, distinct


NAMED_STEP = re.compile(r'Step\("(\w+)"')
COVERED_ACTION = re.compile(r"^<(\w+) line \d+, col \d+ to line \d+, col \d+ of module \w+>: \d+:(\d+)", re.M)
COVERED_LINE = re.compile(r"^\s*\|*line (\d+), col \d+ to line \d+, col \d+ of module (\w+): (\d+)", re.M)


def action_coverage(output: str, modules: Iterable[Path]) -> dict[str, int]:
    """How often each step was taken: the count of the line `Step("Name", …)`, because TLC names only some actions.

    Inside some actions that TLC names it counts no lines; for these the result is TLC's count of the action.
    """
    actions = {name: int(count) for name, count in COVERED_ACTION.findall(output)}
    counts: dict[tuple[str, int], int] = {}
    for line, module, count in COVERED_LINE.findall(output):
        key = (module, int(line))
        counts[key] = max(counts.get(key, 0), int(count))
    found: dict[str, int] = {}
    for path in modules:
        for number, text in enumerate(path.read_text().splitlines(), 1):
            named = NAMED_STEP.search(text)
            if named and (path.stem, number) in counts:
                found[named[1]] = found.get(named[1], 0) + counts[path.stem, number]
            elif named and actions.get(named[1]):
                found[named[1]] = actions[named[1]]
    return found


def _trace(messages: list[tuple[int, str]]) -> tuple[tuple[TraceStep, ...], int]:
    steps: list[TraceStep] = []
    loop_to = 0
    for number, text in messages:
        if number == VIOLATED_AT_ONCE and (found := re.match(r".*?:\n(.*)", text, re.S)):
            steps.append(TraceStep(1, "Initial predicate", parse_state(found[1])))
        elif number == STATE and (found := re.match(r"(\d+): <(\w+).*?>\n(.*)", text, re.S)):
            steps.append(TraceStep(int(found[1]), found[2], parse_state(found[3])))
        elif number == BACK_TO_STATE and (found := re.match(r"(\d+): ", text)):
            loop_to = int(found[1])
        elif number == STUTTERING:
            loop_to = len(steps)
    return tuple(steps), loop_to
