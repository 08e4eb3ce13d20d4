"""Every command that a --help or a document of the site shows has a case in `examples.py`, which says what runs it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docs.site.__main__ import documents
from tests.repository.examples import BY_OTHERS, SCENES, SLOW_SCENES
from tests.repository.test_command_line import LEAVES, REPOSITORY, examples

COMMAND = re.compile(r"(?:    )?((?:tidegauge|python -m|make|pip|pipx|docker) .*)")


def commands_of(document: str) -> Iterator[str]:
    """The commands of a document: lines of its blocks for a shell, and indented ones; without comments."""
    fence = ""
    for line in document.splitlines():
        if line.startswith("```"):
            fence = "" if fence else line[3:].strip() or "text"
        elif (found := COMMAND.fullmatch(line)) and (fence == "sh" or (not fence and line.startswith("    "))):
            yield re.sub(r"  +", " ", re.split(r"\s{3,}|\s#\s", found[1])[0]).strip()


def test_every_command_that_is_shown_has_its_test() -> None:
    shown = {example for command in LEAVES.values() for example in examples(command.epilog or "")}
    shown |= {command for document in documents() for command in commands_of(document.read_text())}
    shown = {
        next((known for known in BY_OTHERS if known.startswith("docker") and one.startswith(known)), one)
        for one in shown
    }
    tried = {case.text for cases in (SCENES | SLOW_SCENES).values() for case in cases} | set(BY_OTHERS)
    assert sorted(shown - tried) == [], "shown, and run by no test"
    assert sorted(tried - shown) == [], "shown nowhere"
    for test in BY_OTHERS.values():
        file, _, name = test.partition("::")
        assert not name or name in _functions(REPOSITORY / file), test


def _functions(file: Path) -> set[str]:
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_a_command_that_is_new_would_be_missed() -> None:
    text = "```sh\ntidegauge rum  # wrong\n```\n\n    tidegauge run --no-such   # too\n\n```text\ntidegauge said this\n```\n"
    assert [*commands_of(text)] == ["tidegauge rum", "tidegauge run --no-such"]
