"""The tools that check the tree's rules: each refuses a violation of its rule."""

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.repository.carry import ROOT, Different, carried, compare, definitions
from tests.repository.subject import mistake
from tests.repository.unchanged import run
from tests.repository.words import INSTEAD, TABLE, count, new_uses, read_table, words_of, write_table

BANNED = next(iter(INSTEAD))


def test_words_are_counted_inside_of_identifiers() -> None:
    assert words_of("ToldBy the_reign HTTPLane, retold") == ["told", "by", "the", "reign", "http", "lane", "retold"]


def test_counts_may_fall_and_never_rise() -> None:
    allowed = {(BANNED, "spec"): 2}
    assert new_uses({(BANNED, "spec"): 2}, allowed) == []
    assert new_uses({(BANNED, "spec"): 1}, allowed) == []
    (line,) = new_uses({(BANNED, "spec"): 3}, allowed)
    assert INSTEAD[BANNED] in line
    assert new_uses({(BANNED, "reference"): 1}, allowed)
    assert new_uses({key: uses + 1 for key, uses in count().items()}, read_table(TABLE.read_text()))


def test_the_table_comes_back_as_it_was_written() -> None:
    counts = {(BANNED, "spec"): 2, (BANNED, "tests"): 11}
    assert read_table(write_table(counts)) == counts


@pytest.mark.parametrize(
    ("message", "is_right"),
    [
        ("storage: keep the recovery point out of a gap\n\nBecause.", True),
        ("tests/storage: cut a batch", True),
        ("fixup! storage: keep it", True),
        ("Storage: keep it", False),
        ("keep the recovery point", False),
        ("storage: fixed the recovery point", False),
        ("storage: keep it.", False),
        ("storage: " + "k" * 64, False),
    ],
)
def test_subjects(message: str, is_right: bool) -> None:
    assert (mistake(message) == "") == is_right


def test_a_command_is_run_again_when_a_source_changed_or_it_failed(tmp_path: Path) -> None:
    source, stamp, ran = tmp_path / "reference" / "a.py", tmp_path / "stamp", tmp_path / "ran"
    source.parent.mkdir()

    def runs(text: str, code: int) -> tuple[int, int]:
        source.write_text(text)
        command = [
            sys.executable,
            "-c",
            f"open({str(ran)!r}, 'a').write('x'); raise SystemExit(int(open({str(source)!r}).read() == 'bad'))",
        ]
        before = len(ran.read_text()) if ran.exists() else 0
        assert run(stamp, command, tmp_path) == code
        return before, len(ran.read_text())

    assert runs("1", 0) == (0, 1)
    assert runs("1", 0) == (1, 1)
    assert runs("bad", 1) == (1, 2)
    assert runs("bad", 1) == (2, 3)
    assert runs("1", 0) == (3, 3)


@pytest.mark.core
def test_a_test_of_the_core_starts_no_process() -> None:
    for start in (lambda: subprocess.run(["true"], check=False), os.fork, lambda: os.system("true")):
        with pytest.raises(AssertionError, match="starts a process"):
            start()


GROUPED = """
import os
import signal
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("one")


@pytest.mark.parametrize("number", range(3))
def test_alone(number):
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    with Path(__file__).with_name("workers").open("a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + " ")
"""


def test_a_group_runs_on_one_worker_and_can_be_interrupted(tmp_path: Path) -> None:
    """Two files of a group, beside as many of none; SIGINT is ignored as in a background job of a shell."""
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("conftest.py", "longest.txt"):
        (tests / name).write_text((ROOT / "tests" / name).read_text())
    for number in range(2):
        (tests / f"test_group_{number}.py").write_text(GROUPED)
        (tests / f"test_other_{number}.py").write_text("def test_it():\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "--rootdir", tmp_path, tests],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        check=False,
    )
    assert "8 passed" in done.stdout, done.stdout
    workers = (tests / "workers").read_text().split()
    assert len(workers) == 6 and len({*workers}) == 1


BEFORE = """
def f(told):
    return [told, other(told)]
"""


def test_a_file_is_the_same_but_for_names_and_messages():
    assert compare("a.py", BEFORE, BEFORE.replace("told", "reported")) == []
    assert compare("a.py", "x = 'told'", "y = 'reported'") == ["a.py: 'told' -> 'reported'"]
    for other in ("reported, other(other)", "reported", "other(reported), reported"):
        with pytest.raises(Different):
            compare("a.py", BEFORE, f"def f(reported):\n    return [{other}]\n")
    typed = "def f(x):\n    found: list[int]\n    found = [x, other(x)]\n    return found\n"
    assert (
        compare("a.py", typed, typed.replace("    found: list[int]\n", "").replace("found =", "found: list[int] ="))
        == []
    )
    for scope in ("x: int = 1\n", "class X:\n    x: int = 1\n"):
        with pytest.raises(Different):
            compare("a.py", scope, scope.replace(": int", ""))
    with pytest.raises(Different):
        compare("a.tla", "Next == A /\\ B", "Next == A \\/ B")


