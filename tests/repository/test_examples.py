"""The examples of --help, run one after the other in one folder as a reader would; test_command_line.py parses all of them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.test_command_line import LEAVES, REPOSITORY, examples

HISTORY = REPOSITORY / "tests" / "history" / "regressions" / "kafka-1.1.0-unclean-election"
PROPERTIES = """node.id=1
process.roles=broker,controller
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:9093
log.dirs=data
"""
ANYWHERE = (
    "tidegauge format server.properties --cluster-id $ID",
    "tidegauge list",
    "tidegauge list PRD --level must",
    "tidegauge list --version 3.9 --json",
    "tidegauge explain FRM-04",
    "tidegauge explain PRD --json",
    "tidegauge releases show",
    "tidegauge releases show 1.1.0 2.4.1 --json",
    "tidegauge strangers show",
    "tidegauge strangers show tansu --json",
    "tidegauge doctor",
    "tidegauge adapter new my-adapter",
    "tidegauge targets list",
    "tidegauge targets list --json",
    "tidegauge fuzz --mutant torn-tail-kept --until-found --json",
    "tidegauge history rules",
    "tidegauge history rules lost-write G1a",
    "tidegauge history rules --json",
    "tidegauge findings list",
    "tidegauge findings list --json",
    "tidegauge findings show fenced_producer",
    "tidegauge spec list",
    "tidegauge spec list --json",
    "tidegauge spec explain MCIsr",
    "tidegauge spec explain FetchWithoutFencing",
    "tidegauge spec explain BecomeCandidate",
    "tidegauge spec explain Heartbeat --json",
)
AFTER_A_RUN = (
    "tidegauge run FRM API --target reference:1 --json",
    "tidegauge report",
    "tidegauge report results/latest --verbose",
    "tidegauge compare results/A results/B",
)
OF_A_HISTORY = (
    "tidegauge history check results/latest",
    "tidegauge history show results/latest",
    "tidegauge history export results/latest STORE --to parquet",
)
WITH_TLC = (
    "tidegauge spec check TruncateToHighWatermark",
    "tidegauge spec counterexample TruncateToHighWatermark",
    "tidegauge spec counterexample IgnoreProposedIsr --svg picture.svg",
    "tidegauge spec behaviours IgnoreMinIsr",
)
EXIT_CODES = {"tidegauge fuzz --mutant": 1, "tidegauge history check": 1}
"""Beginnings of what finds something; all others exit 0."""
BY_OTHER_TESTS = {
    "tidegauge format server.properties": "tests/runtime",
    "tidegauge serve": "tests/runtime",
    "tidegauge cluster": "tests/runtime",
    "tidegauge run": "tests/conformance/test_commands.py, and with Kafka test_targets.py",
    "tidegauge compare": "above, with two folders",
    "tidegauge releases measure": "tests/conformance/test_releases.py",
    "tidegauge releases store": "tests/conformance/test_releases.py",
    "tidegauge strangers": "tests/conformance/test_strangers.py",
    "tidegauge doctor --target": "tests/conformance/test_commands.py",
    "tidegauge adapter": "tests/conformance/test_contract_check.py",
    "tidegauge targets add": "tests/targets/test_artifacts.py",
    "tidegauge fuzz": "tests/simulation",
    "tidegauge hunt": "tests/faults/test_hunt.py",
    "tidegauge replay": "tests/faults/test_hunt.py, tests/simulation/test_commands.py",
    "tidegauge history": "tests/history",
    "tidegauge bench": "tests/bench",
    "tidegauge findings": "tests/targets",
    "tidegauge spec": "tests/spec",
}
"""Beginnings of what takes minutes, needs files of its own, or does not end: which tests run the command."""


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(text.replace("$ID", "4L6g3nShT-eMCtK--X86sw"))[1:]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "tidegauge", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def follow(lines: tuple[str, ...], folder: Path) -> None:
    for line in lines:
        done = run(line, folder)
        code = next((code for begin, code in EXIT_CODES.items() if line.startswith(begin)), 0)
        assert done.returncode == code, f"{line}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        assert done.stdout, line


def test_every_example_is_run_here_or_its_command_by_other_tests() -> None:
    shown = {example for command in LEAVES.values() for example in examples(command.epilog or "")}
    here = {*ANYWHERE, *AFTER_A_RUN, *OF_A_HISTORY, *WITH_TLC}
    assert here - shown == set()
    assert [one for one in shown - here if not one.startswith(tuple(BY_OTHER_TESTS))] == []
    for places in BY_OTHER_TESTS.values():
        for place in (word for word in places.split(", ") if word.startswith("tests/")):
            assert (REPOSITORY / place).exists(), place


def test_what_needs_nothing(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(PROPERTIES)
    follow(ANYWHERE, tmp_path)


def test_what_shows_a_run(tmp_path: Path) -> None:
    follow(AFTER_A_RUN[:1], tmp_path)
    for name in ("A", "B"):
        shutil.copytree(tmp_path / "results" / "latest", tmp_path / "results" / name)
    follow(AFTER_A_RUN[1:], tmp_path)


def test_what_shows_a_history(tmp_path: Path) -> None:
    shutil.copytree(HISTORY, tmp_path / "results" / "latest")
    follow(OF_A_HISTORY, tmp_path)


@pytest.mark.java
def test_what_needs_the_model_checker(tmp_path: Path) -> None:
    follow(WITH_TLC, tmp_path)
