"""Responses to administrators, and refusals, are judged at the end of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from linearizability.pipeline.verdict import INVALID, VALID
from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Schedule
from reference.controller import brokers, isr_proposals
from reference.controller import topics as topic_plans
from reference.coordinator import group_admin, offset_commits, subscription_patterns
from reference.coordinator.transaction_coordinator import TransactionCoordinator
from reference.protocol.errors import ErrorCode
from reference.replication.leader import Leading
from reference.storage.producer_state import ProducerState


def calm(nodes: int, workload: str, seed: int = 0) -> Schedule:
    return draw(seed, None, nodes, workload).model_copy(update={"faults": (), "duration_ms": 500})


@pytest.mark.parametrize(("nodes", "workload"), [(1, "copy"), (3, "groups")])
def test_sound_nodes_are_asked_much_and_answer_right(nodes: int, workload: str) -> None:
    outcome, _ = run_schedule(calm(nodes, workload))
    assert outcome.verdict == VALID, outcome.text
    assert outcome.counts["inspected answers"] > 150


def test_nothing_is_asked_where_histories_alone_decide() -> None:
    outcome, _ = run_schedule(calm(1, "groups"), by_history=True)
    assert outcome.counts["inspected answers"] == 0


def _without_filter(original: Callable[..., Any]) -> Callable[..., Any]:
    def listed(groups: Any, request: Any) -> Any:
        request.types_filter = []
        return original(groups, request)

    return listed


def _granted(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **named: None


LIES: list[tuple[object, str, Callable[[Callable[..., Any]], Callable[..., Any]], int, str, str]] = [
    (group_admin, "list_groups", _without_filter, 1, "groups", "listed_groups"),
    (offset_commits, "_java_length", lambda original: lambda text: 0, 1, "groups", "refused_requests"),
    (subscription_patterns, "_matched", lambda original: lambda pattern, topics: frozenset(), 1, "groups", "patterns"),
    (TransactionCoordinator, "verify_partitions",
     lambda original: lambda self, id, identity, partitions: dict.fromkeys(partitions, ErrorCode.NONE), 1, "transactions",
     "refused_requests"),
    (Leading, "offset_for_leader_epoch", lambda original: lambda self, epoch: (epoch, 0), 1, "records", "ends_of_epochs"),
    (ProducerState, "check_data", _granted, 1, "records", "producers"),
    (topic_plans, "validate_topic_name", _granted, 1, "records", "refused_by_the_controller"),
    (isr_proposals, "_judge_epochs", _granted, 3, "records", "refused_to_brokers"),
    (brokers, "_check_directories", _granted, 3, "records", "refused_to_brokers"),
]  # fmt: skip
"""The function that returns a false result, the false result, the run, and the chapter of the inspection that finds it."""


@pytest.mark.parametrize(("place", "name", "lie", "nodes", "workload", "chapter"), LIES, ids=[each[1] for each in LIES])
def test_a_lie_is_found(
    place: Any,
    name: str,
    lie: Callable[[Callable[..., Any]], Callable[..., Any]],
    nodes: int,
    workload: str,
    chapter: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(place, name, lie(getattr(place, name)))
    outcome, _ = run_schedule(calm(nodes, workload, seed=1))
    assert (outcome.verdict, outcome.rule) == (INVALID, "answer-differs"), outcome.text
    assert outcome.text.startswith(chapter), outcome.text
