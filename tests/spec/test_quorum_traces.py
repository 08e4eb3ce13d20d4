"""Traces of the metadata quorum: traces of simulated voters in runs with faults are accepted, in one order or
merged from each voter's own trace; traces that Raft forbids are rejected at the forbidden step.

Traces of the quorum's mutants are tested with their schedules (`test_quorum_schedules.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spec.checker import Verdict
from spec.commands import app
from spec.merging import merged
from spec.quorum_trace import ARGUMENTS, QuorumTrace, quorum_traces
from spec.trace import TraceError, check_traces, read_trace, trace_of
from tests.spec.clusters import Row, as_read, rows_of, small, split, step

RUNS = [seed for seed in range(40) if small(seed).is_traceable][:36]
MERGED = 6


@pytest.fixture(scope="module")
def reported() -> list[list[Row]]:
    """The rows of each run: some seven seconds on a quiet core, and four for TLC."""
    return [as_read(rows_of(small(seed))[1]) for seed in RUNS]


def traces_in(rows: list[Row], name: object) -> list[QuorumTrace]:
    found = [trace_of(events, f"{name} {title}") for title, events in quorum_traces(rows).items()]
    return [trace for trace in found if isinstance(trace, QuorumTrace)]


@pytest.mark.java
def test_runs_of_three_voters_with_faults_are_accepted(reported: list[list[Row]]) -> None:
    traces = [trace for seed, rows in zip(RUNS, reported, strict=True) for trace in traces_in(rows, seed)]
    assert len(traces) == len(RUNS)
    steps = Counter(event["action"] for trace in traces for event in trace.events)
    assert {*steps} == {*ARGUMENTS}
    assert steps["BecomeLeader"] > 2 * len(RUNS)
    traces += [trace for rows in reported[:MERGED] for trace in traces_in(merged(split(rows, 10)), "merged")]
    done = check_traces(traces)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert [(verdict.name, verdict.place, verdict.event) for verdict in done.rejected] == []
    assert len(traces) == len(RUNS) + MERGED


def test_what_was_caused_waits_for_its_cause(reported: list[list[Row]]) -> None:
    """With one time for all rows only causes are left to order them by."""
    newest = 0
    for rows in reported[:MERGED]:
        order = merged(split(rows, len(rows)))
        epochs: dict[int, int] = {}
        for event in quorum_traces(order)["metadata quorum"][1:]:
            if event["action"] == "LearnEpoch":
                assert epochs[event["from"]] >= event["epoch"]
            epochs[event["node"]] = event["epoch"]
        newest = max(newest, *epochs.values())
    assert newest > 1


# ---- what Raft forbids


RIVALS = [
    step(1, "BecomeProspective", 0),
    step(1, "GrantPreVote", 0, source=2),
    step(1, "BecomeCandidate", 1),
    step(2, "BecomeProspective", 0),
    step(2, "GrantPreVote", 0, source=3),
    step(2, "BecomeCandidate", 1),
    step(3, "LearnEpoch", 1, source=1),
]
"""Two candidates of one epoch, and a third voter."""
LEADERSHIP = [*RIVALS, step(3, "GrantVote", 1, to=1), step(1, "BecomeLeader", 1), step(1, "AppendRecord", 1, 1, 1)]
SUCCESSION = [
    *LEADERSHIP,
    step(1, "AnswerFetch", 1, 1, 1, source=3, end=0),
    step(3, "ApplyFetch", 1, 1, 1, source=1),
    step(3, "BecomeProspective", 1, 1, 1),
    step(3, "GrantPreVote", 1, 1, 1, source=2),
    step(3, "BecomeCandidate", 2, 1, 1),
    step(2, "LearnEpoch", 2, source=3),
    step(2, "GrantVote", 2, to=3),
    step(3, "BecomeLeader", 2, 1, 1),
    step(3, "AppendRecord", 2, 2, 2),
]
"""The next leader has the first one's record, which no voter knows to be committed, and one of its own."""
COMMIT = [
    *SUCCESSION,
    step(2, "ApplyFetch", 2, 2, 2, source=3),
    step(3, "AnswerFetch", 2, 2, 2, source=2, end=2),
    step(3, "AdvanceHighWatermark", 2, 2, 2, 2),
]
DEPOSED = [step(1, "AppendRecord", 1, 2, 1), step(1, "LearnEpoch", 2, 2, 1, source=3)]
"""The first leader with a record that the next one has not."""
SOUND = {
    "succession": SUCCESSION,
    "commit of an own record": COMMIT,
    "a cut": [*SUCCESSION, *DEPOSED, step(1, "ApplyFetch", 2, 1, 1, source=3)],
    "a snapshot": [*COMMIT, *DEPOSED, step(1, "ApplyFetch", 2, 2, 2, 2, source=3, snapshot=True)],
    "a candidate again": [*RIVALS, step(1, "Restart", 1), *LEADERSHIP[len(RIVALS) :]],
}
FORBIDDEN = {
    "second vote": [*RIVALS, step(3, "GrantVote", 1, to=1), step(3, "GrantVote", 1, to=2)],
    "second vote in another incarnation": [
        *RIVALS,
        step(3, "GrantVote", 1, to=1),
        step(3, "Restart", 1),
        step(3, "GrantVote", 1, to=2),
    ],
    "leader of a minority": [*RIVALS, step(1, "BecomeLeader", 1)],
    "leads again after a restart": [*LEADERSHIP, step(1, "Restart", 1, 1, 1), step(1, "AppendRecord", 1, 2, 1)],
    "vote for a shorter log": [
        *SUCCESSION[:-5],
        step(2, "BecomeProspective", 1),
        step(2, "GrantPreVote", 1, source=3),
        step(2, "BecomeCandidate", 2),
        step(3, "LearnEpoch", 2, 1, 1, source=2),
        step(3, "GrantVote", 2, 1, 1, to=2),
    ],
    "commit of an old record": [
        *SUCCESSION,
        step(2, "ApplyFetch", 2, 1, 1, source=3),
        step(3, "AnswerFetch", 2, 2, 2, source=2, end=1),
        step(3, "AdvanceHighWatermark", 2, 2, 2, 1),
    ],
    "commit without a majority": [*SUCCESSION, step(3, "AdvanceHighWatermark", 2, 2, 2, 2)],
    "fetch of what no voter has": [*SUCCESSION, step(3, "AnswerFetch", 2, 2, 2, source=2, end=2)],
    "records of a former leader": [*SUCCESSION, step(2, "ApplyFetch", 2, 1, 1, source=1)],
    "more than the leader has": [*LEADERSHIP, step(3, "ApplyFetch", 1, 2, 1, source=1)],
    "committed by a restart": [*LEADERSHIP, step(1, "Restart", 1, 1, 1, 1)],
    "a snapshot of what is not committed": [
        *SUCCESSION,
        *DEPOSED,
        step(1, "ApplyFetch", 2, 2, 2, source=3, snapshot=True),
    ],
    "records after others": [*SUCCESSION, *DEPOSED, step(1, "ApplyFetch", 2, 3, 2, source=3)],
    "a cut of what both have": [*SUCCESSION, *DEPOSED, step(1, "ApplyFetch", 2, 0, 0, source=3)],
    "epoch of no leader": [*LEADERSHIP, step(3, "LearnEpoch", 2, source=1)],
    "next epoch of a follower": [*LEADERSHIP, step(3, "LeaveEpoch", 2)],
}
"""Each is rejected at its last step."""


