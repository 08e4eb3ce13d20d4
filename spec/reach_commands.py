"""`tidegauge spec reach`: in which models each promise is asked."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from linearizability.progress import Progress
from spec.options import Json

EXAMPLES = "Examples:  tidegauge spec reach MCFailover   ·   tidegauge spec reach --resume --record --json"


def reach(
    names: Annotated[list[str] | None, typer.Argument(metavar="[MODEL]...", help="Models; default: all.")] = None,
    resume: Annotated[bool, typer.Option(help="Keep stored rows of models that have not changed since.")] = False,
    record: Annotated[bool, typer.Option(help="Store the rows, in spec/promises.json.")] = False,
    budget_s: Annotated[float, typer.Option(min=1, help="Time for each model.")] = 300,
    as_json: Json = False,
) -> None:
    """Search each model for states in which its promises mean anything (their antecedents are reached)."""
    from spec import promises
    from spec.catalogue import MODELS

    models = {model.name: model for model in MODELS}
    if unknown := [name for name in names or () if name not in models]:
        raise typer.BadParameter(f"no model is called {', '.join(unknown)}; see `tidegauge spec list`")
    asked: set[tuple[str, str]] = set()
    progress = Progress(len(names or models))
    for number, name in enumerate(names or models, 1):
        progress(f"{name}, {number} of {len(names or models)}")
        kept = promises.load().get(name)
        if resume and kept and kept.digest == promises.digest(models[name]):
            row = kept
        else:
            row = promises.reach(models[name], budget_s)
            if record:
                promises.store(row)
        asked |= {(models[name].folder, promise) for promise in row.reached}
        never = ", ".join(row.unreached) or "none"
        line = f"{name:<32} {len(row.reached)} asked in {row.distinct:,} states ({row.verdict}); not asked: {never}"
        progress.clear()
        print(json.dumps(asdict(row)) if as_json else line, flush=True)
    never = [] if names else sorted({(f, p) for f, probed in promises.REACHED.items() for p in probed} - asked)
    if as_json:
        print(json.dumps({"verdict": "fail" if never else "pass", "asked_in_no_model": [".".join(it) for it in never]}))
    elif never:
        print(f"asked in no model: {', '.join('.'.join(it) for it in never)}")
    raise typer.Exit(1 if never else 0)
