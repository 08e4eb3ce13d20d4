"""`tidegauge spec`: list, check, explain, counterexample, trace, kernels, behaviours.

Exit codes: 0 everything as expected, 1 a promise is broken or a switch was not caught, 2 a checker ran out of time or memory,
3 a wrong model or a missing checker, 64 wrong usage.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from spec.behaviour_commands import EXAMPLES, behaviours
from spec.options import Json, case_named

WRONG_USAGE = 64

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
spec = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Model-check the TLA+ specification.",
    epilog="Examples:  tidegauge spec list   ·   tidegauge spec check MCTruncation   ·   tidegauge spec check --all --json",
)
app.add_typer(spec, name="spec")


@app.callback()
def root() -> None:
    """The specification's commands."""


@spec.command("list", epilog="Examples:  tidegauge spec list   ·   tidegauge spec list --json")
def list_models(as_json: Json = False) -> None:
    """List the models, the switches that must break them, and what was last found."""
    from spec.catalogue import all_cases
    from spec.results import load

    stored = load()
    rows = []
    for name, case in all_cases().items():
        result = stored.get(name)
        current = bool(result and result.digest == case.digest())
        rows.append(
            {
                "name": name,
                "kind": "switch" if case.switch else "model",
                "model": case.model.name,
                "expected": str(case.expected),
                "property": case.expected_property,
                "about": case.switch.source if case.switch else case.model.purpose,
                "quick": case.quick,
                "last": result.actual if result and current else "",
            }
        )
    if as_json:
        for row in rows:
            print(json.dumps(row))
        switches = sum(row["kind"] == "switch" for row in rows)
        print(json.dumps({"models": len(rows) - switches, "switches": switches}))
        return
    for row in rows:
        indent = "  " if row["kind"] == "switch" else ""
        wanted = f"violates {row['property']}" if row["property"] else row["expected"]
        print(f"{indent + row['name']:<34} {wanted:<40} {row['last'] or '-':<10} {row['about']}")


