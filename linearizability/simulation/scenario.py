"""Scenarios: stories told as conversations, played anew, and drawn as sequence diagrams. See `stage` for their form.

python -m linearizability.simulation.scenario [--write]     # play all of tests/scenarios; write them and SCENARIOS.md
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from linearizability.simulation.diagram import drawn
from linearizability.simulation.stage import COMMANDS, SILENT, Refused, Stage

RULER = "----"
STORIES = Path(__file__).parents[2] / "tests" / "scenarios"
PAGE = Path(__file__).with_name("SCENARIOS.md")


class BadScenario(ValueError):
    """A text that is no scenario; says where and why in one line."""


@dataclass
class Block:
    """Prose, or a command with what was seen."""

    prose: list[str] = field(default_factory=list)
    command: str = ""
    seen: list[str] = field(default_factory=list)


@dataclass
class Played:
    """A scenario after it was played."""

    title: str
    text: str
    diagrams: list[str]
    """One for each world that the story begins."""


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
    """Run a scenario's commands and write down what is seen now. Errors: BadScenario."""
    blocks = parse(text)
    stage: Stage | None = None
    stages: list[Stage] = []
    for block in blocks:
        if not block.command:
            continue
        words, options = _parsed(block.command)
        verb = words.pop(0)
        if verb == "cluster":
            stage = _open(options)
            stages.append(stage)
        elif stage is None:
            raise BadScenario(f"{block.command!r} comes before there is a cluster")
        elif verb not in COMMANDS:
            raise BadScenario(f"{verb!r} is none of cluster, {', '.join(COMMANDS)}")
        else:
            _do(stage, verb, words, options)
        block.seen, stage.lines = stage.lines, []
    title = blocks[0].prose[0].lstrip("# ") if blocks and blocks[0].prose else ""
    return Played(title, _text(blocks), [drawn(each.arrows) for each in stages])


def _parsed(command: str) -> tuple[list[str], dict[str, str]]:
    parts = command.split()
    options = dict(part.split("=", 1) for part in parts if "=" in part)
    return [part for part in parts if "=" not in part], options


def _open(options: dict[str, str]) -> Stage:
    """A cluster whose nodes have registered; what a property is named with a dot is one of the nodes'."""
    stage = Stage({name: value for name, value in options.items() if "." in name}, int(options.get("nodes", "3")))
    for machine in stage.cluster.machines:
        machine.start()
    stage.wait({"for": "2000"})
    stage.lines, stage.arrows = [], []
    return stage


def _do(stage: Stage, verb: str, words: list[str], options: dict[str, str]) -> None:
    try:
        COMMANDS[verb](stage, words, options)
    except Refused as refusal:
        stage.lines.append(f"({refusal})")
    if verb not in SILENT:
        stage.wait(options)


def _text(blocks: list[Block]) -> str:
    told: list[str] = []
    for block in blocks:
        told.append("\n".join([*block.prose, *([block.command, RULER, *block.seen] if block.command else [])]))
    return "\n\n".join(told) + "\n"


def page(played: list[Played]) -> str:
    """The documentation: each story as its prose, its conversation and its diagrams."""
    parts = [
        "# Stories of the field",
        "",
        "Each is a conversation with a simulated cluster of the reference: a command, and what its nodes then do, by the names",
        "of the specification's steps. `epoch` is the leader epoch, `end` the log end offset, `hw` the high watermark. Tests",
        "play them; `python -m linearizability.simulation.scenario --write` writes them and this page anew.",
    ]
    for story in played:
        prose = [line.lstrip("# ") for line in story.text.split("\n\n")[0].split("\n")[1:] if line.startswith("#")]
        parts += ["", f"## {story.title}", "", *prose, "", "```text", story.text.rstrip("\n"), "```"]
        for diagram in story.diagrams:
            parts += ["", "```mermaid", diagram.rstrip("\n"), "```"]
    return "\n".join(parts) + "\n"


def stories() -> list[Path]:
    """All scenarios, in the order in which they are to be read."""
    return sorted(STORIES.glob("*.txt"))


def main(arguments: list[str]) -> int:
    """Play all; with --write keep what was seen. 0 where all hold, 1 where one does not, 64 for wrong usage."""
    if arguments not in ([], ["--write"]):
        print(__doc__, file=sys.stderr)
        return 64
    played: list[Played] = []
    changed = 0
    for path in stories():
        story = play(path.read_text())
        played.append(story)
        if story.text != path.read_text():
            changed += 1
            print(f"{path.name} is not what happens now")
            if arguments:
                path.write_text(story.text)
    if arguments:
        PAGE.write_text(page(played))
    return 1 if changed and not arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
