"""Traces of quorums whose voters change (KIP-853): drawn runs are accepted, and forbidden traces are rejected at the
forbidden step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from linearizability.simulation.drawing import draw
from linearizability.simulation.schedule import Schedule
from reference.controller import quorum_changing
from reference.controller.quorum_leading import Leader
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import TimestampMs
from spec.changing_voters_trace import ARGUMENTS, CHANGE, ChangingVotersTrace, changing_voters_traces
from spec.checker import Verdict
from spec.quorum_trace import quorum_traces
from spec.trace import TraceError, check_traces, read_trace, trace_of
from tests.spec.clusters import Row, as_read, rows_of, step

RUNS = (1, 5, 7)
SEEDS_FOR_A_MISTAKE = range(40)
BEGIN: Row = {"action": "Begin", "nodes": [1, 2, 3, 4], "firstVoters": [1, 2, 3]}


def drawn(seed: int, nodes: int = 4) -> Schedule:
    return draw(seed, None, nodes, coordination="changing-voters")


def traces_of(schedule: Schedule) -> list[ChangingVotersTrace]:
    _, rows = rows_of(schedule)
    found = [trace_of(events, f"{schedule.seed}") for events in changing_voters_traces(as_read(rows)).values()]
    return [trace for trace in found if isinstance(trace, ChangingVotersTrace)]


@pytest.mark.java
def test_drawn_runs_are_accepted() -> None:
    """The records of voters decide: with those of another run the traces are rejected."""
    traces = [trace for seed in RUNS for trace in traces_of(drawn(seed))]
    assert len(traces) == len(RUNS)
    steps = Counter(event["action"] for trace in traces for event in trace.events)
    assert {*steps} >= {*ARGUMENTS} - {"LeaveEpoch"} and steps[CHANGE] > 10, steps
    kept = [
        replace(trace, name=f"{trace.name}, one voter for good", events=one_voter_for_good(trace)) for trace in traces
    ]
    done = check_traces([*traces, *kept], look_ups=0)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert {verdict.name for verdict in done.rejected} == {trace.name for trace in kept}


def one_voter_for_good(trace: ChangingVotersTrace) -> tuple[Row, ...]:
    """The same events, in which each change leaves a single voter."""
    return tuple(
        event | {"voters": [trace.nodes[-1]]} if event["action"] == CHANGE else event for event in trace.events
    )


# ---- what KIP-853 forbids


def election(leader: int, voter: int, epoch: int, *, leo: int, last: int, marks: tuple[int, int]) -> list[Row]:
    """The steps of an election with the vote of one other node, whose log is as long."""
    before = (epoch - 1, leo, last)
    return [
        step(leader, "BecomeProspective", *before, marks[0]),
        step(leader, "GrantPreVote", *before, marks[0], source=voter),
        step(leader, "BecomeCandidate", epoch, leo, last, marks[0]),
        step(voter, "LearnEpoch", epoch, leo, last, marks[1], source=leader),
        step(voter, "GrantVote", epoch, leo, last, marks[1], to=leader),
        step(leader, "BecomeLeader", epoch, leo, last, marks[0]),
        step(leader, "AppendRecord", epoch, leo + 1, epoch, marks[0]),
    ]


def replicated(leader: int, follower: int, epoch: int, leo: int, mark: int) -> list[Row]:
    """The steps by which a follower replicates the leader's log."""
    return [
        step(follower, "ApplyFetch", epoch, leo, epoch, mark, source=leader),
        step(leader, "AnswerFetch", epoch, leo, epoch, mark, source=follower, end=leo),
    ]


