"""bench failover: what it makes of its clients' acknowledgements, and one short run with every client on real processes."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from linearizability.bench import failover, streams
from linearizability.bench.commands import app
from linearizability.bench.failover import Plan, Side, compare, row, show, unsound
from linearizability.bench.producers import Library, send_until
from linearizability.bench.streams import CLIENTS, JAVA, Outcomes, Stream
from linearizability.targets import Node, Target, TargetError
from linearizability.workload.cluster import ClusterView, PartitionView


def outcomes_at(times: list[float]) -> Outcomes:
    outcomes = Outcomes()
    for number, at in enumerate(times):
        outcomes.record({"name": "producer_send_success", "value": str(number)}, at)
    return outcomes


# ---- what became of the records


def test_the_longest_gap_is_counted_from_the_fault_and_may_straddle_it() -> None:
    outcomes = outcomes_at([0.0, 5.0, 5.1, 8.1, 8.2, 8.5])
    assert outcomes.longest_gap_s(since=5.05) == pytest.approx(3.0)
    assert outcomes.longest_gap_s(since=6.0) == pytest.approx(3.0), "the fault fell while the records flowed"
    assert outcomes.longest_gap_s(since=8.15) == pytest.approx(0.3)
    assert outcomes.longest_gap_s(since=-1.0) == pytest.approx(5.0)


def test_a_record_is_acknowledged_after_a_moment_or_not() -> None:
    assert not Outcomes().acknowledged_since(0.0)
    assert outcomes_at([1.0, 2.0]).acknowledged_since(1.5)
    assert not outcomes_at([1.0, 2.0]).acknowledged_since(2.0)


def test_the_lines_of_the_verifiable_producer_are_understood() -> None:
    outcomes = Outcomes()
    for line in (
        '{"timestamp":1795385910136,"name":"startup_complete"}',
        '{"timestamp":1,"name":"producer_send_success","key":"0","value":"0","offset":0,"topic":"x","partition":0}',
        '{"timestamp":2,"name":"producer_send_error","topic":"x","key":"0","value":"1","exception":"class E","message":"late"}',
        '{"timestamp":3,"name":"producer_send_success","key":"0","value":"2","offset":1,"topic":"x","partition":0}',
        '{"timestamp":4,"name":"shutdown_complete"}',
        '{"timestamp":5,"name":"tool_data","sent":4,"acked":2,"target_throughput":100,"avg_throughput":99.8}',
    ):
        outcomes.record(json.loads(line), 0.0)
    assert (outcomes.acknowledged, outcomes.sent, outcomes.complaint) == ([0, 2], 4, "class E late")


@pytest.mark.parametrize(
    ("stored", "lost", "doubled"),
    [([0, 1, 2], 0, 0), ([0, 1, 2, 3], 0, 0), ([0, 2], 1, 0), ([0, 1, 1, 2, 2, 2], 0, 2), ([3, 3], 3, 1)],
)
def test_the_lost_and_the_doubled_are_counted(stored: list[int], lost: int, doubled: int) -> None:
    outcomes = outcomes_at([0.1, 0.2, 0.3])
    outcomes.record({"name": "tool_data", "sent": 4}, 0.4)
    assert outcomes.count(stored) == {"acknowledged": 3, "not_acknowledged": 1, "lost": lost, "doubled": doubled}


# ---- a row for each fault and client


def test_a_row_has_medians_and_the_ratios_of_the_subject_to_the_other() -> None:
    def rounds(*values: tuple[float, float]) -> list[failover.Round]:
        return [
            {
                "java": {"new_leader_s": leader, "longest_gap_s": gap},
                "aiokafka": {"new_leader_s": 9, "longest_gap_s": 9},
            }
            for leader, gap in values
        ]

    measured = {"subject": rounds((1, 2), (3, 4), (2, 9)), "against": rounds((4, 8), (4, 16), (5, 1))}
    found = row("kill", "java", measured)
    assert (found["fault"], found["client"]) == ("kill", "java")
    assert found["medians"] == {
        "subject": {"new_leader_s": 2, "longest_gap_s": 4},
        "against": {"new_leader_s": 4, "longest_gap_s": 8},
    }
    assert (found["new_leader_s_ratio"], found["longest_gap_s_ratio"]) == (0.5, 0.5)
    assert found["rounds"]["against"][1] == {"new_leader_s": 4, "longest_gap_s": 16}


def table(**changes: int) -> dict[str, Any]:
    counts = {"acknowledged": 1234, "not_acknowledged": 0, "lost": 0, "doubled": 0}
    times = {"new_leader_s": 1.25, "longest_gap_s": 2.5}
    measured: dict[str, list[failover.Round]] = {"subject": [{"java": times}], "against": [{"java": times}]}
    return {
        "subject": "reference:3",
        "against": "kafka:4.3.1:3",
        "rows": [row("freeze", "java", measured)],
        "records": {"subject": {"java": counts}, "against": {"java": counts | changes}},
    }


@pytest.mark.parametrize(("changes", "wrong"), [({}, False), ({"lost": 1}, True), ({"doubled": 1}, True)])
def test_a_lost_or_a_doubled_record_is_wrong(changes: dict[str, int], wrong: bool) -> None:
    assert unsound(table(**changes)) is wrong


def test_a_record_that_was_not_acknowledged_may_be_missing() -> None:
    assert not unsound(table(not_acknowledged=7))


def test_the_table_on_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    show(table(lost=5))
    shown = capsys.readouterr().out
    times, lost = (
        next(line for line in shown.splitlines() if start in line) for start in ("freeze", "kafka:4.3.1:3 │")
    )
    assert [cell.strip() for cell in times.split("│")][1:9] == [
        *("freeze", "java", "1.25", "1.25", "1.00", "2.50", "2.50", "1.00")
    ]
    assert [cell.strip() for cell in lost.split("│")][1:7] == ["kafka:4.3.1:3", "java", "1,234", "0", "5", "0"]


# ---- one leader of all partitions


class Apart(Target):
    """A cluster of which only the nodes are asked for."""

    spec = "apart"

    @property
    def nodes(self) -> list[Node]:
        return [Node(number, "127.0.0.1", number) for number in (1, 2, 3)]

    def open(self) -> None: ...

    def close(self) -> None: ...


def view(*leaders: int, in_sync: tuple[int, ...] = (1, 2, 3)) -> ClusterView:
    return ClusterView(
        partitions={number: PartitionView(leader, 1, (1, 2, 3), in_sync) for number, leader in enumerate(leaders)}
    )


def side_of(count: int, tmp_path: Path) -> Side:
    return Side(Apart(), [Stream("aiokafka", "", "t", number, tmp_path) for number in range(count)])


def test_preferred_leaders_are_elected_where_partitions_have_several(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = iter([view(2, 2, in_sync=(2, 3)), view(2, 1), view(1, 1)])
    asked: list[int] = []
    monkeypatch.setattr(failover, "look", lambda nodes, topic: next(seen))
    monkeypatch.setattr(failover, "elect_preferred", lambda nodes, topic, partitions: asked.append(partitions))
    assert side_of(2, tmp_path).await_one_leader() == 1
    assert asked == [2], "asked when all replicas were in sync, and not before"


def test_every_partition_must_have_another_leader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = iter([view(1, 1), view(-1, 2), view(3, 2)])
    asked: list[list[int]] = []

    def look(nodes: list[Node], topic: str) -> ClusterView:
        asked.append([node.id for node in nodes])
        return next(seen)

    monkeypatch.setattr(failover, "look", look)
    elected = side_of(2, tmp_path).await_new_leaders(1)
    assert elected[1] < elected[0]
    assert asked == [[2, 3]] * 3, "the old leader is not asked"


def test_a_fault_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(target: Target, node: int) -> None:
        raise TargetError(f"node {node} has no process")

    monkeypatch.setitem(failover.FAULTS, "kill", (fail, fail))
    monkeypatch.setattr(failover, "look", lambda nodes, topic: view(1))
    monkeypatch.setattr(failover, "STEADY_S", 0.0)
    monkeypatch.setattr(failover, "NEW_LEADER_WITHIN_S", 0.0)
    monkeypatch.setattr(Stream, "await_acknowledgement", lambda stream, since: None)
    with pytest.raises(TargetError, match="node 1 has no process"):
        side_of(1, tmp_path).inject("kill")


# ---- the clients


def test_each_client_has_a_partition_of_its_own() -> None:
    for clients in (CLIENTS, (JAVA,), ("aiokafka",), (JAVA, "aiokafka"), ("aiokafka", "kafka-python", JAVA)):
        placed = streams.partitions(clients)
        assert list(placed) == list(clients)
        assert sorted(placed.values()) == [*range(len(clients))]


class Stubborn(Library):
    """Acknowledges even numbers at once, refuses the others."""

    def start(self, bootstrap: str) -> None: ...

    def send(self, value: str) -> None:
        if int(value) % 2:
            raise BufferError("full")
        self.report(value, None)

    def rest(self, seconds: float) -> None: ...

    def finish(self) -> None:
        self.report("finished", None)


def test_what_a_library_refuses_is_sent_and_not_acknowledged() -> None:
    said: list[tuple[str, object]] = []
    library = Stubborn("t", 0, lambda value, error: said.append((value, error and str(error))))
    assert send_until(library, lambda: len(said) >= 4) == 4
    assert said == [("0", None), ("1", "full"), ("2", None), ("3", "full"), ("finished", None)]


def test_a_client_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "find_spec", lambda module: None if module == "aiokafka" else object())
    streams.require(["confluent-kafka", "kafka-python"])
    with pytest.raises(TargetError, match=r"pip install aiokafka"):
        streams.require(["confluent-kafka", "aiokafka"])


@pytest.mark.parametrize("kind", ["client", "fault"])
def test_an_unknown_name_is_refused_with_those_that_there_are(kind: str) -> None:
    done = CliRunner().invoke(app, ["failover", f"--{kind}", "nonsense"])
    assert done.exit_code == 2
    known = CLIENTS if kind == "client" else failover.FAULTS
    assert all(name in done.output for name in ("nonsense", *known))


# ---- a producer in a process of its own

GOOD = """
import signal, sys, time
signalled = []
signal.signal(signal.SIGTERM, lambda *_: signalled.append(1))
print("a line of a log")
number = 0
while not signalled:
    print('{"name": "producer_send_success", "value": "%d"}' % number, flush=True)
    number += 1
    time.sleep(0.005)
