"""Several nodes in one world: clients find the leader, and a leader that fails is replaced."""

from typing import Literal

import pytest

from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Fault, Producer, Schedule
from reference.node.node import Node
from reference.protocol.primitives import NodeId, TimestampMs
from tests.simulation.short import short


def quiet(*faults: Fault) -> Schedule:
    """Three nodes, one producer, and these faults."""
    drawn = draw(0, None, 3)
    topics = tuple(
        topic.model_copy(update={"configs": {"min.insync.replicas": "2"}, "deletes": False}) for topic in drawn.topics
    )
    producer = Producer(batches=80, pause_ms=20)
    return drawn.model_copy(update={"duration_ms": 2_000, "topics": topics, "clients": (producer,), "faults": faults})


@pytest.mark.step("replication", "Crash")
@pytest.mark.parametrize("kind", ["cut", "cut-out", "cut-in", "isolate", "pause", "crash", "power-loss"])
def test_a_leader_that_fails_is_replaced_and_nothing_is_lost(
    kind: Literal["cut", "cut-out", "cut-in", "isolate", "pause", "crash", "power-loss"],
):
    topic = quiet().topics[0].name
    fault = Fault(at_ms=500, kind=kind, role="leader", topic=topic, node=1, for_ms=900)
    outcome, _ = run_schedule(quiet(fault))
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")
    assert outcome.acknowledged > 100
    if kind in ("pause", "crash", "power-loss"):
        assert outcome.leader_changes >= 1
    assert outcome.judgement is not None and not outcome.judgement.permitted


def test_the_fault_is_injected_into_the_leader_of_then():
    topic = quiet().topics[0].name
    first = Fault(at_ms=300, kind="crash", role="leader", topic=topic, node=1, for_ms=5_000)
    second = first.model_copy(update={"at_ms": 1_900, "for_ms": 100})
    outcome, _ = run_schedule(quiet(first, second))
    assert outcome.verdict == "valid"
    own = 1  # each run kills a node at its end
    assert outcome.counts["action Crash"] == 2 + own, "the second fault found the first leader, which is down"


@pytest.mark.parametrize(("seed", "nodes"), [(0, 3), (2, 3), (3, 3), (1, 5), (2, 5)])
def test_runs_keep_every_promise(seed: int, nodes: int):
    drawn = draw(seed, None, nodes)
    outcome, _ = run_schedule(drawn)
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")
    assert outcome.acknowledged > 50 and outcome.leader_changes


def test_the_reference_gives_the_same_trace_again():
    schedule = draw(2, None, 3)
    assert run_schedule(schedule)[0].digest == run_schedule(schedule)[0].digest


def test_an_answer_is_overwritten_after_it_was_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime receives the next response into the same buffer: a node that kept a part would see other bytes."""
    kept: list[bytearray] = []
    answered = Node.answered

    def keep(node: Node, peer: NodeId, purpose: str, frame: bytearray, now: TimestampMs) -> None:
        kept.append(frame)
        assert any(frame)
        answered(node, peer, purpose, frame, now)

    monkeypatch.setattr(Node, "answered", keep)
    assert run_schedule(short(1, nodes=3))[0].text == ""
    assert kept and not any(any(frame) for frame in kept)
