"""Progress of long work: on a terminal, in a pipe, with --quiet and --verbose."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from linearizability.progress import CLEAR, QUIET, VERBOSE, Progress, choose, time_left
from tests.repository.test_command_line import LEAVES, REPOSITORY


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def neither_option(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (QUIET, VERBOSE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")


def reported(stream: io.StringIO) -> str:
    """Four steps of ten seconds each, and a result."""
    now = iter(range(0, 1000, 5))
    with Progress(4, stream, lambda: next(now)) as progress:
        for number in range(1, 5):
            progress(f"step {number}")
        progress.keep("a result")
        progress.often("step 4 and a half", 3.5)
    return stream.getvalue()


def test_a_pipe_gets_a_line_a_step_with_an_estimate() -> None:
    assert reported(io.StringIO()).splitlines() == [
        "step 1",
        "step 2, about 30 s left",
        "step 3, about 15 s left",
        "step 4, about 7 s left",
        "a result",
    ]


def test_a_terminal_gets_one_line_and_keeps_results() -> None:
    said = reported(Terminal())
    assert said.count("\n") == 1 and f"{CLEAR}a result\n{CLEAR}step 4 and a half, about " in said
    assert said.endswith(CLEAR)


def test_a_terminals_line_is_cut_to_its_width() -> None:
    stream = Terminal()
    Progress(1, stream)("x" * 100)
    assert stream.getvalue() == f"{CLEAR}{'x' * 38}…"


def test_quiet_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(QUIET, "1")
    assert reported(io.StringIO()) == reported(Terminal()) == ""


def test_verbose_gives_a_terminal_lines_with_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VERBOSE, "1")
    said = reported(Terminal())
    assert said.startswith("   10.0 s  step 1\n   20.0 s  step 2, about ") and CLEAR not in said


def test_the_option_that_comes_last_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(QUIET, "1")
    choose(VERBOSE)
    assert (os.environ.get(QUIET), os.environ[VERBOSE]) == (None, "1")
    choose(QUIET)
    assert (os.environ[QUIET], os.environ.get(VERBOSE)) == ("1", None)
    monkeypatch.delenv(QUIET)


def test_what_is_left_is_estimated_from_what_is_done() -> None:
    assert [time_left(share, 60.0) for share in (0.5, 0.2)] == [", about 60 s left", ", about 4 min left"]
    assert not any(time_left(share, 60.0) for share in (0.0, 0.05, 1.0, 2.0))


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_takes_the_options(name: str) -> None:
    assert {"--quiet", "--verbose"} <= {option for each in LEAVES[name].params for option in each.opts}


def on_a_terminal(folder: Path, *arguments: str) -> str:
    """The output of a command on standard error if that is a terminal."""
    ours, theirs = pty.openpty()
    with open(ours, "rb", closefd=True) as reader:
        started = subprocess.Popen(
            [sys.executable, "-m", "tidegauge", *arguments],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1"},
            stdout=subprocess.DEVNULL,
            stderr=theirs,
        )
        os.close(theirs)
        said = b""
        try:
            while part := os.read(reader.fileno(), 4096):
                said += part
        except OSError:  # the end of a terminal
            pass
        assert started.wait(60) == 0
    return said.decode()


def test_a_fuzz_run_reports_to_a_terminal(tmp_path: Path) -> None:
    fuzz = ("fuzz", "--schedules", "3", "--jobs", "1")
    said = on_a_terminal(tmp_path, *fuzz)
    assert "schedules" in said and "\n" not in said and said.endswith(CLEAR)
    assert not any(code in said for code in ("\x1b[3", "\x1b[1m"))
    assert "\n" in on_a_terminal(tmp_path, *fuzz, "--verbose")
    assert on_a_terminal(tmp_path, *fuzz, "--quiet") == ""
