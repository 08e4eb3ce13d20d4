"""The command line: every example of a --help and of the documents parses, and has a case in `examples.py`.

Completion, colour and quiet are tested too.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer import _click as click

from docs.site.__main__ import documents
from tests.repository.examples import BY_OTHERS, SCENES, SLOW_SCENES
from tidegauge import COMMANDS, GROUPS, app

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = (
    "README.md",
    "conformance/README.md",
    "linearizability/README.md",
    "linearizability/faults/README.md",
    "linearizability/history/README.md",
    "linearizability/pipeline/README.md",
    "spec/README.md",
    "docs/ci.md",
    "docs/disputes.md",
    "docs/testing.md",
    *(f"docs/tutorial/{path.name}" for path in sorted((REPOSITORY / "docs" / "tutorial").glob("*.md"))),
    "linearizability/targets/CONTRACT.md",
)
LEAST_EXAMPLES = 90


def leaves(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    names = command.list_commands(None) if hasattr(command, "list_commands") else None
    if names is None or (path and command.invoke_without_command):
        yield path, command
    for name in names or ():
        yield from leaves(command.get_command(None, name), [*path, name])


ROOT = typer.main.get_command(app)
LEAVES = {" ".join(path): command for path, command in leaves(ROOT, [])}


def parse(text: str) -> None:
    """Errors: UsageError for a command, an option or a choice that there is not."""
    words = shlex.split(text, comments=True)
    name = words.pop(0)
    assert name == "tidegauge", text
    command: Any = ROOT
    while hasattr(command, "get_command"):
        if (
            command is not ROOT
            and command.invoke_without_command
            and words[:1] not in ([each] for each in command.commands)
        ):
            break
        while words[0].startswith("-"):
            words.pop(0)
        name = words.pop(0)
        found = command.get_command(None, name)
        assert found is not None, f"{text}: no command {name}"
        command = found
    try:
        command.make_context(name, words)  # parses, converts and checks, and calls nothing
    except click.exceptions.BadParameter as error:
        assert "does not exist" in error.message, f"{text}: {error.message}"


def examples(epilog: str) -> list[str]:
    return re.findall(r"^  (tidegauge .*)$", epilog.partition("Examples:")[2], re.M)


@pytest.mark.parametrize("name", LEAVES)
def test_every_help_ends_with_examples_that_parse(name: str) -> None:
    found = examples(LEAVES[name].epilog or "")
    assert found, f"tidegauge {name} --help has no example"
    for example in found:
        parse(example)
    assert any(example.startswith(f"tidegauge {name}") for example in found)


def test_the_overview_has_every_command_once() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    assert [name for name in COMMANDS if f"\n  {name} " not in tidegauge("--help").stdout] == []


def test_every_command_of_the_documents_parses() -> None:
    lines = [
        line
        for name in DOCUMENTS
        for line in re.findall(r"^(?:    |)(tidegauge (?:--quiet )?[a-z].*)$", (REPOSITORY / name).read_text(), re.M)
    ]
    for line in lines:
        parse(re.sub(r"\s+\d+>.*|\s+[|>].*", "", line))
    assert len(lines) + sum(len(examples(one.epilog or "")) for one in LEAVES.values()) > LEAST_EXAMPLES


def test_an_example_that_is_wrong_would_be_found() -> None:
    for wrong in (
        "tidegauge run --tarket x",
        "tidegauge rum",
        "tidegauge explain",
        "tidegauge run --backend moon",
        "tidegauge spec check A --jobs",
    ):
        with pytest.raises((click.exceptions.UsageError, AssertionError)):
            parse(wrong)


def tidegauge(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegauge", *arguments]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=120, cwd=REPOSITORY
    )


@pytest.mark.parametrize(
    ("shell", "words"),
    [("bash", {"COMP_WORDS": "tidegauge re", "COMP_CWORD": "1"}), ("zsh", {"_TYPER_COMPLETE_ARGS": "tidegauge re"}),
     ("fish", {"_TYPER_COMPLETE_ARGS": "tidegauge re", "_TYPER_COMPLETE_FISH_ACTION": "get-args"})],
)  # fmt: skip
def test_shells_complete_commands(shell: str, words: dict[str, str], tmp_path: Path) -> None:
    script = tidegauge("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_TIDEGAUGE_COMPLETE" in script.stdout, script.stderr
    completed = tidegauge(_TIDEGAUGE_COMPLETE=f"complete_{shell}", **words)
    assert {name for name in COMMANDS if name.startswith("re")} <= set(re.findall(r"[a-z]+", completed.stdout)), (
        completed.stderr
    )
    alone = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    installed = tidegauge("--install-completion", shell, **alone)
    assert installed.returncode == 0 and [*tmp_path.rglob("*tidegauge*")], installed.stdout + installed.stderr


def test_no_color_means_no_colour() -> None:
    coloured = tidegauge("explain", "PRD-05", FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="")
    plain = tidegauge("explain", "PRD-05", NO_COLOR="1")
    assert "\x1b[" in coloured.stdout and "\x1b[" not in plain.stdout


def test_quiet_says_the_result_alone(tmp_path: Path) -> None:
    said = tidegauge("--quiet", "run", "API-01", "--results", str(tmp_path))
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.splitlines()[0].startswith("core: 1 of 1 musts judged") and len(said.stdout.splitlines()) <= 4
    fuzzed = tidegauge("--quiet", "fuzz", "--schedules", "1", "--results", str(tmp_path))
    assert (fuzzed.returncode, fuzzed.stderr) == (0, "")


def test_modules_are_imported_when_their_command_is_called() -> None:
    modules = {module for module, _ in COMMANDS.values()}
    code = (
        "import sys, tidegauge, typer; root = typer.main.get_command(tidegauge.app); print(*sys.modules);"
        "root.get_command(None, 'format'); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    before, after = ({*line.split()} & modules for line in done.stdout.splitlines())
    assert (before, after) == (set(), {"reference.commands"})


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