@spec.command(
    epilog="Examples:  tidegauge spec check   ·   tidegauge spec check TruncateToHighWatermark   ·   "
    "tidegauge spec check --all --resume --json"
)
def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Models or switches; default: the quick ones.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every model and every switch.")] = False,
    resume: Annotated[bool, typer.Option(help="Keep stored results of cases that have not changed since.")] = False,
    record: Annotated[
        bool, typer.Option(help="Store the results, and write the tables of spec/README.md again.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="TLC's worker threads.")] = 1,
    memory_mb: Annotated[int, typer.Option(min=64, help="TLC's heap.")] = 3000,
    budget_s: Annotated[float | None, typer.Option(min=1, help="Time for each case; default: the case's own.")] = None,
    as_json: Json = False,
) -> None:
    """Check models with TLC: clean ones must hold, each switch must be caught."""
    from dataclasses import replace

    from spec.checker import check as run_checker
    from spec.results import exit_code, load, result_of, save

    chosen = _chosen(names, everything)
    stored = load()
    results = []
    for case in chosen:
        kept = stored.get(case.name)
        if resume and kept and kept.digest == case.digest() and kept.as_expected:
            result = replace(kept, stored=True)
        else:
            print(f"{case.name} …", file=sys.stderr, flush=True)
            job = case.job(workers, memory_mb)
            outcome = run_checker(replace(job, budget_s=budget_s) if budget_s else job)
            result = result_of(case, outcome)
            if record and not result.engine_error:
                stored = load() | {case.name: result}
                save(stored)
        results.append(result)
        if as_json:
            print(json.dumps(asdict(result) | {"as_expected": result.as_expected}), flush=True)
        else:
            print(_line(result), flush=True)
    if record:
        from spec.tables import write_tables

        write_tables()
    code = exit_code(results)
    if as_json:
        print(json.dumps(_summary(results, code)))
    raise typer.Exit(code)


def _chosen(names: list[str] | None, everything: bool) -> list:
    from spec.catalogue import all_cases

    cases = all_cases()
    unknown = [name for name in names or () if name not in cases]
    if unknown:
        raise typer.BadParameter(f"no model or switch is called {', '.join(unknown)}; see `tidegauge spec list`")
    if names:
        return [cases[name] for name in names]
    return [case for case in cases.values() if everything or case.quick]


def _line(result) -> str:
    mark = "as expected" if result.as_expected else "unknown" if result.unknown else "NOT AS EXPECTED"
    found = f"{result.actual} {result.violated}".strip()
    numbers = f"{result.distinct:,} states, depth {result.depth}, {result.seconds:.0f} s"
    reason = "" if result.as_expected else f"  {result.reason}"
    return f"{result.name:<34} {found:<40} {mark}{' (stored)' if result.stored else ''}: {numbers}{reason}"


def _summary(results: list, code: int) -> dict[str, object]:
    verdict = {0: "pass", 1: "fail", 2: "unknown", 3: "error"}[code]
    rows = [
        {
            "name": r.name,
            "expected": f"{r.expected} {r.expected_property}".strip(),
            "actual": f"{r.actual} {r.violated}".strip(),
            "distinct": r.distinct,
            "depth": r.depth,
            "seconds": r.seconds,
        }
        for r in results
    ]
    return {
        "verdict": verdict,
        "as_expected": sum(r.as_expected for r in results),
        "not_as_expected": sum(not r.as_expected and not r.unknown for r in results),
        "unknown": sum(r.unknown for r in results),
        "seconds": round(sum(r.seconds for r in results if not r.stored), 1),
        "models": rows,
    }


@spec.command(epilog="Examples:  tidegauge spec explain MCIsr   ·   tidegauge spec explain FetchWithoutFencing")
def explain(
    name: Annotated[str, typer.Argument(help="A model, a switch, or an action.")],
    as_json: Json = False,
) -> None:
    """Show what a model covers, what a switch breaks and why, or what an action means."""
    from spec.actions import ACTIONS
    from spec.models import checked
    from spec.results import load

    action = next((action for action in ACTIONS if action.name == name), None)
    if action:
        about: dict[str, object] = {
            "action": name,
            "method": action.method,
            "whose": action.actor,
            "arguments": list(action.arguments),
            "meaning": action.meaning,
            "defined in": f"spec/replication/{action.chapter}.tla",
        }
    else:
        case = case_named(name)
        result = load().get(name)
        about = {"name": name, "model": case.model.name, "module": case.model.module, "purpose": case.model.purpose}
        if case.switch:
            about |= {"violates": case.switch.violates, "source": case.switch.source, "story": case.switch.story}
        else:
            about |= {"checks": list(checked(case.model.text)), "switches": [s.name for s in case.model.switches]}
        if result:
            current = result.digest == case.digest()
            about["last result"] = f"{result.actual} {result.violated}".strip() + (
                "" if current else " (of an older text)"
            )
            about |= {"states": result.distinct, "depth": result.depth, "seconds": result.seconds}
        about["configuration"] = case.configuration()
    if as_json:
        print(json.dumps(about))
        return
    for key, value in about.items():
        text = ", ".join(value) if isinstance(value, list) else str(value)
        print(f"{key}:\n{text}" if "\n" in text else f"{key + ':':<13} {text}")


@spec.command(
    epilog="Examples:  tidegauge spec counterexample TruncateToHighWatermark   ·   "
    "tidegauge spec counterexample IgnoreProposedIsr --svg picture.svg"
)
def counterexample(
    name: Annotated[str, typer.Argument(help="A switch.")],
    svg: Annotated[str, typer.Option(help="Write the sequence diagram to this file as a picture.")] = "",
    as_json: Json = False,
) -> None:
    """Find the shortest way in which a switch breaks its promise, and print it as steps and as a sequence diagram."""
    from pathlib import Path

    from spec.checker import Verdict
    from spec.checker import check as run_checker
    from spec.rendering import arrows, diagram_svg, diagram_text, steps_text
    from spec.results import exit_code, result_of

    case = case_named(name)
    if not case.switch:
        raise typer.BadParameter(f"{name} is a clean model and has no counterexample; its switches have")
    outcome = run_checker(case.job())
    result = result_of(case, outcome)
    if outcome.verdict != Verdict.VIOLATED:
        print(f"{name}: {outcome.verdict} {outcome.reason}", file=sys.stderr)
        if as_json:
            print(json.dumps(_summary([result], exit_code([result]) or 1)))
        raise typer.Exit(exit_code([result]) or 1)
    heading = f"{name} breaks {case.switch.violates} in {len(outcome.trace)} states"
    if svg:
        Path(svg).write_text(diagram_svg(outcome.trace, heading))
    if as_json:
        for step, arrow in zip(outcome.trace[1:], arrows(outcome.trace)[1], strict=True):
            print(
                json.dumps(
                    {"number": step.number, "step": step.state.get("step"), "from": arrow.source, "to": arrow.target}
                )
            )
        print(json.dumps({"switch": name, "violates": case.switch.violates, "states": len(outcome.trace)}))
        return
    print(f"{heading}\n\n{case.switch.story}\n\n{steps_text(outcome.trace)}\n\n{diagram_text(outcome.trace)}")


@spec.command(
    epilog="Examples:  tidegauge spec trace results/latest/traces   ·   tidegauge spec trace one.jsonl --json"
)
def trace(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Trace files, or folders of *.jsonl files.")],
    budget_s: Annotated[float, typer.Option(min=1, help="Time for each run of TLC.")] = 600,
    memory_mb: Annotated[int, typer.Option(min=64, help="TLC's heap.")] = 3000,
    as_json: Json = False,
) -> None:
    """Check traces of brokers against the specification: every step must be one that it allows.

    Exit codes: 0 all accepted, 1 one was rejected, 2 there was nothing to check or TLC did not finish, 3 no TLC, 64 no trace.
    """
    from pathlib import Path

    from spec.checker import Verdict
    from spec.rendering import show
    from spec.trace import TraceError, check_traces, read_traces

    try:
        traces = read_traces([Path(path) for path in paths])
    except (TraceError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    if not traces:
        print("no traces found", file=sys.stderr)
        raise typer.Exit(2)
    done = check_traces(traces, budget_s, memory_mb)
    unfinished = done.outcome.verdict != Verdict.HOLDS
    for verdict in done.rejected:
        if as_json:
            print(
                json.dumps(
                    {"trace": verdict.name, "place": verdict.place, "event": verdict.event, "reason": verdict.reason}
                )
            )
            continue
        print(f"{verdict.name}: rejected at event {verdict.place}: {json.dumps(verdict.event)}\n  {verdict.reason}")
        for name in ("partition", "metadata", "log", "highWatermark", "progress", "pending", "registry", "status"):
            if name in verdict.before:
                print(f"  before it, {name}: {show(verdict.before[name])}")
    if unfinished:
        print(f"{done.outcome.verdict}: {done.outcome.reason}", file=sys.stderr)
    out_of_budget = done.outcome.verdict in (Verdict.OUT_OF_TIME, Verdict.OUT_OF_MEMORY)
    code = (2 if out_of_budget else 3) if unfinished else 1 if done.rejected else 0
    summary = {
        "verdict": {0: "valid", 1: "invalid", 2: "unknown", 3: "error"}[code],
        "traces": len(traces),
        "accepted": sum(verdict.accepted for verdict in done.verdicts),
        "rejected": len(done.rejected),
        "events": done.events,
        "seconds": round(done.seconds, 2),
        "cpu_seconds": round(done.cpu_seconds, 2),
        "events_per_cpu_second": round(done.events / done.cpu_seconds) if done.cpu_seconds else 0,
    }
    print(json.dumps(summary) if as_json else ", ".join(f"{key} {value}" for key, value in summary.items()))
    raise typer.Exit(code)


@spec.command(epilog="Examples:  tidegauge spec kernels   ·   tidegauge spec kernels --record --json")
def kernels(
    record: Annotated[bool, typer.Option(help="Store what was found, and write spec/KERNELS.md again.")] = False,
    seconds: Annotated[float, typer.Option(min=1, help="CrossHair's time for each condition.")] = 30,
    as_json: Json = False,
) -> None:
    """Confirm the broker's pure rules over all paths with CrossHair.

    Exit codes: 0 every rule over plain values is confirmed and none refuted, 1 one is refuted, 2 one was not confirmed in time.
    """
    from spec.kernels import Knowledge, confirm_all
    from spec.kernels import record as store

    found, findings, took_s = confirm_all(seconds)
    for finding in findings:
        row = {"kernel": finding.kernel, "found": finding.knowledge, "reason": finding.reason}
        print(json.dumps(row) if as_json else f"{finding.kernel:<70} {finding.knowledge:<10} {finding.reason}")
    if record:
        store(findings)
    refuted = [finding.kernel for finding in findings if finding.knowledge == Knowledge.REFUTED]
    unconfirmed = [
        kernel.title
        for kernel, finding in zip(found, findings, strict=True)
        if kernel.is_scalar and finding.knowledge != Knowledge.CONFIRMED
    ]
    code = 1 if refuted else 2 if unconfirmed or not found else 0
    summary = {
        "verdict": {0: "pass", 1: "fail", 2: "unknown"}[code],
        "rules": len(findings),
        "confirmed": sum(finding.knowledge == Knowledge.CONFIRMED for finding in findings),
        "searched": sum(finding.knowledge == Knowledge.SEARCHED for finding in findings),
        "refuted": refuted,
        "not confirmed": unconfirmed,
        "seconds": round(took_s, 1),
    }
    print(json.dumps(summary) if as_json else ", ".join(f"{key} {value}" for key, value in summary.items()))
    raise typer.Exit(code)


spec.command(epilog=EXAMPLES)(behaviours)
