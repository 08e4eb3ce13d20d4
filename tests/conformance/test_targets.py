"""The suite on real brokers: every must-requirement passes on the reference, and on Apache Kafka but for its known bugs.

The runs mostly wait, because requirements on time must: they go on side by side, each in a process of its own. Apache Kafka does
not change. In CI a run on it judges the requirements whose tests have changed since their verdicts were stored, and half of the
day's areas; the other half has its turn a week later.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conformance import releases
from conformance.known_bugs import known_bugs
from conformance.requirement import AREAS, catalogue
from tests.shares import share
from tests.tools.secured import STORE

PARTS = 7
KAFKA, REFERENCE = "kafka:4.3.1", "reference:1"
SECURED = ("FRM", "SEC", "--security", "SASL_SSL")


def asked_of_kafka(part: int) -> tuple[str, ...]:
    """Ids: those of the part's areas that are today's, and each whose test has changed since it was measured."""
    entries = [entry for entry in catalogue().values() if entry.test]
    matrix = releases.Matrix.read(releases.STORE)
    changed = [entry.requirement.id for entry in matrix.lacking(KAFKA.partition(":")[2], entries)]
    areas = [*AREAS][part::PARTS]
    todays = share([entry.requirement.id for entry in entries if entry.requirement.area in areas], 2)
    return (*dict.fromkeys([*todays, *changed]),)


RUNS: dict[str, tuple[str, Callable[[], tuple[str, ...]]]] = {
    "test_the_reference_passes": (REFERENCE, tuple),
    "test_the_secured_reference_passes": (REFERENCE, lambda: SECURED),
} | {f"test_apache_kafka_passes[{part}]": (KAFKA, partial(asked_of_kafka, part)) for part in range(PARTS)}
"""Test -> target, and the function that returns areas, ids or options."""
RUN_WITHIN_S = 2_400
"""Under ten minutes on a quiet machine."""
BAD = ("fail", "engine error")
LEVELS = ("must", "should", "may")
UNSEEN_ON_ONE_NODE = re.compile(r"needs \d nodes; the target has 1|needs more than|: owed (since [0-9.]+ )?until ")
"""Why the reference is not judged by something: the nodes, a machine that is too busy, or a release that is over."""
KAFKAS_OWN = "KAFKA-20734"
"""What the requirements on histories tolerate of Kafka; the reference must not need it."""


class Run:
    """One run of the suite, under way; of all areas where none is named."""

    def __init__(self, target: str, arguments: Sequence[str], folder: Path) -> None:
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tidegauge",
                    "run",
                    *arguments,
                    "--target",
                    target,
                    "--json",
                    "--results",
                    str(folder),
                ],
                stdout=output,
                stderr=subprocess.DEVNULL,
            )

    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines of the run, once it has ended: the judgements, and last the summary."""
        self._process.wait(RUN_WITHIN_S)
        return [json.loads(line) for line in self._output.read_text().splitlines()]

    def finished(self) -> tuple[dict[str, Any], list[str], str]:
        """The summary, the tolerated judgements, and a text with the bad ones, for the message of a failing test."""
        *lines, summary = self.lines()
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
    wanted = [item.name for item in request.session.items if item.name in RUNS]
    started: dict[str, Run] = {}
    for name in wanted:
        target, arguments = RUNS[name]
        started[name] = Run(target, arguments(), tmp_path_factory.mktemp("run"))
    try:
        yield started
    finally:
        for each in started.values():
            each.end()


@pytest.mark.kafka
@pytest.mark.timeout(RUN_WITHIN_S)
@pytest.mark.sampled(days=PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_apache_kafka_passes(runs: dict[str, Run], part: int) -> None:
    """But for its own bugs, which are named."""
    summary, _, reported = runs[f"test_apache_kafka_passes[{part}]"].finished()
    assert summary["verdict"] == "pass" and summary["engine_errors"] == 0, reported
    failed = {line.split()[0] for line in reported.splitlines()[1:]}
    assert failed <= known_bugs(KAFKA).keys(), reported


@pytest.mark.timeout(RUN_WITHIN_S)
def test_the_reference_passes(runs: dict[str, Run]) -> None:
    """Nothing fails at any level, and whatever one node can show is judged."""
    summary, tolerated, reported = runs["test_the_reference_passes"].finished()
    assert summary["verdict"] == "pass", reported
    assert sum(summary[level][verdict] for level in LEVELS for verdict in ("fail", "blocked")) == 0, reported
    assert summary["engine_errors"] == 0, reported
    assert not [each for each in tolerated if KAFKAS_OWN in each]
    last = {line["id"]: line for line in runs["test_the_reference_passes"].lines()[:-1]}
    unjudged = [f"{id}: {line['reason']}" for id, line in last.items() if line["verdict"] == "not judged"]
    assert unjudged and not [each for each in unjudged if not UNSEEN_ON_ONE_NODE.search(each)]


@pytest.mark.timeout(RUN_WITHIN_S)
def test_the_secured_reference_passes(runs: dict[str, Run]) -> None:
    summary, tolerated, reported = runs["test_the_secured_reference_passes"].finished()
    assert summary["verdict"] == "pass" and not tolerated, reported
    assert sum(summary[level]["not_judged"] for level in LEVELS) == 0


def test_what_is_stored_of_secured_runs_has_the_verdicts_of_plaintext() -> None:
    """But for what Apache Kafka does now and then, by a known bug of its own."""
    stored = json.loads(STORE.read_text())
    assert {KAFKA, REFERENCE, "reference:3"} <= stored.keys()
    for spec, runs in stored.items():
        assert {"PLAINTEXT", "SASL_SSL"} <= runs.keys()
        for protocol, row in runs.items():
            assert row["verdicts"].keys().isdisjoint(BAD), (spec, protocol)
            differing = {verdict for pair in row["differs"].values() for verdict in pair}
            assert differing <= ({"pass", "tolerated"} if spec == KAFKA else set()), (spec, protocol)
