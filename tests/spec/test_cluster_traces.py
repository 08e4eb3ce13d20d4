"""Traces of whole clusters: traces of simulated runs with faults are accepted, in one order or merged from each
node's own trace; a corrupted trace is rejected where it leaves the specification.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from linearizability.simulation.fuzzing import write_rows
from linearizability.simulation.schedule import Fault, Producer, Schedule, read_schedule
from spec.actions import ACTIONS
from spec.checker import Verdict
from spec.cluster_trace import METADATA, begins_incarnation, partition_traces, without_lost_decisions
from spec.commands import app
from spec.killed_steps import with_killed_steps
from spec.merging import merged
from spec.replication_trace import Trace, trace_of
from spec.trace import check_traces, cluster_traces
from tests.spec.clusters import Row, as_read, rows_of, small, small_traces, split

FOUND = Path(__file__).parents[1] / "simulation" / "found"
PARTS = 4
SEEDS = [seed for seed in range(185) if small(seed).is_traceable][:120]
SELDOM = {"ElectUncleanLeader", "ElectLeader", "Retry", "RollBackIsr", "Truncate", "ShrinkIsr", "Consume"}
SELDOM |= {"CallOffReassignment", "ChangeMinIsr", "LearnMinIsr", "GiveUpReplica"}
"""Steps that so many short runs may not have."""


@pytest.mark.java
@pytest.mark.sampled(days=PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_traces_of_clusters_with_faults_are_accepted(part: int) -> None:
    """Five hundred traces of a hundred and twenty runs, with all frequent steps."""
    runs = small_traces(SEEDS[part::PARTS])
    assert len(runs) >= 400 // PARTS
    steps = Counter(event["action"] for trace in runs for event in trace.events)
    assert {action.name for action in ACTIONS} - SELDOM <= {*steps}
    done = check_traces(runs)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert [(verdict.name, verdict.place, verdict.event) for verdict in done.rejected] == []
    assert len(done.verdicts) == len(runs)


# ---- corrupted

SEEDS_OF_ALL_STEPS = 20
"""The largest number of runs that are drawn until each corrupted step occurs."""


def changed(trace: Trace, action: str, more: dict[str, Any]) -> tuple[Trace, int] | None:
    """The trace with its last such event changed, and the event's place."""
    events = as_read(trace.events)
    places = [place for place, event in enumerate(events, 1) if event["action"] == action]
    if not places:
        return None
    event = events[places[-1] - 1]
    reported = event.get("partition", event)
    reported.update({name: change(reported[name]) for name, change in more.items() if callable(change)})
    begin = {"action": "Begin", "brokers": list(trace.brokers), "minIsr": trace.min_isr, "partition": trace.first}
    return trace_of([begin | {"fenced": list(trace.fenced)}, *events], action), places[-1]


FALSE = [
    ("UnfenceBroker", {"leaderEpoch": lambda epoch: epoch + 1}),
    ("RegisterBroker", {"partitionEpoch": lambda epoch: epoch + 1}),
    ("AlterPartition", {"isr": lambda isr: isr[:-1]}),
    ("Crash", {"leo": lambda end: end + 1}),
    ("CommitIsr", {"isr": lambda isr: isr[:-1]}),
    ("Reassign", {"replicas": lambda replicas: replicas[:-1]}),
    ("GiveUpReplica", {"leo": lambda end: end + 1}),
]


def first_changed(runs: list[Trace], drawn: Iterator[Trace], false: tuple[str, dict[str, Any]]) -> tuple[Trace, int]:
    """The changed first trace that has such an event; draws more runs if none has."""
    for trace in runs:
        if found := changed(trace, *false):
            return found
    for trace in drawn:
        runs.append(trace)
        if found := changed(trace, *false):
            return found
    raise AssertionError(f"no run has {false[0]}")


@pytest.mark.java
@pytest.mark.sampled(days=3)
def test_a_corrupted_trace_is_rejected_at_the_event() -> None:
    drawn = (trace for seed in SEEDS[:SEEDS_OF_ALL_STEPS] for trace in small_traces([seed]))
    runs: list[Trace] = []
    spoiled = [first_changed(runs, drawn, false) for false in FALSE]
    done = check_traces([trace for trace, _ in spoiled], look_ups=len(FALSE))
    assert [(verdict.name, verdict.place) for verdict in done.rejected] == [(trace.name, at) for trace, at in spoiled]
    assert all(verdict.before["partition"] for verdict in done.rejected)