def test_a_definition_may_move_to_another_file_as_it_was():
    split = ["import x\n\n\ndef f():\n    return 1\n", '"""The rest."""\n\nX = 2\n"""Two."""\n']
    whole = "X = 2\n\n\ndef f():\n    return 1\n"
    assert sorted(definitions(whole)) == sorted(each for text in split for each in definitions(text))
    assert definitions(whole) != definitions(whole.replace("1", "2"))


def test_a_stamp_is_carried_over_as_a_whole():
    changes = {'"log:cut:call1"': {'"log:cut:call1"': '"log:trim:call1"', '"aa"': '"bb"', '"pass"': '"pass"'}}
    line = '{"change": "log:cut:call1", "fingerprint": "%s", "becomes": "pass"}'
    assert carried(line % "dd", changes) == line.replace("cut", "trim") % "dd"
    assert (
        carried('{"change": "log:end:call1", "becomes": "pass"}', changes)
        == '{"change": "log:end:call1", "becomes": "pass"}'
    )


def lines_of_tables(tree: ast.AST, in_function: bool = False) -> Iterator[int]:
    """The lines of constants, literals and decorators."""
    for node in ast.iter_child_nodes(tree):
        for each in getattr(node, "decorator_list", ()):
            yield from range(each.lineno, each.end_lineno + 1)
        is_literal = isinstance(getattr(node, "value", None), ast.Dict | ast.List | ast.Tuple | ast.Set)
        is_constant = isinstance(node, ast.Assign | ast.AnnAssign) and not in_function
        if isinstance(node, ast.stmt) and (is_literal or is_constant):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if isinstance(node, ast.For) and isinstance(node.iter, ast.List | ast.Tuple):
            yield from range(node.lineno, (node.iter.end_lineno or node.lineno) + 1)
        yield from lines_of_tables(node, in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def untidy(text: str) -> list[int]:
    """Lines that the formatter skips, and that belong to no table."""
    tables = {*lines_of_tables(ast.parse(text))}
    return [at for at, line in enumerate(text.splitlines(), 1) if line.endswith(SKIPPED) and at not in tables]


SKIPPED = "# fmt: " + "skip"


def test_only_tables_are_left_to_their_writers() -> None:
    assert (
        untidy(
            f"A = f(  1,\n  2)  {SKIPPED}\n\n\n@table(  1)  {SKIPPED}\ndef f() -> None:\n    return [  1]  {SKIPPED}\n"
        )
        == []
    )
    assert untidy(f"def f(  a,\n  b) -> None:  {SKIPPED}\n    g(  1)  {SKIPPED}\n") == [2, 3]
    assert {name: found for name, text in modules().items() if SKIPPED in text and (found := untidy(text))} == {}


@cache
def modules() -> dict[str, str]:
    """Every Python file that git tracks, and its text."""
    files = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return {name: (ROOT / name).read_text() for name in files.stdout.split()}


LONGEST_FILE = 500


def test_no_file_is_long() -> None:
    assert [name for name, text in modules().items() if text.count("\n") > LONGEST_FILE] == []


MOST_ARGUMENTS = 7
NOT_COUNTED = ("commands.py", "__main__.py", "local_cluster.py", "linearizability/bench/", "linearizability/mutants/")
"""Arguments of commands are tables of options; a planted function takes what the function takes that it replaces."""
WITH_MORE = 42
"""The number of functions that still take more; it may fall and never rise."""


def arguments_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The number of arguments that a caller can pass."""
    given = function.args
    names = [each.arg for each in given.posonlyargs + given.args]
    variable = (given.vararg is not None) + (given.kwarg is not None)
    return len(names) + len(given.kwonlyargs) + variable - (names[:1] in (["self"], ["cls"]))


def test_functions_take_few_arguments() -> None:
    (function,) = ast.parse("def f(self, a, /, b, *c, d=1, **e): ...").body
    assert isinstance(function, ast.FunctionDef) and arguments_of(function) == 5
    found = [
        f"{name}: {each.name} takes {arguments_of(each)}"
        for name, text in modules().items()
        if not any(part in name for part in NOT_COUNTED)
        for each in ast.walk(ast.parse(text))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and arguments_of(each) > MOST_ARGUMENTS
    ]
    assert len(found) <= WITH_MORE, found
