"""What the commands of `tidegauge spec` have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from spec.models import Case

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on standard output; the last one sums up.")]


def case_named(name: str) -> Case:
    """A model or a switch. Errors: BadParameter."""
    from spec.catalogue import all_cases

    cases = all_cases()
    if name not in cases:
        raise typer.BadParameter(f"no model or switch is called {name}; see `tidegauge spec list`")
    return cases[name]