# ---- planted bugs


@pytest.mark.java
@pytest.mark.sampled(days=6)
@pytest.mark.parametrize(
    ("mutant", "seeds", "action"),
    [("kip-966", range(1, 3), "RegisterBroker"), ("replay-skipped", range(2), "BecomeFollower")],
)
def test_traces_of_mutants_are_rejected_where_they_leave_the_specification(
    mutant: str, seeds: range, action: str
) -> None:
    done = check_traces(small_traces(seeds, mutant))
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert action in {verdict.event["action"] for verdict in done.rejected if verdict.event}


# ---- what operators do


def operated() -> Schedule:
    """Replicas move and come back, and min.insync.replicas is changed, while records are written."""
    schedule = small(2)
    name = schedule.topics[0].name
    wishes = [
        Fault(at_ms=300 + 400 * number, kind="reassign", topic=name, others=others)
        for number, others in enumerate([(1, 2), (2, 3), (3, 1), (1, 2, 3)])
    ]
    settings = [
        Fault(at_ms=500 + 400 * number, kind="config", topic=name, configs={"min.insync.replicas": value})
        for number, value in enumerate("121")
    ]
    clients = (Producer(batches=60, records=1, pause_ms=30, acks="all"),)
    faults = tuple(sorted([*wishes, *settings], key=lambda fault: fault.at_ms))
    return schedule.model_copy(update={"faults": faults, "clients": clients, "duration_ms": 2_500})


@pytest.mark.java
def test_traces_go_on_through_reassignments_and_changed_settings() -> None:
    outcome, rows = rows_of(operated())
    assert outcome.verdict == "valid", outcome.text
    traces = [trace_of(events, name) for name, events in partition_traces(as_read(rows)).items()]
    steps = [event["action"] for trace in traces for event in trace.events]
    assert {"Reassign", "GiveUpReplica", "ChangeMinIsr", "LearnMinIsr"} <= {*steps}
    assert {*steps[len(steps) - steps[::-1].index("GiveUpReplica") :]} >= {"Produce", "AppendFetched"}
    order = merged(split(as_read(rows), 10))
    traces += [trace_of(events, f"merged {name}") for name, events in partition_traces(order).items()]
    done = check_traces(traces)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert [(verdict.name, verdict.place, verdict.event) for verdict in done.rejected] == []


# ---- what the specification does not know


@pytest.mark.java
def test_a_trace_ends_where_a_leader_has_deleted_what_a_follower_asks_of() -> None:
    """Retention deleted the end of the former leader epoch: the point of divergence is unknown, and later events are not
    judged."""
    outcome, rows = rows_of(read_schedule(FOUND / "follower-cut-to-what-its-leader-has-deleted.json"))
    assert outcome.verdict == "valid", outcome.text
    reported = [row["action"] for row in rows if row.get("partition") == "orders0-0"]
    assert "Truncate" in reported[reported.index("AnswerFromLogStart") :]
    trace = trace_of(partition_traces(as_read(rows))["orders0-0"], "orders0-0")
    assert len(trace.events) > 100 and "Truncate" not in [event["action"] for event in trace.events[-20:]]
    done = check_traces([trace])
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert [(verdict.name, verdict.place, verdict.event) for verdict in done.rejected] == []


# ---- each node's own order


@pytest.mark.sampled(days=3)
@pytest.mark.java
def test_traces_merged_by_cause_are_accepted() -> None:
    found: list[Trace] = []
    for seed in (*range(8), 76, 241, 411):  # 241: a refused proposal; 411: an incarnation that was never registered
        _, rows = rows_of(small(seed).model_copy(update={"small_portions": seed == 241}))
        nodes = split(as_read(rows), 10)
        order = merged(nodes)
        assert [row for row in order if row["node"] == 1] == [*without_lost_decisions_of(1, nodes)]
        found += [trace_of(events, f"{seed}-{name}") for name, events in partition_traces(order).items()]
    done = check_traces(found)
    assert (done.outcome.verdict, len(done.verdicts)) == (Verdict.HOLDS, len(found))
    assert [(verdict.name, verdict.place, verdict.event) for verdict in done.rejected] == []


