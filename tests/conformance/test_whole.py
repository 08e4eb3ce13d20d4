"""A cluster that lacks a node for good is started again: else all that needs its nodes waits for each of them, and is not judged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.broker import Broker
from conformance.cluster import JudgedCluster
from conformance.results import Run, Verdict
from conformance.runner import Plan, run
from conformance.subject import Subject
from conformance.wire import Failed
from tests.conformance.mortal import Mortal, asks, entry, impatient, verdicts

__all__ = ["impatient"]


class Pair(Mortal):
    """Two nodes, of which the second may end by itself: the first answers all the same."""

    def __init__(self) -> None:
        super().__init__(restartable=True)
        host, _, port = self.bootstrap.partition(":")
        self.nodes = [SimpleNamespace(id=id, host=host, port=int(port)) for id in (1, 2)]
        self.second_ended = False

    def running(self, node: int) -> bool:
        return not (self.dead or (node == 2 and self.second_ended))


def judged(folder: Path, starts: list[Pair], *tests: Any, spec: str = "reference:2") -> Run:
    @contextmanager
    def open_target(spec: str, **_: Any) -> Iterator[Pair]:
        starts.append(Pair())
        yield starts[-1]

    entries = [entry(f"PRD-0{n}", test, exclusive=True) for n, test in enumerate(tests, 1)]
    return run(Plan(spec, entries, folder, open_target=open_target))


def of_two(broker: Broker) -> None:
    broker.subject.nodes = 2


def test_a_node_that_ended_by_itself_is_brought_back_before_the_next_requirement(tmp_path: Path) -> None:
    starts: list[Pair] = []

    def ends_the_second(broker: Broker) -> None:
        broker.expect_served()
        of_two(broker)
        broker.target.second_ended = True
        broker.fail("node 2 has ended by itself")

    def needs_both(broker: Broker) -> None:
        broker.expect_served()
        broker.expect(broker.target.running(2), "the second node runs")

    report = judged(tmp_path, starts, ends_the_second, needs_both)
    assert verdicts(report) == {"PRD-01": Verdict.FAIL, "PRD-02": Verdict.PASS}
    assert len(starts) == 2
    assert "node 2 ended with exit status 134" in report.target.not_revived[0]


def test_what_was_not_judged_for_a_missing_node_is_judged_on_a_new_start(tmp_path: Path) -> None:
    """The second node runs, and never registers."""
    starts: list[Pair] = []

    def waits(broker: Broker) -> None:
        broker.expect_served()
        if len(starts) == 1:
            broker.subject.incomplete = "Metadata reports the brokers [1] alone"
            broker.skip("needs 2 brokers; Metadata reports the brokers [1] alone")

    report = judged(tmp_path, starts, waits, asks)
    assert verdicts(report) == {"PRD-01": Verdict.PASS, "PRD-02": Verdict.PASS}
    assert len(starts) == 2


def test_a_running_cluster_of_others_is_left_alone(tmp_path: Path) -> None:
    starts: list[Pair] = []

    def waits(broker: Broker) -> None:
        broker.expect_served()
        broker.subject.incomplete = "Metadata reports the brokers [1] alone"
        broker.skip("needs 2 brokers")

    report = judged(tmp_path, starts, waits, asks, spec="addr:pair")
    assert verdicts(report) == {"PRD-01": Verdict.NOT_JUDGED, "PRD-02": Verdict.PASS}
    assert len(starts) == 1


def test_a_node_that_has_ended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes: Any = JudgedCluster.__new__(JudgedCluster)
    target = Pair()
    target.second_ended = True
    nodes.broker = SimpleNamespace(subject=Subject([("127.0.0.1", 1)], "4.3.1", target=target))
    nodes.down, nodes.frozen = set(), set()
    monkeypatch.setattr(nodes, "try_living", lambda via: {1})
    with pytest.raises(Failed, match="node 2 has ended by itself"):
        nodes._reports(1, (1, 2))
    target.second_ended = False
    assert not nodes._reports(1, (1, 2))
