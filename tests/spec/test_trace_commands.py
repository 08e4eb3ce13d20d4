"""`tidegauge spec trace` names the event at which a trace is rejected, and the states around it, in the words of its book."""

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spec import group_trace
from spec.checker import Outcome, Verdict
from spec.commands import app
from spec.trace import TraceVerdict, Validation
from spec.trace_commands import _text

pytestmark = pytest.mark.java

Row = dict

PARTITION = {"leader": 1, "leaderEpoch": 0, "partitionEpoch": 0, "isr": [1, 2, 3], "elr": []}
BEGIN = {"action": "Begin", "brokers": [1, 2, 3], "minIsr": 2, "partition": PARTITION}
LED = {"node": 1, "action": "BecomeLeader", "args": {"broker": 1, "leaderEpoch": 0, "partitionEpoch": 0}}
PRODUCED = {"node": 1, "action": "Produce", "args": {"leader": 1, "acks": "all", "end": 3}}
ADVANCED = {"node": 1, "action": "AdvanceHighWatermark", "args": {"leader": 1, "highWatermark": 3}}
ENDED = {"action": "EndTransaction", "args": {"committed": True, "bumps": True}, "state": "PrepareCommit"}


def at(leo: int, hw: int, row: Row) -> Row:
    return row | {"leo": leo, "hw": hw, "leaderEpoch": 0}


REJECTED: dict[str, tuple[list[Row], int, set[str]]] = {
    "replication": (
        [BEGIN, at(0, 0, LED), at(3, 0, PRODUCED), at(3, 3, ADVANCED)],
        3,
        {"partition", "metadata", "log", "highWatermark", "progress", "pending", "registry", "status"},
    ),
    "groups": (
        [
            {"action": "Begin", "group": "readers"},
            {"action": "JoinGroup", "args": {"member": "a", "groupEpoch": 2}},
            {"action": "JoinGroup", "args": {"member": "b", "groupEpoch": 9}},
        ],
        2,
        {"joined", "groupEpoch", "assignedEpoch", "target", "given", "revoking", "epoch"},
    ),
    "transactions": (
        [
            {"action": "Begin", "transactionalId": "payments"},
            ENDED | {"producerEpoch": 0, "partitions": ["t-0"]},
        ],
        1,
        {"coordinator", "log"},
    ),
}
"""A book's trace, the event at which it is rejected, and the variables shown for the state before it."""


def write(rows: list[Row], file: Path) -> Path:
    file.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return file


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["spec", "trace", *map(str, arguments)])
    return done.exit_code, done.stdout


NAMES = {"replication": {}, "groups": {"m1": "a", "m2": "b"}, "transactions": {"p1": "t-0"}}


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("book", REJECTED)
def test_the_event_and_the_state_before_it_are_printed(book: str, tmp_path: Path) -> None:
    rows, place, names = REJECTED[book]
    code, reported = run(write(rows, tmp_path / "one.jsonl"), "--json")
    row, summary = (json.loads(line) for line in reported.splitlines())
    assert (code, summary["rejected"], summary["not_looked_up"]) == (1, 1, 0)
    assert (row["place"], row["event"], row["after"]) == (place, rows[place], {})
    assert row["names"] == NAMES[book]
    assert {*row["before"]} >= names and not {"trace", "at", "step", "faults"} & {*row["before"]}


def test_the_text_names_them_too(tmp_path: Path) -> None:
    rows, place, names = REJECTED["groups"]
    code, reported = run(write(rows, tmp_path / "one.jsonl"))
    assert code == 1
    assert f"rejected at event {place}: {json.dumps(rows[place])}" in reported
    assert [name for name in names if f"  before it, {name}: " not in reported] == []
    assert "  m1 is a\n  m2 is b\n" in reported


def test_a_beginning_that_breaks_a_promise_is_called_so(tmp_path: Path) -> None:
    """A fenced broker is in the ISR at the beginning, before any event."""
    file = write([BEGIN | {"fenced": [3]}, at(0, 0, LED)], tmp_path / "one.jsonl")
    row = json.loads(run(file, "--json")[1].splitlines()[0])
    assert (row["place"], row["event"], row["before"]) == (0, None, {})
    assert row["reason"] == "the trace begins in a state that breaks KeepsPromises"
    assert row["after"]["registry"]["n3"]["fenced"]
    reported = run(file)[1]
    assert "rejected at its beginning" in reported and "in it, partition: " in reported


def test_what_was_not_looked_up_says_so_and_how_to_do_it(tmp_path: Path) -> None:
    for number in range(3):
        write(REJECTED["transactions"][0], tmp_path / f"{number}.jsonl")
    code, reported = run(tmp_path, "--look-ups", 1)
    assert code == 1
    assert (reported.count("rejected at event 1: "), reported.count("rejected, not looked up")) == (1, 2)
    program, spec, trace, *arguments = shlex.split(reported.rpartition("look_up ")[2])
    assert (program, spec, trace) == ("tidegauge", "spec", "trace")
    *rows, summary = (json.loads(line) for line in run(*arguments, "--json")[1].splitlines())
    assert [row["looked_up"] for row in rows] == [True] * 3
    assert (summary["not_looked_up"], summary.get("look_up")) == (0, None)


def test_a_state_that_breaks_a_promise_is_printed_by_its_changes() -> None:
    event = {"action": "Produce"}
    verdict = TraceVerdict("one", False, 4, True, event, 2, "why", {"log": 1, "acks": 2}, {"log": 3, "acks": 2})
    assert _text(verdict).splitlines()[2:] == [
        "  before it, log: 1",
        "  before it, acks: 2",
        "  with it, log: 1 becomes 3",
    ]


def test_a_members_place_is_named_also_where_it_leaves() -> None:
    """A free place is taken by the next member."""
    came = [{"action": "JoinGroup", "args": {"member": member, "groupEpoch": 2}} for member in "abc"]
    left = {"action": "LeaveGroup", "args": {"member": "a", "groupEpoch": 4}}
    trace = group_trace.trace_of([{"action": "Begin", "group": "readers"}, *came[:2], left, came[2]], "one")
    assert group_trace.short_names(trace, 3) == {"m1": "a", "m2": "b"}
    assert group_trace.short_names(trace, 4) == {"m1": "c", "m2": "b"}


def test_the_rate_counts_the_runs_that_judge() -> None:
    verdicts = (TraceVerdict("one", True, 60), TraceVerdict("other", False, 40))
    done = Validation(verdicts, Outcome(Verdict.HOLDS), 9.0, judging_cpu_seconds=2.0, look_up_cpu_seconds=5.0)
    assert done.events_per_cpu_second == 50
