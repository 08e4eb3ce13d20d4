"""`tidegauge spec mutate`: which changes to the specification the models detect."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from linearizability.progress import Progress
from spec.options import Json

if TYPE_CHECKING:
    from spec.mutants import Mutant
    from spec.mutation import Row

EXAMPLES = (
    "Examples:  tidegauge spec mutate Replica.ExpandIsr   ·   tidegauge spec mutate Quorum --for-s 600   ·   "
    "tidegauge spec mutate --dry-run   ·   tidegauge spec mutate Groups --singly --largest-s 9"
)


def mutate(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Modules, definitions (Replica.ExpandIsr) or mutants; default: all."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the mutants that would be run.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Run also what has a stored row that is current.")] = False,
    for_s: Annotated[float | None, typer.Option(min=1, help="Begin no other mutant after so many seconds.")] = None,
    share: Annotated[str, typer.Option(help="Run every n-th mutant only: 1/2 and 2/2 are two halves.")] = "1/1",
    largest_s: Annotated[float, typer.Option(min=1, help="Use models that take no more CPU seconds when clean.")] = 40,
    mutant_s: Annotated[
        float, typer.Option(min=1, help="Begin no other model of a mutant after so many seconds.")
    ] = 240,
    model_s: Annotated[float, typer.Option(min=1, help="Time for one run of TLC.")] = 600,
    memory_mb: Annotated[int, typer.Option(min=64, help="TLC's heap.")] = 2000,
    states: Annotated[
        int,
        typer.Option(min=1, help="Visit so many states of a mutant; where the model has more, only kills are stored."),
    ] = 1_000_000,
    singly: Annotated[
        bool, typer.Option("--singly", help="One mutant in a run of TLC: also models of liveness, and simulations.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Change the specification in one place at a time, and see which model notices.

    Many mutants are judged in one run of TLC. Rows are stored in spec/mutants.json as they are found, so that a run may be ended
    and taken up again.
    """
    from spec.fused import rows_together
    from spec.mutation import Limits, all_mutants, judge, load, store, waiting

    part, parts = (int(number) for number in share.split("/"))
    numbers = {name: number for number, name in enumerate(all_mutants())}
    chosen = [mutant for mutant in waiting(names, again, largest_s) if numbers[mutant.name] % parts == part - 1]
    limits = Limits(mutant_s, model_s, largest_s, memory_mb, states)
    start = time.monotonic()
    done: dict[str, Row] = {}
    progress = Progress(len(chosen))

    def keep(*rows: Row) -> None:
        store(*rows)
        for row in rows:
            done[row.mutant] = row
            progress.clear()
            print(json.dumps(asdict(row)) if as_json else _line(row), flush=True)
        progress.often(f"{len(done)} of {len(chosen)} mutants", len(done))

    if dry_run:
        for mutant in chosen:
            print(json.dumps({"mutant": mutant.name, "change": mutant.change}) if as_json else _listed(mutant))
    elif singly:
        for mutant in chosen:
            if for_s and time.monotonic() - start > for_s:
                break
            keep(judge(mutant, limits, load().get(mutant.name)))
    else:
        for rows in rows_together(chosen, limits, {} if again else load(), for_s):
            keep(*rows)
    progress.clear()
    left = len(chosen) - len(done)
    counts = Counter(row.outcome for row in done.values())
    if as_json:
        verdict = "unknown" if left or dry_run else "fail" if any(row.survived for row in done.values()) else "pass"
        print(json.dumps({"verdict": verdict, "run": len(done), "left": left, "outcomes": counts}))
    else:
        print(f"{len(done)} run, {left} left: {dict(counts)}", file=sys.stderr)
    raise typer.Exit(0 if dry_run else 2 if left else 1 if any(row.survived for row in done.values()) else 0)


def _listed(mutant: Mutant) -> str:
    return f"{mutant.name:<44} {mutant.change[:120]}"


def _line(row: Row) -> str:
    where = (
        f"{row.by} in {row.model}, {row.distinct:,} states, depth {row.depth}" if row.model else ", ".join(row.models)
    )
    return f"{row.mutant:<44} {row.outcome:<10} {where} ({row.seconds:.0f} s)"
