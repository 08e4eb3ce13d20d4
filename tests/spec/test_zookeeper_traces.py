"""Traces of clusters that ZooKeeper coordinates: sound traces are accepted, and forged ones rejected at the forged row."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import run_schedule
from spec.checker import Verdict
from spec.trace import TraceError, check_traces, cluster_traces, read_traces, trace_of
from spec.zookeeper_trace import ZooKeeperTrace, in_order_of_zookeeper, zookeeper_traces

Row = dict[str, Any]

ROWS: list[Row] = [json.loads(line) for line in (Path(__file__).parent / "zookeeper.jsonl").read_text().splitlines()]
"""A session expires while its broker is controller and leader; another follows, and the ISR is whole again in the end."""


def at(action: str, node: int, number: int = 0) -> int:
    """The index of the first, second, … row of an action and a node."""
    return [place for place, row in enumerate(ROWS) if (row["action"], row["node"] if place else 0) == (action, node)][
        number
    ]


def row_of(action: str, node: int, **arguments: Any) -> Row:
    return {"action": action, "node": node, "partition": "t-0", "args": arguments}


def state(leader: int, leader_epoch: int, isr: list[int], version: int) -> Row:
    return {"leader": leader, "leaderEpoch": leader_epoch, "isr": isr, "version": version}


DEPOSED_DECIDES = row_of("ElectLeader", 1, controllerEpoch=1, leader=3, state=state(3, 1, [3], 1))
OLD_CONTROLLER = row_of("TakeStopReplica", 2, broker=2, controllerEpoch=1, brokerEpoch=31)
OLD_REGISTRATION = row_of("TakeLeaderAndIsr", 1, broker=1, controllerEpoch=2, brokerEpoch=25)
SAME_EPOCH = row_of("ElectController", 2, controllerEpoch=1)
OLD_VERSION = row_of("AlterPartition", 2, controllerEpoch=2, leader=2, state=state(2, 1, [1, 2, 3], 1))
UNWRITTEN = row_of("BecomeLeader", 3, leaderEpoch=7, partitionEpoch=7)
NO_REASON = row_of(
    "RefuseRequest", 3, controllerEpoch=2, brokerEpoch=32, request="LeaderAndIsr", error="STALE_CONTROLLER_EPOCH"
)
IN_SYNC = row_of("GiveUpReplica", 3)
UNASKED = row_of("AlterPartition", 2, controllerEpoch=2, leader=2, state=state(2, 1, [2], 2))
NOT_IN_ISR = row_of("ElectLeader", 2, controllerEpoch=2, leader=1, state=state(1, 2, [1], 2))
SAME_LEADER_EPOCH = row_of("ElectLeader", 2, controllerEpoch=2, leader=3, state=state(3, 1, [3], 2))
FORMER_SESSION = row_of("ElectController", 1, controllerEpoch=2)


def instead(row: Row, action: str, node: int, number: int = 0) -> list[Row]:
    place = at(action, node, number)
    return [*ROWS[:place], row, *ROWS[place + 1 :]]


def behind(row: Row, action: str, node: int, number: int = 0) -> list[Row]:
    place = at(action, node, number)
    return [*ROWS[: place + 1], row, *ROWS[place + 1 :]]


FORGED: dict[str, tuple[Row, list[Row]]] = {
    "a deposed controller writes": (DEPOSED_DECIDES, behind(DEPOSED_DECIDES, "OnControllerFailover", 2)),
    "a broker takes what a deposed controller sent": (OLD_CONTROLLER, behind(OLD_CONTROLLER, "BecomeLeader", 2)),
    "a broker takes what was for its earlier registration": (
        OLD_REGISTRATION,
        instead(OLD_REGISTRATION, "TakeLeaderAndIsr", 1, 1),
    ),
    "two controllers in one epoch": (SAME_EPOCH, instead(SAME_EPOCH, "ElectController", 2)),
    "an expired session makes the node": (FORMER_SESSION, instead(FORMER_SESSION, "ElectController", 2)),
    "a decision over an older version": (OLD_VERSION, instead(OLD_VERSION, "AlterPartition", 2)),
    "a leader by no state": (UNWRITTEN, behind(UNWRITTEN, "BecomeLeader", 2)),
    "a refusal without a reason": (NO_REASON, behind(NO_REASON, "BecomeLeader", 2)),
    "a member of the ISR is deleted": (IN_SYNC, behind(IN_SYNC, "BecomeLeader", 2)),
    "an ISR that no leader asked for": (UNASKED, behind(UNASKED, "BecomeLeader", 2)),
    "a leader outside the ISR": (NOT_IN_ISR, behind(NOT_IN_ISR, "BecomeLeader", 2)),
    "two leaders in one leader epoch": (SAME_LEADER_EPOCH, behind(SAME_LEADER_EPOCH, "BecomeLeader", 2)),
}


@pytest.mark.java
def test_a_trace_is_accepted_and_a_forged_one_rejected_at_its_row() -> None:
    traces = [trace_of(ROWS, "good"), *(trace_of(rows, name) for name, (_, rows) in FORGED.items())]
    done = check_traces(traces, look_ups=len(FORGED))
    assert [verdict.name for verdict in done.verdicts if verdict.accepted] == ["good"]
    found = {verdict.name: verdict.event for verdict in done.rejected}
    assert found == {name: row for name, (row, _) in FORGED.items()}


def test_rows_of_nodes_become_a_trace_for_each_partition(tmp_path: Path) -> None:
    others = [{**row, "partition": "t-1"} for row in ROWS if row.get("action") == "CreateTopic"]
    created = at("CreateTopic", 1)
    rows = [*ROWS[1 : created + 1], *others, *ROWS[created + 1 :]]
    (tmp_path / "cluster.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    first, second = read_traces([tmp_path])
    assert (first.name, second.name) == (f"{tmp_path}/t-0 and ZooKeeper", f"{tmp_path}/t-1 and ZooKeeper")
    assert [event for event in first.events if event.get("partition") == "t-1"] == []
    assert len(first.events) == len(trace_of(ROWS, "whole").events)


def test_a_topic_that_is_made_again_has_a_trace_of_its_own() -> None:
    gone = row_of("CompleteTopicDeletion", 1)
    rows = [*ROWS[1:], gone, ROWS[at("CreateTopic", 1)]]
    first, second = cluster_traces([*rows, gone]).values()
    assert [row["action"] for row in first].count("CreateTopic") == 1
    assert [row["action"] for row in second].count("CreateTopic") == 1
    assert second[-1] == gone


def test_rows_are_put_into_the_order_of_their_transactions() -> None:
    late = [
        {"action": "SessionExpired", "node": 0, "args": {"broker": 1}, "zxid": 9},
        {"action": "AlterPartition", "node": 1, "args": {}, "zxid": 8},
        {"action": "TakeLeaderAndIsr", "node": 2, "args": {}},
        {"action": "RegisterBroker", "node": 3, "args": {"brokerEpoch": 7}},
    ]
    found = [(row["action"], row["node"]) for row in in_order_of_zookeeper(late)]
    assert found == [
        ("RegisterBroker", 3),
        ("AlterPartition", 1),
        ("SessionExpired", 0),
        ("TakeLeaderAndIsr", 2),
        ("LearnBrokerEpoch", 3),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"action": "TakeFetch", "node": 1}, "no action of a cluster with ZooKeeper is called 'TakeFetch'"),
        ({"action": "ElectController", "node": 1, "args": {}}, "lacks controllerEpoch"),
        (row_of("ElectLeader", 1, controllerEpoch=1, state={"leader": 1}), "lacks leaderEpoch, isr, version"),
        ({"action": "ResignController", "node": 9}, "no broker is called 9"),
        ({"action": "ResignController"}, "lacks node"),
    ],
)
def test_a_row_that_says_too_little_is_named(row: Row, message: str) -> None:
    with pytest.raises(TraceError, match=f"x:2: .*{message}"):
        trace_of([ROWS[0], row], "x")


# ---- drawn runs

SEEDS = [seed for seed in range(120) if draw(seed, None, 3, "records", "zookeeper").is_traceable]
SAMPLE = [*SEEDS[:8], 27]
"""In seed 27 a replica is removed while no broker leads."""
"""What CI checks of them."""


def drawn_traces(seeds: Iterable[int]) -> list[ZooKeeperTrace]:
    """The traces of all partitions of three simulated brokers under drawn faults."""
    found: list[ZooKeeperTrace] = []
    for seed in seeds:
        rows: list[Row] = []
        run_schedule(draw(seed, None, 3, "records", "zookeeper"), by_history=True, rows=rows)
        as_read = [json.loads(json.dumps(row)) for row in rows]
        traces = {name: trace_of(events, f"{seed}/{name}") for name, events in zookeeper_traces(as_read).items()}
        found += [trace for trace in traces.values() if isinstance(trace, ZooKeeperTrace)]
    return found


def accepts(traces: list[ZooKeeperTrace]) -> None:
    done = check_traces(traces)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert [(verdict.name, verdict.place, verdict.event) for verdict in done.rejected] == []
    steps = {event["action"] for trace in traces for event in trace.events}
    assert {"RemoveReplicaFromIsr", "ElectLeader", "AlterPartition", "ExpandIsr", "SessionExpired"} <= steps


@pytest.mark.sampled(days=3)
@pytest.mark.java
def test_traces_of_drawn_runs_are_accepted() -> None:
    accepts(drawn_traces(SAMPLE))


WRITTEN = [
    seed
    for seed in SEEDS
    if any(fault.kind == "zookeeper-reassign" for fault in draw(seed, None, 3, "records", "zookeeper").faults)
]


@pytest.mark.sampled(days=3)
@pytest.mark.java
def test_traces_with_reassignments_that_tools_wrote_are_accepted() -> None:
    traces = drawn_traces(WRITTEN[:4])
    accepts(traces)
    assert {"AddReplica", "RemoveReplica"} <= {event["action"] for trace in traces for event in trace.events}


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_traces_of_a_hundred_drawn_runs_are_accepted() -> None:
    accepts(drawn_traces(SEEDS))


def test_a_write_whose_answer_was_never_received_is_a_decision_where_later_rows_know_of_it() -> None:
    created, changed = row_of("CreateTopic", 1, controllerEpoch=1, state=state(1, 0, [1, 2], 0)), state(1, 1, [1], 1)
    asked = row_of("WriteState", 1, decision="RemoveReplicaFromIsr", broker=2, controllerEpoch=1, state=changed)
    known = row_of("BecomeLeader", 1, leaderEpoch=1, partitionEpoch=1)
    another = row_of("ElectLeader", 2, controllerEpoch=2, state=state(2, 1, [2], 1))
    for rows, written in (([asked, known], True), ([asked], False), ([asked, another, known], False)):
        events = zookeeper_traces([*ROWS[1 : at("CreateTopic", 1)], created, *rows])["t-0 and ZooKeeper"]
        actions = [row["action"] for row in events]
        assert ("RemoveReplicaFromIsr" in actions, "WriteState" in actions) == (written, False)


def test_a_decision_stands_where_it_was_asked_for_however_late_its_answer_comes() -> None:
    created, changed = row_of("CreateTopic", 1, controllerEpoch=1, state=state(1, 0, [1, 2], 0)), state(1, 1, [1], 1)
    decided = row_of("RemoveReplicaFromIsr", 1, broker=2, controllerEpoch=1, state=changed)
    asked = {**decided, "action": "WriteState", "args": {**decided["args"], "decision": "RemoveReplicaFromIsr"}}
    another = row_of("ElectLeader", 2, controllerEpoch=2, state=state(2, 2, [2], 2))
    rows = zookeeper_traces([*ROWS[1 : at("CreateTopic", 1)], created, asked, another, decided])["t-0 and ZooKeeper"]
    assert [row["action"] for row in rows][-3:] == ["CreateTopic", "RemoveReplicaFromIsr", "ElectLeader"]


def test_a_controller_that_is_elected_again_in_its_session_was_deposed() -> None:
    """The trace gets one DeposeController before the second election, with or without a row of it."""
    elected = ROWS[: at("ElectController", 1) + 1]
    again = row_of("ElectController", 1, controllerEpoch=2)
    assert [each["action"] for each in trace_of([*elected, again], "x").events][-2:] == [
        "DeposeController",
        "ElectController",
    ]
    said = {"action": "DeposeController", "node": 0, "args": {}}
    assert [each["action"] for each in trace_of([*elected, said, said, again], "x").events][-2:] == [
        "DeposeController",
        "ElectController",
    ]
    another = row_of("ElectController", 2, controllerEpoch=2)
    assert "DeposeController" not in [each["action"] for each in trace_of([*elected, another], "x").events]


@pytest.mark.java
@pytest.mark.parametrize("later, is_right", [([], False), ([99], True)], ids=["session goes on", "session ended"])
def test_an_epoch_may_be_left_out_whose_controller_lost_its_session_before_it_knew(
    later: list[int], is_right: bool
) -> None:
    deposed = {"action": "DeposeController", "node": 0, "args": {}}
    elected = row_of("ElectController", 3, controllerEpoch=3)
    rows = [*ROWS[: at("ElectController", 1) + 1], deposed, row_of("ResignController", 1), elected]
    rows += [row_of("RegisterBroker", 2, brokerEpoch=epoch) for epoch in later]
    trace = trace_of(rows, "x")
    assert isinstance(trace, ZooKeeperTrace)
    silent = {"node": 2, "action": "ElectController", "args": {"controller": 2, "controllerEpoch": 2}}
    assert (silent in trace.events) is is_right
    done = check_traces([trace])
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert [verdict.event and verdict.event["action"] for verdict in done.rejected] == (
        [] if is_right else ["ElectController"]
    )


@pytest.mark.parametrize("later, is_put_in", [([], False), ([99], True)], ids=["no other comes", "another comes"])
def test_a_registration_of_which_its_broker_never_learned_is_put_in(later: list[int], is_put_in: bool) -> None:
    named = row_of("TakeUpdateMetadata", 2, controller=1, controllerEpoch=1, brokerEpoch=90)
    rows = [*ROWS, named, *(row_of("RegisterBroker", 2, brokerEpoch=epoch) for epoch in later)]
    events = [
        (event["action"], event["args"]["brokerEpoch"])
        for event in trace_of(rows, "x").events
        if event["args"].get("brokerEpoch") == 90
    ]
    registered = [("RegisterBroker", 90)] if is_put_in else []
    assert events == [*registered, ("TakeUpdateMetadata", 90)]


@pytest.mark.parametrize("later, is_put_in", [([], False), ([99], True)], ids=["it goes on", "it registers again"])
def test_a_session_that_a_controller_does_not_find_has_ended(later: list[int], is_put_in: bool) -> None:
    elected = ROWS[: at("ElectController", 1) + 1]
    found = row_of("OnControllerFailover", 1, controllerEpoch=1, brokers=[1, 2])
    rows = [*elected, found, *(row_of("RegisterBroker", 3, brokerEpoch=epoch) for epoch in later)]
    events = trace_of(rows, "x").events
    before = events[events.index(found) - 1]
    ended = {"node": 0, "action": "SessionExpired", "args": {"broker": 3}}
    assert (before == ended) is is_put_in
