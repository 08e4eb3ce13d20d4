"""The options of the suite's commands."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Backend(StrEnum):
    AUTO = "auto"
    PLAIN = "plain"
    NETNS = "netns"


Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on standard output; the last one sums up.")]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID|AREA|FROM..TO]...", help="PRD-05, PRD, PRD-05..PRD-09; default: all.")
]
LevelOption = Annotated[list[str] | None, typer.Option("--level", help="Only must, should or may; may be repeated.")]
ProfileOption = Annotated[
    list[str] | None, typer.Option("--profile", help="Only core, groups, transactions ...; may be repeated.")
]
RestartCommand = Annotated[
    str,
    typer.Option(
        metavar="COMMAND",
        help="For addr: targets: a shell's command that restarts a broker; {node}, {host}, {port} name it.",
    ),
]


def _release(version: str) -> str:
    """Errors: BadParameter for what names no release: it would be older than all, and little would be owed."""
    if version and not re.fullmatch(r"\d+\.\d+(\.\d+)*(-\w+)?", version):
        raise typer.BadParameter(f"{version!r} is no release of Apache Kafka, as 4.3.1")
    return version


KafkaVersion = Annotated[
    str,
    typer.Option(
        "--version",
        callback=_release,
        help="Judge as this Kafka version (as 4.3.1); default: found out from the target.",
    ),
]
Target = Annotated[
    str,
    typer.Option(
        help="addr:HOST:PORT, reference[:NODES], kafka:VERSION[:NODES], exec:PATH, crabka[:NODES], kfake[:NODES], tansu, "
        "noida or rdkafka-mock[:NODES]."
    ),
]
Wait = Annotated[
    float,
    typer.Option(min=0, metavar="SECONDS", help="For addr: targets: wait so long for a broker that is still starting."),
]
ExpectedFailures = Annotated[
    Path | None,
    typer.Option(
        help="File with an id, a day (2027-03-01) and a reason a line: these may fail until that day, and must not pass.",
        exists=True,
    ),
]
Baseline = Annotated[
    Path | None,
    typer.Option(
        metavar="REPORT",
        help="A report.json, or its folder: what failed in it may fail; what is worse fails the run; what is better is said.",
    ),
]
Summary = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a summary in Markdown; $GITHUB_STEP_SUMMARY gets one anyway."),
]
BackendOption = Annotated[
    Backend,
    typer.Option(
        help="plain: processes side by side. netns: each node in a network namespace, so that requirements can cut the "
        "network. auto: netns where one of them needs it and this machine has it."
    ),
]
Jobs = Annotated[
    int,
    typer.Option(min=1, max=64, help="So many requirements are judged side by side, where they share no state."),
]
Starts = Annotated[
    int,
    typer.Option(
        min=1,
        max=16,
        help="So many starts of the target at the same time, of reference:1.",
    ),
]
Topics = Annotated[
    str, typer.Option(help="Empty topics that exist, comma-separated: for a target on which none can be made.")
]
Repeat = Annotated[int, typer.Option(min=1, help="Run so many times; a verdict that changes is a flake.")]
Confirm = Annotated[
    bool, typer.Option("--confirm", help="Write what passes on a real Apache Kafka into the catalogue.")
]
WithDemonstrations = Annotated[
    bool,
    typer.Option(
        "--with-demonstrations",
        help="Show the other promises too (spec check, fuzz, hunt), in the same report; about two minutes more.",
    ),
]
Results = Annotated[Path | None, typer.Option(help="Where result folders go; default: results/.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show every requirement, also those that pass.")]
