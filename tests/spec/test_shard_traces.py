"""Traces of coordinators: traces of simulated groups and transactional ids are accepted; corrupted traces and those of planted
bugs are rejected where they leave the specification.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from linearizability.mutants.registry import planted
from linearizability.simulation.drawing import draw
from linearizability.simulation.fuzzing import write_rows
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Member, Schedule
from reference.coordinator.consumer_group import ConsumerGroup
from spec import group_trace, transaction_trace
from spec.checker import Verdict
from spec.commands import app
from spec.shard_trace import group_traces, happened, transaction_traces
from spec.trace import AnyTrace, TraceError, check_traces, cluster_traces, read_trace, trace_of
from spec.trace_form import Event

Row = dict

OF = {"groups": group_traces, "transactions": transaction_traces}
RUNS_OF_ONE_NODE, RUNS_OF_THREE = 4, 1
"""The numbers of runs of each workload that reach each step at least once."""


def rows_of(workload: str, seed: int, nodes: int = 1) -> list[Row]:
    """The trace rows of all nodes in one run, decoded from JSON."""
    rows: list[Row] = []
    run_schedule(draw(seed, None, nodes, workload), by_history=True, rows=rows)
    return [json.loads(json.dumps(row)) for row in rows]


def traces(workload: str, seeds: Iterable[int], nodes: int = 1) -> list[AnyTrace]:
    return [
        trace_of(events, f"{nodes} nodes, seed {seed}, {name}")
        for seed in seeds
        for name, events in OF[workload](rows_of(workload, seed, nodes)).items()
    ]


def seeds_of_groups(count: int, nodes: int) -> list[int]:
    """The first seeds with members of the consumer protocol: the specification knows no classic groups."""
    seeds = (seed for seed in itertools.count() if has_consumer_group(draw(seed, None, nodes, "groups")))
    return [*itertools.islice(seeds, count)]


def has_consumer_group(schedule: Schedule) -> bool:
    return any(isinstance(client, Member) and client.protocol == "consumer" for client in schedule.clients)


@pytest.fixture(scope="module")
def runs() -> list[AnyTrace]:
    found: list[AnyTrace] = []
    for nodes, count in ((1, RUNS_OF_ONE_NODE), (3, RUNS_OF_THREE)):
        of_groups = traces("groups", seeds_of_groups(count, nodes), nodes)
        assert len(of_groups) >= count
        found += of_groups + traces("transactions", range(count), nodes)
    return found


def steps(runs: Iterable[AnyTrace], book: str) -> Counter[str]:
    return Counter(event["action"] for trace in runs if trace.book == book for event in trace.events)


@pytest.mark.java
def test_traces_of_groups_and_transactional_ids_are_accepted(runs: list[AnyTrace]) -> None:
    groups, transactions = steps(runs, "groups"), steps(runs, "transactions")
    assert {*groups} >= {*group_trace.ARGUMENTS} - {"RaiseGroupEpoch"}
    assert {*transactions} >= {*transaction_trace.ARGUMENTS} - {"TimeOut"}
    done = check_traces(runs)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert [(verdict.name, verdict.place, verdict.event) for verdict in done.rejected] == []
    assert len(done.verdicts) == len(runs)


# ---- reported falsely


def spoiled(runs: Iterable[AnyTrace], book: str, action: str, name: str, value: object) -> tuple[AnyTrace, int]:
    """A trace with its last such event changed, and the event's place."""
    has_it = (trace for trace in runs if trace.book == book and any(e["action"] == action for e in trace.events))
    events: list[Event] = json.loads(json.dumps(next(has_it).events))
    place = max(place for place, event in enumerate(events, 1) if event["action"] == action)
    event = events[place - 1]
    reported = event if name in event else event["args"]
    reported[name] = value(reported[name]) if callable(value) else value
    begin = {"action": "Begin", {"groups": "group", "transactions": "transactionalId"}[book]: "any"}
    return trace_of([begin, *events], f"{action}, {name}"), place