@pytest.mark.sampled(days=3)
@pytest.mark.java
def test_what_raft_forbids_is_rejected_at_the_step() -> None:
    """Up to there each trace is accepted."""
    begin = {"action": "Begin", "voters": [1, 2, 3]}
    so_far = {f"before {name}": events[:-1] for name, events in FORBIDDEN.items()}
    reported = SOUND | so_far | FORBIDDEN
    done = check_traces([trace_of([begin, *events], name) for name, events in reported.items()], look_ups=0)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert {verdict.name for verdict in done.rejected} == {*FORBIDDEN}
    assert len(done.verdicts) == len(reported)


# ---- from rows to traces


def test_a_quorum_that_had_an_epoch_before_its_first_row_has_no_trace(reported: list[list[Row]]) -> None:
    rows = reported[0]
    later = next(number for number, row in enumerate(rows) if row["action"] == "BecomeLeader")
    assert quorum_traces(rows)
    assert quorum_traces(rows[later:]) == {}
    assert quorum_traces([row for row in rows if row["action"] != "Restart"]) == {}


def test_members_without_a_vote_are_left_out() -> None:
    first = {"partition": "__cluster_metadata-0", "voters": [1]}
    rows = [step(1, "Restart", 0) | first, step(2, "Restart", 0) | first, step(1, "BecomeProspective", 0) | first]
    assert [event.get("node") for event in quorum_traces(rows)["metadata quorum"]] == [None, 1, 1]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"action": "Jump"}', "Jump"),
        ('{"action": "GrantVote", "node": 1, "epoch": 1, "leo": 0, "lastEpoch": 0, "highWatermark": 0}', "lacks to"),
        ('{"action": "Restart", "node": 1, "epoch": 1, "leo": 0}', "lacks lastEpoch, highWatermark"),
        ('{"action": "Restart", "node": 4, "epoch": 1, "leo": 0, "lastEpoch": 0, "highWatermark": 0}', "called 4"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(line: str, reason: str) -> None:
    with pytest.raises(TraceError, match=f"file:2: .*{reason}"):
        read_trace(['{"action": "Begin", "voters": [1, 2, 3]}', line], "file")


@pytest.mark.java
def test_the_command_prints_the_step_and_the_voters_before_it(tmp_path: Path) -> None:
    rows = [{"action": "Begin", "voters": [1, 2, 3]}, *FORBIDDEN["second vote"]]
    (tmp_path / "quorum.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    done = CliRunner().invoke(app, ["spec", "trace", str(tmp_path)])
    assert done.exit_code == 1, done.output
    assert "GrantVote" in done.stdout
    assert "votedFor" in done.stdout
