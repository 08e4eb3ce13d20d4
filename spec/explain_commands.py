"""`tidegauge spec explain` and `tidegauge spec counterexample`: what a model, a switch or a step is, and how a switch breaks."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, cast

import typer

from spec.options import Json, case_named

EXPLAIN_EXAMPLES = (
    "Examples:  tidegauge spec explain MCIsr   ·   tidegauge spec explain FetchWithoutFencing   ·   "
    "tidegauge spec explain BecomeCandidate   ·   tidegauge spec explain Heartbeat --json"
)
COUNTEREXAMPLE_EXAMPLES = (
    "Examples:  tidegauge spec counterexample TruncateToHighWatermark   ·   "
    "tidegauge spec counterexample IgnoreProposedIsr --svg picture.svg"
)


def explain(
    name: Annotated[str, typer.Argument(help="A model, a switch, or a step of any book (an action).")],
    as_json: Json = False,
) -> None:
    """Show what a model covers, what a switch breaks and why, or what a step is in the specification and in the broker."""
    from spec.catalogue import all_cases
    from spec.steps import steps_called

    steps = [_about_step(step) for step in steps_called(name)]
    if not steps and name not in all_cases():
        raise typer.BadParameter(
            f"no model, switch or step is called {name}; see `tidegauge spec list`, spec/TRACEABILITY.md"
        )
    found = steps or [_about_case(name)]
    if as_json:
        print(json.dumps({"action": name, "books": steps} if steps else found[0]))
        return
    print("\n\n".join(_lines(about) for about in found))


def _about_step(step: Any) -> dict[str, Any]:
    """What a step means, and what it is in the broker (TRACEABILITY.md)."""
    from spec.actions import ACTIONS
    from spec.counterparts import OF_MESSAGES
    from spec.traceability import rows

    row = next((row for row in rows(step.book) if row.action == step.name), None)
    about: dict[str, Any] = {"action": step.name, "book": step.book, "defined in": step.module}
    if row is None:
        return about | {"lacks": [OF_MESSAGES], "definition": step.text}
    action = next((action for action in ACTIONS if action.name == step.name), None)
    if action and step.book == "replication":
        about |= {"meaning": action.meaning, "whose": action.actor, "arguments": [*action.arguments]}
    about |= {"method": row.method if row.places else "", "in": [*row.places], "event traced in": [*row.traced_in]}
    about |= {"promises": [*row.promises], "requirements": [*row.requirements], "tests": [*row.tests]}
    return about | {"lacks": [*row.missing], "definition": step.text}


def _about_case(name: str) -> dict[str, Any]:
    """What a model or a switch is, and what was last found."""
    from spec.models import checked
    from spec.results import load

    case = case_named(name)
    result = load().get(name)
    about: dict[str, Any] = {"name": name, "model": case.model.name, "module": case.model.module}
    about["purpose"] = case.model.purpose
    if case.switch:
        about |= {"violates": case.switch.violates, "source": case.switch.source, "story": case.switch.story}
    else:
        about |= {"checks": list(checked(case.model.text)), "switches": [s.name for s in case.model.switches]}
    if result:
        older = "" if result.digest == case.digest() else " (of an older text)"
        about["last result"] = f"{result.actual} {result.violated}".strip() + older
        about |= {"states": result.distinct, "depth": result.depth, "seconds": result.seconds}
    return about | {"configuration": case.configuration()}


def _lines(about: dict[str, Any]) -> str:
    texts = {
        key: ", ".join(cast("list[str]", value)) if isinstance(value, list) else str(value)
        for key, value in about.items()
    }
    return "\n".join(
        f"{key}:\n{text}" if "\n" in text else f"{key + ':':<14} {text}" for key, text in texts.items() if text
    )


def counterexample(
    name: Annotated[str, typer.Argument(help="A switch.")],
    svg: Annotated[str, typer.Option(help="Write the sequence diagram to this file as a picture.")] = "",
    page: Annotated[str, typer.Option(help="Write a page to this file that plays the steps.")] = "",
    as_json: Json = False,
) -> None:
    """Find the shortest way in which a switch breaks its promise, and print it as steps and as a sequence diagram."""
    from pathlib import Path

    from spec.check_commands import summary
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
            print(json.dumps(summary([result], exit_code([result]) or 1)))
        raise typer.Exit(exit_code([result]) or 1)
    heading = f"{name} breaks {case.switch.violates} in {len(outcome.trace)} states"
    if svg:
        Path(svg).write_text(diagram_svg(outcome.trace, heading))
    if page:
        from linearizability.explorer.page import page as explorer
        from spec.explorer import run_of

        Path(page).write_text(explorer(run_of(outcome.trace, heading, case.switch.violates, case.switch.story)))
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
