"""`tidegauge adapter new | check`: write an adapter (`exec:` target) from an example, or test one against the contract.

Exit codes: 0 the adapter keeps the contract, 1 the adapter breaks it, 64 wrong usage.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
BROKEN = 1


class Kind(StrEnum):
    BINARY = "binary"
    CONTAINER = "container"
    REMOTE = "remote"


EXAMPLES = {Kind.BINARY: "one_process.py", Kind.CONTAINER: "container.py", Kind.REMOTE: "remote.py"}


@app.callback()
def root() -> None:
    """Adapters let the suite start, judge and hurt any broker."""


@app.command(
    epilog="Examples:  tidegauge adapter new my-adapter   ·   tidegauge adapter new my-adapter --kind container   ·   "
    "tidegauge adapter new my-adapter --kind remote"
)
def new(
    name: Annotated[Path, typer.Argument(help="The file to write.")],
    kind: Annotated[
        Kind, typer.Option(help="A binary on this machine, a container, or machines that ssh reaches.")
    ] = Kind.BINARY,
) -> None:
    """Write an adapter that works, to be changed to your broker: of the binary its `command`, else its table of commands."""
    from linearizability import targets

    if name.exists():
        raise typer.BadParameter(f"{name} is there already")
    text = (Path(targets.__file__).parent / "examples" / EXAMPLES[kind]).read_text()
    _, _, rest = text.partition("\n")
    name.write_text(f"#!{sys.executable}\n{rest}")
    name.chmod(0o755)
    print(f"{name} is written. Change it to your broker, then: tidegauge adapter check {name}")


@app.command(
    epilog="Examples:  tidegauge adapter check ./my-adapter   ·   tidegauge adapter check './remote.py cluster.json' --json"
)
def check(
    adapter: Annotated[str, typer.Argument(help="The adapter, with its arguments.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line; the last one sums up.")] = False,
) -> None:
    """Use every hook of an adapter once and look at its effect; name those that are missing, and what that costs."""
    from conformance.contract_check import check_contract

    command, *rest = shlex.split(adapter)
    path = str(Path(command).absolute()) if Path(command).exists() else command
    broken: list[str] = []
    missing: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for one in check_contract(f"exec:{shlex.join([path, *rest])}", Path(folder)):
            broken += [one.name] if one.state == "broken" else []
            missing += [one.name] if one.state == "missing" else []
            if as_json:
                print(one.model_dump_json(), flush=True)
            else:
                print(f"{one.state:<8}{one.name:<22}{one.found or one.advice}", flush=True)
    verdict = "fail" if broken else "pass"
    if as_json:
        print(json.dumps({"verdict": verdict, "broken": broken, "missing": missing}))
    else:
        print(f"{verdict}: {len(broken)} broken, {len(missing)} hooks missing")
    raise typer.Exit(BROKEN if broken else 0)
