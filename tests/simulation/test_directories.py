"""Nodes with two log directories: one fails, replicas move between them, and no promise is broken."""

from __future__ import annotations

import random

import pytest

from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.drawing import draw
from linearizability.simulation.faults import inject
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Fault, Producer, Schedule, Topic
from reference.protocol.primitives import TimestampMs
from reference.storage.log import Log
from reference.storage.log_manager import LogManager

FLUSHED = {"flush.messages": "1"}


def schedule(*faults: Fault, seed: int = 1) -> Schedule:
    topic = Topic(name="orders", partitions=4, configs=FLUSHED | {"internal.segment.bytes": "2000"})
    return Schedule(
        seed=seed,
        nodes=3,
        log_directories=2,
        duration_ms=5_000,
        topics=(topic,),
        faults=faults,
        clients=(Producer(acks="all", batches=150, pause_ms=20),),
    )


def drawn(seed: int) -> Schedule:
    """A drawn schedule of three nodes with moves at random times, half of them with a failing directory."""
    chance = random.Random(seed)
    plain = draw(seed, nodes=3, workload="records")
    faults = [
        Fault(
            at_ms=chance.randrange(plain.duration_ms),
            kind="move",
            node=chance.randrange(1, 4),
            topic=topic.name,
            partition=chance.randrange(topic.partitions),
            amount=chance.randrange(2),
        )
        for topic in plain.topics
        for _ in range(6)
    ]
    if chance.random() < 0.5:
        at_ms, node = chance.randrange(plain.duration_ms), chance.randrange(1, 4)
        faults += [
            Fault(at_ms=at_ms, kind="directory-fails", node=node),
            Fault(at_ms=at_ms + chance.randrange(200, 2_000), kind="crash", node=node, for_ms=200),
        ]
    return plain.model_copy(update={"log_directories": 2, "faults": (*plain.faults, *faults)})


def test_others_lead_when_a_directory_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[set[int], set[int]]] = []

    def look(cluster: SimulatedCluster, fault: Fault, number: int) -> None:
        inject(cluster, fault, number)
        node = cluster.machine(1).node
        if fault.kind == "clock-jump" and node is not None:
            partitions = node.image.topics["orders"].partitions
            seen.append(
                ({each for _, each in node.replicas.offline}, {i for i, p in partitions.items() if p.leader == 1})
            )

    monkeypatch.setattr("linearizability.simulation.faults.inject", look)
    outcome, _ = run_schedule(
        schedule(
            Fault(at_ms=1_000, kind="directory-fails", node=1), Fault(at_ms=2_500, kind="clock-jump", node=3, amount=1)
        )
    )
    assert outcome.verdict == "valid"
    ((offline, led),) = seen
    assert len(offline) == 2 and not offline & led, "what is offline here is led by other nodes"


@pytest.mark.parametrize("seed", range(1, 2))
def test_no_promise_is_broken_where_directories_fail_and_replicas_move(seed: int) -> None:
    outcome, _ = run_schedule(drawn(seed))
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")
    assert outcome.counts["fault move"]


def test_a_move_that_the_disk_refuses_leaves_the_replica_where_it_is() -> None:
    moves = [Fault(at_ms=1_000, kind="move", node=1, topic="orders", partition=each, amount=0) for each in range(4)]
    outcome, _ = run_schedule(schedule(Fault(at_ms=1_000, kind="read-only", node=1, for_ms=500), *moves))
    assert (outcome.verdict, outcome.text) == ("valid", "")


def test_a_replica_that_was_moved_and_killed_begins_with_its_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Fault(at_ms=1_500, kind="move", node=2, amount=1), Fault(at_ms=2_000, kind="crash", node=2, for_ms=200)
    idle = Schedule(
        seed=3,
        nodes=3,
        log_directories=2,
        duration_ms=2_500,
        topics=(Topic(name="orders", replicas=(1, 2, 3)),),
        clients=(Producer(acks="all", batches=10),),
        faults=tuple(each.model_copy(update={"topic": "orders"}) for each in faults),
    )
    assert run_schedule(idle)[0].rule == ""
    monkeypatch.setattr(LogManager, "replace_with_future", replace_without_high_watermark)
    assert run_schedule(idle)[0].rule == "high-watermark-forgotten"


def replace_without_high_watermark(logs: LogManager, key: tuple[str, int], _: int, now: TimestampMs) -> Log:
    holder, future = logs.holder(key), logs.future_holder(key)
    assert holder is not None and future is not None
    holder.delete(key, now)
    return future.promote_future(key, now)


def test_a_leader_that_was_moved_before_it_appended_anything_knows_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Schedule(
        seed=3,
        nodes=3,
        log_directories=2,
        duration_ms=2_500,
        topics=(Topic(name="orders", replicas=(1, 2, 3)),),
        faults=(Fault(at_ms=1_500, kind="move", node=1, amount=1, topic="orders"),),
    )
    assert run_schedule(idle)[0].rule == ""
    monkeypatch.setattr(LogManager, "replace_with_future", replace_without_high_watermark)
    assert run_schedule(idle)[0].rule == "own-epoch-forgotten"
