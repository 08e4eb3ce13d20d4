"""Traces of the specification's own behaviours are accepted; corrupted ones, and those of bugs, are rejected where they leave the
specification.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spec import trace
from spec.behaviours import simulate, trace_events
from spec.catalogue import all_cases
from spec.checker import SHORT_RUN, Job, Outcome, Verdict, check
from spec.commands import app
from spec.engine import LocalEngine
from spec.trace import AnyTrace, TraceError, check_traces, read_trace
from tests.spec.counterexamples import counterexample

pytestmark = pytest.mark.java


def as_trace(rows: list[dict], name: str) -> AnyTrace:
    return read_trace([json.dumps(row) for row in rows], name)


@pytest.fixture(scope="module")
def behaviours() -> list[list[dict]]:
    cases = all_cases()
    models = ("MCIsr", "MCRecovery", "MCReassignment", "MCReconfiguration")
    drawn = [behaviour for model in models for behaviour in simulate(cases[model], 30, 60)]
    return [trace_events(behaviour) for behaviour in drawn]


def test_behaviours_of_the_specification_are_accepted(behaviours: list[list[dict]]) -> None:
    done = check_traces([as_trace(rows, str(number)) for number, rows in enumerate(behaviours)])
    assert done.outcome.verdict == Verdict.HOLDS
    assert [(verdict.name, verdict.place, verdict.reason) for verdict in done.rejected] == []
    assert len(done.verdicts) == len(behaviours)
    assert done.events == sum(len(rows) - 1 for rows in behaviours)
    steps = {row["action"] for rows in behaviours for row in rows}
    assert {"Reassign", "CallOffReassignment", "GiveUpReplica", "ChangeMinIsr", "LearnMinIsr"} <= steps


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
    """Beyond every log: one more might be allowed."""
    row["hw"] += 9
    row["args"]["highWatermark"] += 9


def later(row: dict) -> None:
    row["partition"]["leaderEpoch"] += 1


def another(row: dict) -> None:
    row["action"] = "BecomeLeader"


def moved(row: dict) -> None:
    row["partition"]["replicas"] = row["partition"]["replicas"][:1]


def unheard_of(row: dict) -> None:
    row["args"]["minIsr"] = row["minIsr"] = 7


def kept(row: dict) -> None:
    row["leo"] += 1


CORRUPTIONS = [
    ("Produce", longer),
    ("AdvanceHighWatermark", higher),
    ("AlterPartition", later),
    ("BecomeFollower", another),
    ("Reassign", moved),
    ("GiveUpReplica", kept),
    ("LearnMinIsr", unheard_of),
]


@pytest.mark.sampled(days=3)
def test_a_corrupted_trace_is_rejected_at_the_event(behaviours: list[list[dict]]) -> None:
    """And a sound one beside it is accepted."""
    places: dict[str, int] = {}
    traces = [as_trace(behaviours[0], "sound")]
    for action, change in CORRUPTIONS:
        spoiled, place = next(found for rows in behaviours if (found := corrupted(rows, action, change)))
        places[action] = place
        traces.append(as_trace(spoiled, action))
    done = check_traces(traces, look_ups=len(CORRUPTIONS))
    assert {verdict.name: verdict.place for verdict in done.verdicts if not verdict.accepted} == places
    assert all(verdict.before["log"] for verdict in done.rejected)


@pytest.mark.sampled(days=3)
def test_the_traces_of_bugs_are_rejected() -> None:
    switches = {
        "TruncateToHighWatermark",
        "IgnoreProposedIsr",
        "RollBackCommittedIsr",
        "IgnoreMinIsr",
        "KeepDroppedEligible",
    }
    done = check_traces([as_trace(counterexample(switch)["events"], switch) for switch in switches])
    assert {verdict.name for verdict in done.rejected} == switches


def of_another_incarnation(row: dict) -> None:
    row["args"]["brokerEpoch"] += 1


@pytest.mark.sampled(days=6)
def test_a_fetch_of_a_former_incarnation_is_rejected() -> None:
    """It names an earlier broker epoch than the leader knows of; a committed record is lost if it counts."""
    outcome = check(replace(all_cases()["FetchOfFormerIncarnation"].job(), jvm=SHORT_RUN))
    rows = trace_events(outcome.trace)
    fetches = [(place, row["args"]["brokerEpoch"]) for place, row in enumerate(rows) if row["action"] == "AnswerFetch"]
    first, late = fetches[0], fetches[-1]
    assert late[1] < fetches[-2][1]

    misreported = corrupted(rows, "AnswerFetch", of_another_incarnation)
    assert misreported
    sound = rows[: late[0]]
    done = check_traces([as_trace(rows, "late"), as_trace(misreported[0], "mistold"), as_trace(sound, "sound")])
    assert [(verdict.name, verdict.place) for verdict in done.rejected] == [("late", late[0]), ("mistold", first[0])]


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


@pytest.mark.sampled(days=6)
def test_many_events_are_several_runs_with_the_same_verdicts(
    behaviours: list[list[dict]], monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = [as_trace(rows, str(number)) for number, rows in enumerate(behaviours[:6])]
    spoiled = next(found for rows in behaviours if (found := corrupted(rows, "Produce", longer)))
    traces.insert(3, as_trace(spoiled[0], "spoiled"))
    together = check_traces(traces, look_ups=0)
    runs: list[int] = []
    monkeypatch.setattr(trace, "EVENTS_A_RUN", 1)

    class Counting(LocalEngine):
        def check(self, job: Job) -> Outcome:
            runs.append(1)
            return super().check(job)

    apart = check_traces(traces, look_ups=0, engine=Counting())
    assert len(runs) == len(traces)
    assert apart.verdicts == together.verdicts
    assert [verdict.name for verdict in apart.rejected] == ["spoiled"]


def write(folder: Path, name: str, rows: list[dict]) -> None:
    (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.mark.sampled(days=3)
def test_a_folder_is_checked_by_the_command(behaviours: list[list[dict]], tmp_path: Path) -> None:
    for number, rows in enumerate(behaviours[:3]):
        write(tmp_path, str(number), rows)
    sound = CliRunner().invoke(app, ["spec", "trace", str(tmp_path), "--json"])
    summary = json.loads(sound.stdout.splitlines()[-1])
    assert (sound.exit_code, summary["verdict"], summary["accepted"], summary["rejected"]) == (0, "valid", 3, 0)

    spoiled = next(found for rows in behaviours if (found := corrupted(rows, "Produce", longer)))
    write(tmp_path, "spoiled", spoiled[0])
    found = CliRunner().invoke(app, ["spec", "trace", str(tmp_path), "--json"])
    reported = [json.loads(line) for line in found.stdout.splitlines()]
    assert (found.exit_code, reported[-1]["verdict"], reported[-1]["accepted"], reported[-1]["rejected"]) == (
        1,
        "invalid",
        3,
        1,
    )
    assert (reported[0]["trace"], reported[0]["place"]) == (str(tmp_path / "spoiled.jsonl"), spoiled[1])


def test_a_trace_of_no_steps_at_all_reads_as_nothing(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["spec", "trace", str(tmp_path), "--json"]).exit_code == 2
