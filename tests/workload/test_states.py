"""Nodes are asked what they know of what they lead: as their versions can report it, and never so that a sound one is found invalid."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from linearizability.history.contract import Contract
from linearizability.history.operations import poll, send
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check
from linearizability.targets import open_target
from linearizability.targets.target import Node
from linearizability.targets.wire import WireError
from linearizability.workload import states
from linearizability.workload.cluster import create_topic
from linearizability.workload.states import EARLIEST, READ_COMMITTED, Inspector, inspecting
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse

CONTRACT = Contract(replication_factor=1, min_isr=1)


@dataclass
class Leader:
    """Node 1, which leads t-0; its numbers are a test's to set."""

    list_offsets: int = 9
    metadata: int = 12
    epoch: int = 4
    leader: int = 1
    log_start: int = 0
    stable: int = 5
    high_watermark: int = 5
    silent: bool = False
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    """Timestamp, isolation and epoch of every question."""

    def version_of(self, request: type) -> int:
        return self.metadata if request is MetadataRequest else self.list_offsets

    def call(self, request: Any, version: int) -> Any:
        if self.silent:
            raise WireError("no answer in time")
        if isinstance(request, MetadataRequest):
            assert request.allow_auto_topic_creation is (version < 4)
            partition = MetadataResponse.MetadataResponsePartition(
                leader_id=self.leader, leader_epoch=self.epoch if version >= 7 else -1
            )
            return MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name="t", partitions=[partition])])
        assert isinstance(request, ListOffsetsRequest)
        (asked,) = request.topics[0].partitions
        self.asked.append((asked.timestamp, request.isolation_level, asked.current_leader_epoch))
        offset = self.high_watermark
        if asked.timestamp == EARLIEST:
            offset = self.log_start
        elif request.isolation_level == READ_COMMITTED:
            offset = self.stable
        answer = ListOffsetsResponse.ListOffsetsPartitionResponse(offset=offset)
        if asked.current_leader_epoch not in (-1, self.epoch):
            answer.error_code = ErrorCode.FENCED_LEADER_EPOCH
        return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[answer])])

    def close(self) -> None: ...


@contextmanager
def inspector(monkeypatch: pytest.MonkeyPatch, leader: Leader, folder: Path) -> Iterator[Any]:
    """Asks the leader once a call. The history has a send and a poll, so that a verdict can be valid."""
    monkeypatch.setattr(states.Wire, "connect", lambda *_, **__: leader)
    inspects = Inspector(Node(1, "127.0.0.1", 1), "t")
    with Recorder.open(folder, process=0, contract=CONTRACT) as recorder:
        recorder.ok(recorder.invoke("send", [send("t-0", 7)]), [send("t-0", 7, offset=0)])
        recorder.ok(recorder.invoke("poll", [poll()]), [poll({"t-0": [(0, 7)]})])
        yield lambda: inspects.ask(recorder)


def reported(folder: Path) -> list[dict[str, Any]]:
    lines = (json.loads(line) for path in folder.glob("history-*.jsonl") for line in path.read_text().splitlines())
    return [mop for line in lines if line.get("f") == "state" and line["type"] == "ok" for mop in line["mops"]]


def verdict(folder: Path) -> tuple[str, dict[str, int]]:
    judgement = next(iter(check([folder], engine="local")))
    return judgement.verdict, {name: n for name, n in judgement.anomalies.items() if name != "availability-gap"}


def test_a_leader_reports_all_that_it_knows(monkeypatch, tmp_path):
    leader = Leader()
    with inspector(monkeypatch, leader, tmp_path) as ask:
        ask()
        leader.stable, leader.high_watermark = 6, 8
        ask()
    view = {"op": "state", "key": "t-0", "node": 1, "log_start": 0, "epoch": 4}
    assert reported(tmp_path) == [
        view | {"last_stable_offset": 5, "high_watermark": 5},
        view | {"last_stable_offset": 6, "high_watermark": 8},
    ]
    stable, high_watermark = (-1, 1, 4), (-1, 0, 4)
    assert leader.asked.index(stable) < leader.asked.index(high_watermark)  # who grows is not taken for who is above
    assert verdict(tmp_path) == ("valid", {})


@pytest.mark.parametrize(
    ("planted", "rule"),
    [
        ({"high_watermark": 4, "stable": 4}, "high-watermark-regression"),
        ({"stable": 3}, "last-stable-offset-regression"),
        ({"log_start": 1}, "log-start-regression"),
        ({"stable": 6}, "lso-above-hw"),
    ],
)
def test_what_a_broken_broker_says_condemns_it(planted, rule, monkeypatch, tmp_path):
    leader = Leader(log_start=2)
    with inspector(monkeypatch, leader, tmp_path) as ask:
        ask()
        for name, value in planted.items():
            setattr(leader, name, value)
        ask()
    found, anomalies = verdict(tmp_path)
    assert found == "invalid" and rule in anomalies


def test_a_broker_without_epochs_is_asked_for_nothing_that_a_new_leader_may_set_back(monkeypatch, tmp_path):
    leader = Leader(list_offsets=1, metadata=2)
    with inspector(monkeypatch, leader, tmp_path) as ask:
        ask()
        leader.high_watermark = 4
        ask()
    assert reported(tmp_path) == [{"op": "state", "key": "t-0", "node": 1, "log_start": 0}] * 2
    assert {timestamp for timestamp, _, _ in leader.asked} == {EARLIEST}
    assert verdict(tmp_path) == ("valid", {})


def test_who_does_not_lead_is_not_asked_and_an_answer_of_another_epoch_is_none(monkeypatch, tmp_path):
    leader = Leader(leader=2)
    with inspector(monkeypatch, leader, tmp_path) as ask:
        ask()
        assert leader.asked == []
        leader.leader = 1
        leader.call, call = lambda request, version: after(call(request, version)), leader.call

        def after(answer: Any) -> Any:
            leader.epoch += isinstance(answer, MetadataResponse)
            return answer

        ask()
        assert leader.asked != []
    assert reported(tmp_path) == []


def test_a_node_that_may_have_been_restarted_is_believed_from_its_next_epoch_on(monkeypatch, tmp_path):
    leader = Leader()
    with inspector(monkeypatch, leader, tmp_path) as ask:
        ask()
        leader.silent = True
        ask()
        leader.silent, leader.high_watermark, leader.stable = False, 2, 2
        ask()
        leader.epoch = 5
        ask()
    assert [(mop["epoch"], mop["high_watermark"]) for mop in reported(tmp_path)] == [(4, 5), (5, 2)]
    assert verdict(tmp_path) == ("valid", {})


def test_all_nodes_of_a_cluster_are_asked_while_it_lasts(tmp_path, monkeypatch):
    monkeypatch.setattr(states, "ASK_EVERY_S", 0.05)
    history = tmp_path / "history"
    with open_target("reference:2", folder=tmp_path / "target") as target:
        create_topic(target.nodes, "t", partitions=2, replication_factor=2, configs={}, replicas=[2, 1])
        with inspecting(target.nodes, "t", history, process=3, contract=CONTRACT, run="r"):
            views: list[dict[str, Any]] = []
            waited = threading.Event()
            for _ in range(600):
                views = reported(history)
                if len(views) >= 4:
                    break
                waited.wait(0.05)
    assert {(view["key"], view["node"]) for view in views} == {("t-0", 2), ("t-1", 2)}
    assert all(view["log_start"] == view["last_stable_offset"] == view["high_watermark"] == 0 for view in views)
    assert all(view["epoch"] >= 0 for view in views)
    assert '"type":"end"' in (history / "history-00003.jsonl").read_text().splitlines()[-1]