def without_lost_decisions_of(node: int, nodes: list[list[Row]]) -> list[Row]:
    kept = [*without_lost_decisions([row for rows in nodes for row in rows])]
    return [row for row in kept if row["node"] == node]


def test_an_incarnation_that_was_never_registered_is_no_crash_of_the_one_before() -> None:
    """Node 1 is shut down, and then stopped again before it has registered: its next registration counts as clean."""
    rows = as_read(rows_of(small(411))[1])
    starts = sum(begins_incarnation(row) and row["node"] == 1 for row in rows)
    registrations = sum(row["action"] == "RegisterBroker" and row["args"]["broker"] == 1 for row in rows)
    assert starts > registrations
    events = partition_traces(rows)["orders0-0"]
    ends = [event["action"] for event in events if event["action"] in ("Crash", "ShutDown") and event["node"] == 1]
    assert ends[0] == "ShutDown"


# ---- what a kill hid

KILLED_AFTER_AN_APPEND = (31, 76, 97, 120, 172)
"""Seeds of runs in which a node was killed right after an append, and found its records again."""


def with_appends_hidden(rows: list[Row]) -> tuple[list[Row], int]:
    """One node's rows without the last row before each kill if that was an append whose records were found again; and the
    number of removed rows."""
    ends = [place for place, row in enumerate(rows) if place and begins_incarnation(row)]
    hidden = {end - 1 for end in ends if is_found_again(rows[end - 1], rows[end:])}
    return [row for place, row in enumerate(rows) if place not in hidden], len(hidden)


def is_found_again(append: Row, later: list[Row]) -> bool:
    if append["action"] not in ("Produce", "AppendFetched"):
        return False
    found = next((row for row in later if row.get("partition") == append["partition"]), append)
    return found["action"] == "Restart" and found["leo"] == append["leo"]


@pytest.mark.sampled(days=5)
@pytest.mark.java
def test_an_append_that_a_kill_hid_is_no_violation() -> None:
    gone: list[Trace] = []
    whole: list[Trace] = []
    for seed in KILLED_AFTER_AN_APPEND:
        nodes, hidden = zip(*map(with_appends_hidden, split(as_read(rows_of(small(seed))[1]), 10)), strict=True)
        assert any(hidden)
        gone += traces_merged(seed, nodes)
        whole += traces_merged(seed, [with_killed_steps(node) for node in nodes])
    assert len(check_traces(gone, look_ups=0).rejected) == len(KILLED_AFTER_AN_APPEND)
    done = check_traces(whole)
    assert (done.outcome.verdict, len(done.verdicts)) == (Verdict.HOLDS, len(whole))
    assert [(verdict.name, verdict.place, verdict.event) for verdict in done.rejected] == []


def traces_merged(seed: int, nodes: Sequence[Sequence[Row]]) -> list[Trace]:
    return [trace_of(events, f"{seed}-{name}") for name, events in partition_traces(merged(nodes)).items()]


def of_log(action: str, partition: str, end: int, **arguments: int) -> dict[str, Any]:
    return {
        "node": 1,
        "action": action,
        "partition": partition,
        "args": arguments,
        "leo": end,
        "hw": 0,
        "leaderEpoch": 0,
    }


def test_only_one_longer_log_is_explained_by_a_kill() -> None:
    start = {"node": 1, "action": "Restart", "partition": METADATA, "args": {}, "leo": 0}
    before = [
        start,
        of_log("BecomeLeader", "a-0", 4, broker=1),
        of_log("AppendFetched", "b-0", 4, leader=2, follower=1),
    ]

    def hidden(*after: dict[str, Any], ended: Sequence[dict[str, Any]] = ()) -> list[tuple[str, int]]:
        rows = [*before, *ended, start, *after]
        known = [id(row) for row in rows]
        return [(row["action"], row["leo"]) for row in with_killed_steps(rows) if id(row) not in known]

    longer = of_log("Restart", "a-0", 6), of_log("Restart", "b-0", 5)
    same = of_log("Restart", "a-0", 4), of_log("Restart", "b-0", 4)
    assert hidden(longer[0], same[1]) == [("Produce", 6)]
    assert hidden(same[0], longer[1]) == [("AppendFetched", 5)]
    assert hidden(*longer) == [] and hidden(*same) == [] and hidden(of_log("Restart", "a-0", 3)) == []
    assert hidden(longer[0], ended=[of_log("ShutDown", "a-0", 4, broker=1)]) == []