LED = election(1, 2, 1, leo=0, last=0, marks=(0, 0))
READY = [*LED, *replicated(1, 2, 1, 1, 0), step(1, "AdvanceHighWatermark", 1, 1, 1, 1)]
"""Node 1 leads, and has committed its epoch's first record."""
ADDED = [*READY, step(1, "AppendVoters", 1, 2, 1, 1, voters=[1, 2, 3, 4])]
REMOVED = [*READY, step(1, "AppendVoters", 1, 2, 1, 1, voters=[2, 3])]
"""The leader has removed itself from the voters."""
COMMITTED = [
    *ADDED,
    *replicated(1, 2, 1, 2, 1),
    step(3, "LearnEpoch", 1, source=1),
    *replicated(1, 3, 1, 2, 1),
    step(1, "AdvanceHighWatermark", 1, 2, 1, 2),
]
HANDED_OVER = [
    *REMOVED,
    *replicated(1, 2, 1, 2, 1),
    step(3, "LearnEpoch", 1, source=1),
    *replicated(1, 3, 1, 2, 1),
    step(1, "AdvanceHighWatermark", 1, 2, 1, 2),
]
STANDS_AGAIN = [
    *REMOVED,
    step(1, "Restart", 1, 2, 1),
    step(1, "LeaveEpoch", 2, 2, 1),
    step(1, "BecomeProspective", 2, 2, 1),
    step(1, "GrantPreVote", 2, 2, 1, source=2),
    step(1, "GrantPreVote", 2, 2, 1, source=3),
    step(1, "BecomeCandidate", 3, 2, 1),
    step(2, "LearnEpoch", 3, 1, 1, source=1),
    step(2, "GrantVote", 3, 1, 1, to=1),
    step(3, "LearnEpoch", 3, source=1),
    step(3, "GrantVote", 3, to=1),
    step(1, "BecomeLeader", 3, 2, 1),
    step(1, "AppendRecord", 3, 3, 3),
]
"""The leader fails after it removed itself, before any other node has the record."""
ONE_VOTE = [*STANDS_AGAIN[:-8], STANDS_AGAIN[-7]]
"""Only one of two voters grants the vote."""
SOUND = {
    "a voter is added": COMMITTED,
    "two, one after the other": [*COMMITTED, step(1, "AppendVoters", 1, 3, 1, 2, voters=[1, 2, 4])],
    "the leader removes itself": HANDED_OVER,
    "a removed leader stands again": STANDS_AGAIN,
    "an epoch learned at a bootstrap address": [*READY, step(4, "LearnEpoch", 1, source=-3)],
    "the next leader is of the new voters": [*HANDED_OVER, *election(2, 3, 2, leo=2, last=1, marks=(1, 1))],
}
FORBIDDEN = {
    "a second change at once": [*ADDED, step(1, "AppendVoters", 1, 3, 1, 1, voters=[1, 2, 4])],
    "a change before the epoch is committed": [*LED, step(1, "AppendVoters", 1, 2, 1, voters=[1, 2, 3, 4])],
    "two voters at once": [*READY, step(1, "AppendVoters", 1, 2, 1, 1, voters=[1, 4])],
    "no voter left": [*READY, step(1, "AppendVoters", 1, 2, 1, 1, voters=[])],
    "two of four": [*ADDED, *replicated(1, 2, 1, 2, 1), step(1, "AdvanceHighWatermark", 1, 2, 1, 2)],
    "a removed leader that counts itself": [
        *REMOVED,
        *replicated(1, 2, 1, 2, 1),
        step(1, "AdvanceHighWatermark", 1, 2, 1, 2),
    ],
    "a removed leader goes on": [*HANDED_OVER, step(1, "AppendRecord", 1, 3, 1, 2)],
    "a removed leader's own vote": ONE_VOTE,
    "no voter stands": [
        step(4, "BecomeProspective", 0),
        step(4, "GrantPreVote", 0, source=1),
        step(4, "GrantPreVote", 0, source=2),
        step(4, "BecomeCandidate", 1),
    ],
    "an epoch that no node has": [*READY, step(4, "LearnEpoch", 2, source=-3)],
}
"""Each is rejected at its last step."""


@pytest.mark.java
def test_what_must_not_be_is_rejected_at_the_step() -> None:
    so_far = {f"before {name}": events[:-1] for name, events in FORBIDDEN.items()}
    reported = SOUND | so_far | FORBIDDEN
    done = check_traces([trace_of([BEGIN, *events], name) for name, events in reported.items()], look_ups=0)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert {verdict.name for verdict in done.rejected} == {*FORBIDDEN}
    assert len(done.verdicts) == len(reported)


def second_change_at_once(leader: Leader, what: str, now: TimestampMs) -> None:
    """`check_order` without the rule that the previous change is committed."""
    if not leader.is_ready:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    leader.change = None


@pytest.mark.java
@pytest.mark.slow
def test_a_leader_that_makes_two_changes_at_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_changing, "check_order", second_change_at_once)
    for seed in SEEDS_FOR_A_MISTAKE:
        if any(not verdict.accepted for verdict in check_traces(traces_of(drawn(seed)), look_ups=0).verdicts):
            return
    pytest.fail("no drawn run shows it")


# ---- from rows to traces


def test_it_is_no_trace_of_configured_voters_and_begins_with_all_nodes() -> None:
    first = {"partition": "__cluster_metadata-0"}
    rows = [
        step(1, "Restart", 0) | first | {"firstVoters": [1]},
        step(2, "Restart", 0) | first | {"firstVoters": []},
        step(1, "BecomeProspective", 0) | first,
    ]
    assert quorum_traces(rows) == {}
    ((begin, *events),) = changing_voters_traces(rows).values()
    assert begin == {"action": "Begin", "nodes": [1, 2], "firstVoters": [1]}
    assert [event["node"] for event in events] == [1, 2, 1]
    assert changing_voters_traces(rows[1:]) == {}, "node 1 was there before"
    assert changing_voters_traces([row | {"voters": [1]} for row in rows[2:]]) == {}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"action": "Jump"}', "Jump"),
        (
            '{"action": "AppendVoters", "node": 1, "epoch": 1, "leo": 0, "lastEpoch": 0, "highWatermark": 0}',
            "lacks voters",
        ),
        ('{"action": "Restart", "node": 9, "epoch": 1, "leo": 0, "lastEpoch": 0, "highWatermark": 0}', "called 9"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(line: str, reason: str) -> None:
    with pytest.raises(TraceError, match=f"file:2: .*{reason}"):
        read_trace(['{"action": "Begin", "nodes": [1, 2], "firstVoters": [1]}', line], "file")
