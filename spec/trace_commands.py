"""`tidegauge spec trace`: traces of brokers, checked against the specification."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spec.options import Conf, EngineName, EngineOption, Json, Master, engine_of, one_line_where_spark_fails

if TYPE_CHECKING:
    from spec.trace import TraceVerdict, Validation

EXAMPLES = (
    "Examples:  tidegauge spec trace results/latest/traces   ·   tidegauge spec trace one.jsonl --json   ·   "
    "tidegauge spec trace results/latest/traces --look-ups 100   ·   "
    "tidegauge spec trace results/latest/traces --engine spark --master spark://HOST:7077"
)


def trace(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Trace files, or folders of *.jsonl files.")],
    budget_s: Annotated[float, typer.Option(min=1, help="Time for each run of TLC.")] = 600,
    memory_mb: Annotated[int, typer.Option(min=64, help="TLC's heap.")] = 3000,
    look_ups: Annotated[
        int, typer.Option(min=0, help="Of so many rejected traces say at which event; a run of TLC for each.")
    ] = 10,
    engine: EngineOption = EngineName.LOCAL,
    master: Master = "",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Check traces of brokers against the specification: every step must be one that it allows.

    For a rejected trace it prints the event that no action allows, and the states around it. `events_per_cpu_second` has the
    events of all traces, and the CPU time of the runs that judge them, with TLC's start and without the runs that look
    rejections up.

    Exit codes: 0 all accepted, 1 one was rejected, 2 there was nothing to check or TLC did not finish, 3 no TLC, 64 no trace.
    """
    from pathlib import Path

    from spec.trace import TraceError, check_traces, read_traces

    try:
        traces = read_traces([Path(path) for path in paths])
    except (TraceError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    if not traces:
        print("no traces found", file=sys.stderr)
        raise typer.Exit(2)
    with one_line_where_spark_fails(as_json):
        done = check_traces(traces, budget_s, memory_mb, look_ups, engine_of(engine, master, conf))
    for verdict in done.rejected:
        print(json.dumps(_row(verdict)) if as_json else _text(verdict))
    code = _exit_code(done)
    summary = _summary(done, len(traces), code)
    if len(done.rejected) > look_ups:
        summary["look_up"] = shlex.join(["tidegauge", "spec", "trace", *paths, "--look-ups", str(len(done.rejected))])
    print(json.dumps(summary) if as_json else ", ".join(f"{key} {value}" for key, value in summary.items()))
    raise typer.Exit(code)


def _exit_code(done: Validation) -> int:
    from spec.checker import Verdict

    if done.outcome.verdict == Verdict.HOLDS:
        return 1 if done.rejected else 0
    print(f"{done.outcome.verdict}: {done.outcome.reason}", file=sys.stderr)
    return 2 if done.outcome.verdict in (Verdict.OUT_OF_TIME, Verdict.OUT_OF_MEMORY) else 3


def _row(verdict: TraceVerdict) -> dict[str, Any]:
    """A rejected trace as JSON: the rejected `event`, the state `before` it, and `after`, a state that breaks a promise.

    `names` maps the short names of a state to their meanings.
    """
    found: dict[str, Any] = {"trace": verdict.name, "looked_up": verdict.looked_up, "reason": verdict.reason}
    if verdict.looked_up:
        found |= {"place": verdict.place, "event": verdict.event, "before": verdict.before, "after": verdict.after}
        found["names"] = verdict.names
    return found


def _text(verdict: TraceVerdict) -> str:
    if not verdict.looked_up:
        return f"{verdict.name}: rejected, not looked up where: {verdict.reason or 'see look_up below'}"
    from spec.rendering import changes, show

    place = f"event {verdict.place}: {json.dumps(verdict.event)}" if verdict.event else "its beginning"
    lines = [f"{verdict.name}: rejected at {place}", f"  {verdict.reason}"]
    lines += [f"  {short} is {name}" for short, name in verdict.names.items()]
    lines += [f"  before it, {name}: {show(value)}" for name, value in verdict.before.items()]
    if verdict.before and verdict.after:
        lines += [f"  with it, {change}" for change in changes(verdict.before, verdict.after)]
    elif verdict.after:
        lines += [f"  in it, {name}: {show(value)}" for name, value in verdict.after.items()]
    return "\n".join(lines)


def _summary(done: Validation, traces: int, code: int) -> dict[str, Any]:
    return {
        "verdict": {0: "valid", 1: "invalid", 2: "unknown", 3: "error"}[code],
        "traces": traces,
        "accepted": sum(verdict.accepted for verdict in done.verdicts),
        "rejected": len(done.rejected),
        "not_looked_up": sum(not verdict.looked_up for verdict in done.rejected),
        "events": done.events,
        "seconds": round(done.seconds, 2),
        "cpu_seconds": round(done.judging_cpu_seconds, 2),
        "look_up_cpu_seconds": round(done.look_up_cpu_seconds, 2),
        "events_per_cpu_second": done.events_per_cpu_second,
    }