def test_what_was_caused_waits_for_its_cause() -> None:
    first = {"leader": 1, "leaderEpoch": 0, "partitionEpoch": 0, "replicas": [1, 2], "isr": [1, 2], "elr": []}
    begin = {"minIsr": 1, "fenced": []}
    state = {"partition": "t-0", "leaderEpoch": 0, "partitionEpoch": 0}

    def reported(node: int, action: str, leo: int, hw: int = 0, **arguments: object) -> Row:
        return {"node": node, "action": action, "args": arguments, "leo": leo, "hw": hw} | state

    leader = [
        {"node": 1, "action": "Begin", "controllerEpoch": 1, "offset": 5, "partitions": {"t-0": first | begin}},
        reported(1, "BecomeLeader", 0, partitionEpoch=0) | {"isr": [1, 2]},
        reported(1, "Produce", 3) | {"isr": [1, 2]},
        reported(1, "AnswerFetch", 3, follower=2, end=3) | {"isr": [1, 2]},
    ]
    follower = [
        reported(2, "BecomeFollower", 0, partitionEpoch=0),
        reported(2, "AppendFetched", 3, end=3),
    ]
    order = [(row["node"], row["action"]) for row in merged([follower, leader])]
    assert order.index((1, "Begin")) < order.index((2, "BecomeFollower"))
    assert order.index((1, "Produce")) < order.index((2, "AppendFetched")) < order.index((1, "AnswerFetch"))


def test_what_a_deposed_controller_decided_alone_did_not_happen() -> None:
    def decision(epoch: int, end: int) -> Row:
        return {"node": epoch, "action": "FenceBroker", "controllerEpoch": epoch, "offset": end, "partitions": {}}

    def leadership(epoch: int, start: int, last: int) -> Row:
        named = {"action": "BecomeLeader", "partition": METADATA}
        return named | {"node": epoch, "epoch": epoch, "leo": start, "lastEpoch": last}

    rows = [
        leadership(1, 0, 0),
        decision(1, 5),
        decision(1, 8),
        leadership(2, 6, 1),
        decision(2, 9),
        leadership(3, 9, 2),
    ]
    kept = [(row["controllerEpoch"], row["offset"]) for row in without_lost_decisions(rows) if "offset" in row]
    assert kept == [(1, 5), (2, 9)]
    longer_but_older = [leadership(4, 4, 3), decision(4, 7), leadership(5, 9, 3)]
    assert "offset" not in [*without_lost_decisions(longer_but_older)][1]


# ---- the command


@pytest.mark.sampled(days=5)
@pytest.mark.java
def test_a_folder_of_clusters_is_checked_by_the_command(tmp_path: Path) -> None:
    _, rows = rows_of(small(1))
    write_rows(rows, tmp_path / "reported")
    for node in (1, 2, 3):
        write_rows((row for row in split(rows, 1)[node - 1]), tmp_path / "each" / f"node-{node}")
    done = CliRunner().invoke(app, ["spec", "trace", str(tmp_path), "--json"])
    summary = json.loads(done.stdout.splitlines()[-1])
    expected = 2 * len(cluster_traces(rows))
    assert (done.exit_code, summary["verdict"], summary["accepted"]) == (0, "valid", expected), done.output

    spoiled = as_read(rows)
    next(row for row in spoiled if row["action"] == "Produce")["leo"] += 1
    write_rows(spoiled, tmp_path / "spoiled")
    found = CliRunner().invoke(app, ["spec", "trace", str(tmp_path / "spoiled"), "--json"])
    assert (found.exit_code, json.loads(found.stdout.splitlines()[-1])["rejected"]) == (1, 1)
    assert json.loads(found.stdout.splitlines()[0])["event"]["action"] == "Produce"
