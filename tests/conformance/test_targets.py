"""The suite on real brokers: every must-requirement passes on Apache Kafka and on the reference.

Both runs mostly wait, for a judge of time must: they go on side by side, each in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KAFKA, REFERENCE = "kafka:4.3.1", "reference:1"
TESTS = {"test_apache_kafka_passes": KAFKA, "test_the_reference_passes": REFERENCE}
RUN_WITHIN_S = 2_400
"""Under ten minutes on a quiet machine."""
BAD = ("fail", "engine error")
KAFKAS_OWN = "KAFKA-20734"
"""What the requirements on histories tolerate of Kafka; the reference must not need it."""


class Run:
    """One run of the whole suite, under way."""

    def __init__(self, target: str, folder: Path) -> None:
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidegauge", "run", "--target", target, "--json", "--results", str(folder)],
                stdout=output,
                stderr=subprocess.DEVNULL,
            )

    def finished(self) -> tuple[dict[str, Any], list[str], str]:
        """The summary, what was tolerated, and what was bad as a failing test should say it."""
        self._process.wait(RUN_WITHIN_S)
        *lines, summary = [json.loads(line) for line in self._output.read_text().splitlines()]
        reported = [f"{line['id']} {line['verdict']}: {line['reason']}" for line in lines if line.get("verdict") in BAD]
        tolerated = [f"{line['id']} {line['reason']}" for line in lines if line.get("verdict") == "tolerated"]
        return summary, tolerated, "\n".join([summary.get("reason", ""), *reported])

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """A run for each test of this module that was selected."""
    wanted = [TESTS[item.name] for item in request.session.items if item.name in TESTS]
    started = {target: Run(target, tmp_path_factory.mktemp("run")) for target in wanted}
    try:
        yield started
    finally:
        for each in started.values():
            each.end()


@pytest.mark.kafka
@pytest.mark.timeout(RUN_WITHIN_S)
def test_apache_kafka_passes(runs: dict[str, Run]) -> None:
    summary, _, reported = runs[KAFKA].finished()
    assert summary["verdict"] == "pass", reported
    assert summary["must"]["fail"] == summary["engine_errors"] == 0, reported


@pytest.mark.timeout(RUN_WITHIN_S)
def test_the_reference_passes(runs: dict[str, Run]) -> None:
    summary, tolerated, reported = runs[REFERENCE].finished()
    assert summary["verdict"] == "pass", reported
    assert summary["must"]["fail"] == summary["engine_errors"] == 0, reported
    assert not [each for each in tolerated if KAFKAS_OWN in each]
