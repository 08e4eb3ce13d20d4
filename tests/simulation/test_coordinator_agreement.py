"""A coordinator whose state or responses differ from its records is detected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import reference.coordinator.consumer_group_description as description
from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import run_schedule
from reference.coordinator.group_shard import GroupShard
from reference.coordinator.transaction_coordinator import TransactionCoordinator
from reference.node.coordination import Coordination


def forget_offsets(shard: object) -> None:
    if isinstance(shard, GroupShard):
        shard.offsets._committed.clear()


def forget_times(shard: object) -> None:
    if isinstance(shard, TransactionCoordinator):
        shard.transactions = {id: replace(each, updated_at=1) for id, each in shard.transactions.items()}


@pytest.mark.parametrize(("workload", "change"), [("groups", forget_offsets), ("transactions", forget_times)])
def test_state_that_differs_from_the_records_is_found(
    monkeypatch: pytest.MonkeyPatch, workload: str, change: Callable[[object], None]
) -> None:
    write = Coordination.write

    def write_and_change(coordination: Coordination[Any], index: int, *arguments: Any, **named: Any) -> None:
        write(coordination, index, *arguments, **named)
        change(coordination.loaded_shard(index))

    monkeypatch.setattr(Coordination, "write", write_and_change)
    assert run_schedule(draw(0, workload=workload))[0].rule == "coordinator-disagrees"


def test_a_description_that_differs_from_the_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assignment = description._assignment

    def leave_out_the_first_topic(*arguments: Any) -> Any:
        answer = assignment(*arguments)
        del answer.topic_partitions[:1]
        return answer

    monkeypatch.setattr(description, "_assignment", leave_out_the_first_topic)
    assert run_schedule(draw(0, workload="groups"))[0].rule == "description-differs"
