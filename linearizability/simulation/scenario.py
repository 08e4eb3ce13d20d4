"""Scenarios: commands and the events that follow, as golden text and as sequence diagrams. See `scenario_run` for their form.

python -m linearizability.simulation.scenario [--write]     # run all of tests/scenarios; write them and SCENARIOS.md
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from linearizability.simulation.diagram import drawn
from linearizability.simulation.scenario_run import COMMANDS, SILENT, Refused, ScenarioRun

RULER = "----"
FOLDER = Path(__file__).parents[2] / "tests" / "scenarios"
PAGE = Path(__file__).with_name("SCENARIOS.md")


class BadScenario(ValueError):
    """A text that is no scenario; says where and why in one line."""


@dataclass
class Block:
    """Prose, or a command with the events that followed."""

    prose: list[str] = field(default_factory=list[str])
    command: str = ""
    seen: list[str] = field(default_factory=list[str])


@dataclass
class Played:
    """A scenario after its run."""

    title: str
    text: str
    diagrams: list[str]
    """One for each cluster that the scenario starts."""


def parse(text: str) -> list[Block]:
    """The blocks of a scenario. Errors: BadScenario."""
    blocks: list[Block] = []
    for number, part in enumerate(text.strip("\n").split("\n\n"), 1):
        lines = part.split("\n")
        prose = [line for line in lines if line.startswith("#")]
        rest = [line for line in lines if not line.startswith("#")]
        if rest and (len(rest) < 2 or rest[1] != RULER):
            raise BadScenario(f"block {number}: {rest[0]!r} is not followed by {RULER}")
        blocks.append(Block(prose, rest[0] if rest else "", rest[2:]))
    return blocks


def play(text: str) -> Played:
    """Run a scenario's commands and record the events. Errors: BadScenario."""
    blocks = parse(text)
    run: ScenarioRun | None = None
    runs: list[ScenarioRun] = []
    for block in blocks:
        if not block.command:
            continue
        words, options = _parsed(block.command)
        verb = words.pop(0)
        if verb == "cluster":
            run = _open(options)
            runs.append(run)
        elif run is None:
            raise BadScenario(f"{block.command!r} comes before there is a cluster")
        elif verb not in COMMANDS:
            raise BadScenario(f"{verb!r} is none of cluster, {', '.join(COMMANDS)}")
        else:
            _do(run, verb, words, options)
        block.seen, run.lines = run.lines, []
    title = blocks[0].prose[0].lstrip("# ") if blocks and blocks[0].prose else ""
    return Played(title, _text(blocks), [drawn(each.arrows) for each in runs])


def _parsed(command: str) -> tuple[list[str], dict[str, str]]:
    parts = command.split()
    options = dict(part.split("=", 1) for part in parts if "=" in part)
    return [part for part in parts if "=" not in part], options


def _open(options: dict[str, str]) -> ScenarioRun:
    """A cluster whose nodes have registered; options with a dot in their name are properties of the nodes.

    How the quorum elected its first leader is shown with `elections=shown` alone.
    """
    properties = {name: value for name, value in options.items() if "." in name}
    coordination = options.get("coordination", "kraft")
    run = ScenarioRun(properties, int(options.get("nodes", "3")), coordination)
    for machine in run.cluster.machines:
        machine.start()
    run.wait({"for": "2000"})
    if coordination == "kraft" and options.get("elections") != "shown":
        run.lines, run.arrows = [], []
    return run


def _do(run: ScenarioRun, verb: str, words: list[str], options: dict[str, str]) -> None:
    try:
        COMMANDS[verb](run, words, options)
    except Refused as refusal:
        run.lines.append(f"({refusal})")
    if verb not in SILENT:
        run.wait(options)


def _text(blocks: list[Block]) -> str:
    parts: list[str] = []
    for block in blocks:
        parts.append("\n".join([*block.prose, *([block.command, RULER, *block.seen] if block.command else [])]))
    return "\n\n".join(parts) + "\n"


def page(played: list[Played]) -> str:
    """The documentation: each scenario as its prose, its text and its diagrams."""
    parts = [
        "# Scenarios",
        "",
        "Each runs on a simulated cluster of the reference: a command, and the actions of its nodes that follow, by the names of",
        "the specification. `epoch` is the leader epoch, `end` the log end offset, `hw` the high watermark. Tests run them;",
        "`python -m linearizability.simulation.scenario --write` writes them and this page again.",
    ]
    for each in played:
        prose = [line.lstrip("# ") for line in each.text.split("\n\n")[0].split("\n")[1:] if line.startswith("#")]
        parts += ["", f"## {each.title}", "", *prose, "", "```text", each.text.rstrip("\n"), "```"]
        for diagram in each.diagrams:
            parts += ["", "```mermaid", diagram.rstrip("\n"), "```"]
    return "\n".join(parts) + "\n"


def scenarios() -> list[Path]:
    """All scenarios, in reading order."""
    return sorted(FOLDER.glob("*.txt"))


def main(arguments: list[str]) -> int:
    """Run all; with --write record the events. 0 where all are as recorded, 1 where one is not, 64 for wrong usage."""
    if arguments not in ([], ["--write"]):
        print(__doc__, file=sys.stderr)
        return 64
    played: list[Played] = []
    changed = 0
    for path in scenarios():
        each = play(path.read_text())
        played.append(each)
        if each.text != path.read_text():
            changed += 1
            print(f"{path.name} differs from this run")
            if arguments:
                path.write_text(each.text)
    if arguments:
        PAGE.write_text(page(played))
    return 1 if changed and not arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
