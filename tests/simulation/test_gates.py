"""Messages of one kind are held or lost, while all others pass."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from linearizability.simulation.fuzzing import run_planted
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Fault, Producer, Schedule, Topic, Transactor

PRODUCER = Producer(batches=60, records=1, pause_ms=20)


def rows_of(*faults: Fault, **more: Any) -> list[dict[str, Any]]:
    """The steps of the topic in a run of three nodes that has to be valid."""
    rows: list[dict[str, Any]] = []
    base: dict[str, Any] = {"seed": 5, "nodes": 3, "duration_ms": 1_500, "clients": (PRODUCER,), "faults": faults}
    plan = Schedule(**base | more)
    outcome, _ = run_schedule(plan, rows=rows)
    assert outcome.verdict == "valid", outcome.text
    return [row for row in rows if row.get("partition") == "orders-0" or "partitions" in row]


def actions_of(rows: list[dict[str, Any]]) -> set[str]:
    return {row["action"] for row in rows}


def test_without_gates_no_replica_leaves_the_isr() -> None:
    assert not actions_of(rows_of()) & {"ShrinkIsr", "RollBackIsr"}


def held(messages: Any, for_ms: int, kind: Any = "hold") -> list[Fault]:
    """Faults that hold or lose these messages of each node from 300 ms on, when every replica is in sync."""
    return [Fault(at_ms=300, kind=kind, messages=messages, node=node, for_ms=for_ms) for node in (1, 2, 3)]


def test_a_follower_whose_fetches_wait_leaves_the_isr() -> None:
    assert "ShrinkIsr" in actions_of(rows_of(*held("fetch", 900)))


def test_a_proposal_that_waits_is_decided_when_it_may_pass() -> None:
    """Fetches pass before the proposal, so that followers get responses in between. The controller leads nothing: a leader
    would send the proposal to itself."""
    topic = Topic(name="orders", replicas=(1, 2, 3))
    rows = rows_of(*held("fetch", 900), *held("proposal", 1_500), nodes=4, voters=(4,), topics=(topic,))
    actions = [row["action"] for row in rows]
    after = actions[actions.index("ShrinkIsr") :]
    assert "AnswerFetch" in after[: after.index("AlterPartition")]


def test_a_broker_whose_heartbeats_wait_is_fenced() -> None:
    assert "FenceBroker" in actions_of(rows_of(*held("heartbeat", 1_000)))


def test_a_lost_answer_is_asked_for_again() -> None:
    rows = rows_of(*held("fetch", 900), *held("proposal-answer", 1_400, "lose"))
    assert "CommitIsr" in actions_of(rows)


def test_what_is_produced_waits_and_arrives_although_its_producer_has_gone_on() -> None:
    """No other request waits: the transaction ends meanwhile, and the late batch is refused."""
    client = Transactor(transactions=40, pause_ms=20, patience_ms=60, version=1)
    faults = tuple(
        Fault(at_ms=at, kind="hold", messages="produce", node=1, for_ms=200) for at in range(300, 1_500, 400)
    )
    topic = Topic(name="orders", replicas=(1, 2, 3))
    base: dict[str, Any] = {"seed": 5, "nodes": 3, "duration_ms": 1_500, "clients": (client,), "topics": (topic,)}
    free, _ = run_schedule(Schedule(**base))
    held, _ = run_schedule(Schedule(**base, faults=faults))
    assert (free.verdict, held.verdict) == ("valid", "valid"), held.text
    assert free.counts["batches given up"] == 0
    assert held.counts["batches given up"] > 0
    assert held.counts["answer EndTxn NONE"] > 0
    mutant = Schedule(**base, faults=faults, mutant="partitions-unverified")
    outcome, _ = run_planted(mutant)
    assert outcome.rule in ("G1a", "hanging-transaction")


@pytest.mark.parametrize("kind, messages", [("hold", ""), ("lose", ""), ("cut", "fetch")])
def test_only_what_holds_or_loses_names_messages(kind: Any, messages: Any) -> None:
    with pytest.raises(ValidationError, match="do not go together"):
        Schedule(nodes=3, faults=(Fault(at_ms=0, kind=kind, messages=messages),))
