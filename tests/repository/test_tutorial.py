"""The tutorial's quick commands, run one after the other as a reader would; test_command_line.py parses all of them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site.recording import PICTURE, picture, record

CHAPTERS = Path(__file__).resolve().parents[2] / "docs" / "tutorial"
PRINTED = {
    "1-run-it.md": (
        ("tidegauge --quiet run --target reference:1 PRD-05 ACK-01", 0, "core: 2 of 2 musts judged, 0 fail"),
        ("tidegauge explain ACK-01", 0, "conformance/requirements/acks.py"),
        (
            'tidegauge --quiet run --target "exec:python -m linearizability.mutants adapter acknowledged-without-append" ACK-01 ACK-02',
            1, "core: 3 of 3 musts judged, 1 fails",
        ),
    ),
    "2-break-it.md": (
        ("tidegauge --quiet fuzz --nodes 3 --mutant kip-101-loss --until-found", 1, "which may be elected, has the committed log up to"),
    ),
    "4-replay-it.md": (
        ("tidegauge --quiet replay results/latest/failure-1/schedule.json", 1, "broken promise: eligible-incomplete"),
    ),
}  # fmt: skip
"""Chapter -> command, exit code, and a part of what it prints."""
PROOF = (
    ("tidegauge spec explain TruncateToHighWatermark", 0, "violates:      EligibleAreComplete"),
    ("tidegauge --quiet spec check MCFailover TruncateToHighWatermark", 0, "violated EligibleAreComplete"),
    ("tidegauge spec counterexample TruncateToHighWatermark --svg counterexample.svg", 0, "breaks EligibleAreComplete in 9 states"),
)  # fmt: skip


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As typed in a shell that has the virtual environment first on its PATH."""
    words = shlex.split(command)
    assert words.pop(0) == "tidegauge"
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(CHAPTERS.parents[1]),
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }
    return subprocess.run(
        [sys.executable, "-m", "tidegauge", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def follow(chapter: str, steps: tuple[tuple[str, int, str], ...], folder: Path) -> None:
    """Run the commands of a chapter, which must have them and what they are to print."""
    text = " ".join((CHAPTERS / chapter).read_text().split())
    for command, code, printed in steps:
        assert f"```sh {command} ```" in text, f"{chapter} has no {command}"
        done = run(command, folder)
        said = " ".join(done.stdout.split())
        assert (done.returncode, " ".join(printed.split()) in said) == (code, True), done.stdout + done.stderr
        if not command.startswith("tidegauge explain"):
            assert " ".join(printed.split()) in text, f"{chapter} does not show {printed!r}"


@pytest.mark.sampled(days=3)
def test_the_quick_commands_print_what_is_shown(tmp_path: Path) -> None:
    for chapter, steps in PRINTED.items():
        follow(chapter, steps, tmp_path)


@pytest.mark.sampled(days=5)
@pytest.mark.java
def test_the_specification_proves_it(tmp_path: Path) -> None:
    follow("5-prove-it.md", PROOF, tmp_path)
    stored = (CHAPTERS / "counterexample.svg").read_text()
    assert (tmp_path / "counterexample.svg").read_text() == stored, "draw docs/tutorial/counterexample.svg again"


def test_the_recorded_run_is_of_today_s_program(tmp_path: Path) -> None:
    """The picture in the README shows what the command prints, but for times and the day."""
    words = {word for word in re.findall(r"[a-zA-Z]{3,}", picture(record())) if word != "nbsp"}
    assert words - set(re.findall(r"[a-zA-Z]{3,}", PICTURE.read_text())) == set()