FALSE = [
    ("groups", "Heartbeat", "epoch", lambda epoch: epoch + 1),
    ("groups", "Heartbeat", "assigned", ["another:0"]),
    ("groups", "LeaveGroup", "groupEpoch", lambda epoch: epoch + 1),
    ("groups", "UpdateTarget", "groupEpoch", lambda epoch: epoch - 1),
    ("transactions", "EndTransaction", "bumps", lambda bumps: not bumps),
    ("transactions", "AppendMarker", "marker", "neither"),
    ("transactions", "CompleteTransaction", "partitions", ["t-9"]),
    ("transactions", "AppendWrite", "epoch", lambda epoch: epoch - 1),
]


@pytest.mark.sampled(days=3)
@pytest.mark.java
def test_a_corrupted_trace_is_rejected_at_the_event(runs: list[AnyTrace]) -> None:
    false = [spoiled(runs, *corruption) for corruption in FALSE]
    done = check_traces([trace for trace, _ in false])
    assert {verdict.name: verdict.place for verdict in done.rejected} == {trace.name: place for trace, place in false}
    assert all(verdict.before for verdict in done.rejected)


TRANSACTION = [
    '{"action": "Begin", "transactionalId": "payments"}',
    '{"action": "AddPartitions", "args": {"partitions": ["t-0"]}, "state": "Ongoing", "producerEpoch": 0, "partitions": ["t-0"]}',
    '{"action": "AppendWrite", "args": {"partition": "t-0", "epoch": 0}}',
    '{"action": "EndTransaction", "args": {"committed": true, "bumps": true}, "state": "PrepareCommit", "producerEpoch": 1,'
    ' "partitions": ["t-0"]}',
    '{"action": "AppendMarker", "args": {"partition": "t-0", "epoch": 1, "marker": "commit"}}',
    '{"action": "WriteMarker", "args": {"partition": "t-0"}, "state": "PrepareCommit", "producerEpoch": 1, "partitions": []}',
    '{"action": "CompleteTransaction", "args": {}, "state": "CompleteCommit", "producerEpoch": 1, "partitions": []}',
]
NEXT = '{"action": "AddPartitions", "args": {"partitions": ["t-0"]}, "state": "Ongoing", "producerEpoch": 1, "partitions": ["t-0"]}'
WRITE = '{"action": "AppendWrite", "args": {"partition": "t-0", "epoch": 1}}'


@pytest.mark.sampled(days=3)
@pytest.mark.java
def test_late_writes_and_second_markers_are_rejected() -> None:
    """A write that was never admitted hangs; the marker of one transaction, written twice, would end the next."""
    reported = {
        "sound": [*TRANSACTION, TRANSACTION[4], NEXT, WRITE],
        "late": [*TRANSACTION, TRANSACTION[2]],
        "hanging": [*TRANSACTION, WRITE],
        "twice": [*TRANSACTION, NEXT, WRITE, TRANSACTION[4]],
        "without": [*TRANSACTION[:4], TRANSACTION[5]],
    }
    done = check_traces([read_trace(lines, name) for name, lines in reported.items()])
    assert {verdict.name: verdict.place for verdict in done.rejected} == {
        "late": 7,
        "hanging": 7,
        "twice": 9,
        "without": 4,
    }


# ---- planted bugs

RUNS_OF_A_BUG = 6
"""The number of runs; not each of them shows the bug."""


def given_to_two() -> AbstractContextManager[object]:
    """Assign a partition to its new member before the old member has reported the revocation."""
    return patch.object(ConsumerGroup, "is_free", lambda group, partition: True)


@pytest.mark.java
@pytest.mark.sampled(days=6)
@pytest.mark.parametrize(
    ("bug", "workload", "action"),
    [
        (given_to_two, "groups", "Heartbeat"),
        ("epoch-kept-by-next-session", "transactions", "NewSession"),
        ("epoch-kept-by-end", "transactions", "EndTransaction"),
        ("aborted-marked-as-committed", "transactions", "AppendMarker"),
    ],
)
def test_traces_of_bugs_are_rejected_where_they_leave_the_specification(
    bug: str | Callable[[], AbstractContextManager[object]], workload: str, action: str
) -> None:
    with planted(bug) if isinstance(bug, str) else bug():
        found = traces(workload, range(RUNS_OF_A_BUG))
    done = check_traces(found)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert action in {verdict.event["action"] for verdict in done.rejected if verdict.event}


