"""What the commands of `tidegauge spec` have in common."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from spec.engine import Engine
    from spec.models import Case

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on standard output; the last one sums up.")]


class EngineName(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


EngineOption = Annotated[
    EngineName, typer.Option("--engine", help="Where TLC runs: on this machine, or in tasks of Spark, many at once.")
]
Master = Annotated[str, typer.Option(help="The Spark master; default: as Spark is configured, else local[*].")]
Conf = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark; may repeat.")]


def engine_of(name: EngineName, master: str, terms: list[str] | None) -> Engine:
    """The engine of this name; `terms` are settings of Spark, NAME=VALUE. Errors: BadParameter; SparkFailure."""
    if name is EngineName.LOCAL:
        if master or terms:
            raise typer.BadParameter("--master and --conf are Spark's: --engine spark", param_hint="--engine")
        from spec.engine import LOCAL

        return LOCAL
    from linearizability.pipeline.spark_session import settings_of_terms
    from spec.on_spark import SparkEngine

    try:
        settings = settings_of_terms(terms or [])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--conf") from None
    return SparkEngine(master, settings)


@contextmanager
def one_line_where_spark_fails(as_json: bool) -> Generator[None]:
    """Report a failure of Spark in one line. Errors: Exit 3, the code of a missing checker."""
    from linearizability.pipeline.spark_session import SparkFailure

    try:
        yield
    except SparkFailure as error:
        print(json.dumps({"verdict": "error", "error": str(error)}) if as_json else f"error: {error}")
        print(error, file=sys.stderr)
        raise typer.Exit(3) from None


def case_named(name: str) -> Case:
    """The model or switch of this name. Errors: BadParameter."""
    from spec.catalogue import all_cases

    cases = all_cases()
    if name not in cases:
        raise typer.BadParameter(f"no model or switch is called {name}; see `tidegauge spec list`")
    return cases[name]
