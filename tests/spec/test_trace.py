"""Traces of the specification's own behaviours are accepted; corrupted ones, and those of bugs, are rejected where they leave it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spec.behaviours import simulate, trace_events
from spec.catalogue import all_cases
from spec.checker import Verdict, check
from spec.trace import Trace, TraceError, check_traces, read_trace

pytestmark = pytest.mark.java


def as_trace(rows: list[dict], name: str) -> Trace:
    return read_trace([json.dumps(row) for row in rows], name)


@pytest.fixture(scope="module")
def behaviours() -> list[list[dict]]:
    cases = all_cases()
    drawn = [*simulate(cases["MCIsr"], 30, 60), *simulate(cases["MCRecovery"], 30, 60)]
    return [trace_events(behaviour) for behaviour in drawn]


def test_behaviours_of_the_specification_are_accepted(behaviours: list[list[dict]]) -> None:
    done = check_traces([as_trace(rows, str(number)) for number, rows in enumerate(behaviours)])
    assert done.outcome.verdict == Verdict.HOLDS
    assert [(verdict.name, verdict.place, verdict.reason) for verdict in done.rejected] == []
    assert len(done.verdicts) == len(behaviours)
    assert done.events == sum(len(rows) - 1 for rows in behaviours)


def corrupted(rows: list[dict], action: str, change: Callable[[dict], None]) -> tuple[list[dict], int] | None:
    """A copy with the first such event changed, and the event's place."""
    copy: list[dict] = json.loads(json.dumps(rows))
    for place, row in enumerate(copy):
        if row["action"] == action:
            change(row)
            return copy, place
    return None


def longer(row: dict) -> None:
    row["leo"] += 1


def higher(row: dict) -> None:
    row["hw"] += 1
    row["args"]["highWatermark"] += 1


def later(row: dict) -> None:
    row["partition"]["leaderEpoch"] += 1


def another(row: dict) -> None:
    row["action"] = "BecomeLeader"


CORRUPTIONS = [
    ("Produce", longer),
    ("AdvanceHighWatermark", higher),
    ("AlterPartition", later),
    ("BecomeFollower", another),
]


@pytest.mark.parametrize(("action", "change"), CORRUPTIONS)
def test_a_corrupted_trace_is_rejected_at_the_event(
    action: str, change: Callable[[dict], None], behaviours: list[list[dict]]
) -> None:
    spoiled = next(found for rows in behaviours if (found := corrupted(rows, action, change)))
    done = check_traces([as_trace(spoiled[0], "spoiled"), as_trace(behaviours[0], "sound")])
    assert [(verdict.name, verdict.place) for verdict in done.rejected] == [("spoiled", spoiled[1])]
    assert done.rejected[0].before["log"]


@pytest.mark.parametrize(
    "switch", ["TruncateToHighWatermark", "IgnoreProposedIsr", "RollBackCommittedIsr", "IgnoreMinIsr"]
)
def test_the_trace_of_a_bug_is_rejected(switch: str) -> None:
    outcome = check(all_cases()[switch].job())
    assert outcome.verdict == Verdict.VIOLATED
    done = check_traces([as_trace(trace_events(outcome.trace), switch)])
    assert [verdict.name for verdict in done.rejected] == [switch]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["not json"],
        ['{"action": "Produce"}'],
        ['{"action": "Begin"}'],
        ['{"action": "Begin", "brokers": [1], "minIsr": 1, "partition": {}}', '{"action": "Jump", "node": 1}'],
        [
            '{"action": "Begin", "brokers": [1], "minIsr": 1, "partition": {}}',
            '{"action": "Crash", "node": 1, "args": {}}',
        ],
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(lines: list[str]) -> None:
    with pytest.raises(TraceError, match=r"file:\d"):
        read_trace(lines, "file")


def test_a_folder_without_traces_is_not_accepted(tmp_path: Path) -> None:
    from spec.trace import read_traces

    assert read_traces([tmp_path]) == []