# ---- from rows to traces


def leadership(epoch: int, start: int, partition: str = "__consumer_offsets-0") -> Row:
    return {"action": "BecomeLeader", "partition": partition, "leaderEpoch": epoch, "leo": start, "hw": 0, "args": {}}


def joined(epoch: int, offset: int, member: str, group_epoch: int) -> Row:
    place = {"shard": "__consumer_offsets-0", "coordinatorEpoch": epoch, "offset": offset, "group": "g"}
    return place | {"action": "JoinGroup", "args": {"member": member, "groupEpoch": group_epoch}}


def test_what_a_later_leader_does_not_have_did_not_happen() -> None:
    rows = [
        leadership(0, 0),
        joined(0, 3, "a", 2),
        joined(0, 6, "b", 3),
        leadership(1, 3),
        joined(1, 5, "c", 3),
        joined(0, 9, "d", 4),
    ]
    assert [row["args"]["member"] for row in happened(rows)] == ["a", "c"]
    assert [event["args"] for event in group_traces(rows)["group g"][1:]] == [
        {"member": "a", "groupEpoch": 2},
        {"member": "c", "groupEpoch": 3},
    ]


def test_a_group_that_the_specification_does_not_know_ends_its_trace() -> None:
    beyond = joined(0, 4, "", 0) | {"action": "Beyond", "args": {}}
    rows = [joined(0, 3, "a", 2), beyond, joined(0, 6, "b", 3), joined(0, 9, "c", 2)]
    assert [len(events) for events in group_traces(rows).values()] == [2, 2]


def test_a_transactional_ids_trace_ends_where_committed_records_are_lost() -> None:
    state = {"state": "Empty", "producerEpoch": 0, "producerId": 7, "partitions": [], "args": {}}
    session = {
        "action": "NewSession",
        "transactionalId": "x",
        "shard": "s-0",
        "coordinatorEpoch": 0,
        "offset": 1,
    } | state
    write = {"action": "Produce", "partition": "t-0", "leaderEpoch": 0, "leo": 4, "hw": 4, "args": {"producer": [7, 0]}}
    again = write | {"leaderEpoch": 1, "leo": 5}
    lost = [
        session,
        write,
        leadership(1, 4, "t-0"),
        again,
        leadership(2, 3, "t-0"),
        write | {"leaderEpoch": 2, "leo": 6},
    ]
    kept = [
        session,
        write,
        leadership(1, 4, "t-0"),
        again,
        leadership(2, 4, "t-0"),
        write | {"leaderEpoch": 2, "leo": 6},
    ]
    assert len(transaction_traces(lost)["transactional id x"]) == 3
    assert [event["action"] for event in transaction_traces(kept)["transactional id x"]] == [
        "Begin",
        *["AppendWrite"] * 2,
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ['{"action": "Begin", "group": "g"}', '{"action": "Jump"}'],
        ['{"action": "Begin", "group": "g"}', '{"action": "JoinGroup", "args": {"member": "a"}}'],
        ['{"action": "Begin", "transactionalId": "x"}', '{"action": "TimeOut", "args": {}}'],
        [
            '{"action": "Begin", "transactionalId": "x"}',
            '{"action": "TimeOut", "args": {}, "state": "Done", "producerEpoch": 0, "partitions": []}',
        ],
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(lines: list[str]) -> None:
    with pytest.raises(TraceError, match="file:2"):
        read_trace(lines, "file")


# ---- the command


@pytest.mark.java
@pytest.mark.parametrize(("workload", "nodes"), [("groups", 1), ("transactions", 3)])
def test_the_command_checks_coordinators_beside_partitions(workload: str, nodes: int, tmp_path: Path) -> None:
    rows = next(rows for seed in range(20) if OF[workload](rows := rows_of(workload, seed, nodes)))
    write_rows(rows, tmp_path / "reported")
    done = CliRunner().invoke(app, ["spec", "trace", str(tmp_path), "--json"])
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (done.exit_code, summary["accepted"]) == (0, len(cluster_traces(rows))), done.output