print('{"name": "tool_data", "sent": %d}' % (number + 1))
"""


def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> Stream:
    monkeypatch.setattr(streams, "command", lambda *_: [sys.executable, "-c", script])
    return Stream("aiokafka", "", "t", 0, tmp_path)


def test_a_stream_is_received_and_ends_in_good_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with started(monkeypatch, tmp_path, GOOD) as stream:
        stream.await_acknowledgement(time.monotonic())
        stream.await_acknowledgement(time.monotonic())
    outcomes = stream.outcomes
    assert outcomes.acknowledged == [*range(len(outcomes.times))]
    assert outcomes.sent == len(outcomes.times) + 1
    assert outcomes.times == sorted(outcomes.times)


def test_a_producer_that_ends_by_itself_is_reported_with_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream = started(monkeypatch, tmp_path, "raise SystemExit('no such thing')")
    with pytest.raises(TargetError, match="aiokafka: its producer ended by itself: no such thing"), stream:
        stream.await_acknowledgement(time.monotonic())


def test_a_producer_that_does_not_say_how_many_it_sent_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream = started(monkeypatch, tmp_path, GOOD.replace("tool_data", "nothing"))
    with pytest.raises(TargetError, match="did not end in good order"), stream:
        stream.await_acknowledgement(time.monotonic())


# ---- on real processes


@pytest.mark.slow
@pytest.mark.java
def test_every_client_outlives_its_leader(tmp_path: Path) -> None:
    said: list[str] = []
    found = compare(Plan("reference:3", "reference:3", CLIENTS, ["kill"], 1), tmp_path, said.append)
    assert said == [f"kill: {side} reference:3, round 1 of 1" for side in failover.SIDES]
    assert [(each["fault"], each["client"]) for each in found["rows"]] == [("kill", client) for client in CLIENTS]
    for clients in found["records"].values():
        assert list(clients) == [*streams.partitions(CLIENTS)]
        assert all(counts["acknowledged"] > 0 for counts in clients.values())
    assert not unsound(found)
    show(found)
