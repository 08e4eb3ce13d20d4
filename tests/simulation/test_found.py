"""Stored runs that once showed a bug of the node or of a checker: they are valid now."""

from pathlib import Path

import pytest

from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import read_schedule

FOUND = sorted((Path(__file__).parent / "found").glob("*.json"))

assert FOUND, "no stored schedule"


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_run_that_broke_a_promise_keeps_it(path: Path):
    outcome, _ = run_schedule(read_schedule(path))
    assert outcome.verdict == "valid", f"{outcome.rule}: {outcome.text}"
