"""Processes that are killed between two changes of their disks restart with the data that they had."""

from __future__ import annotations

from typing import Any

import pytest

from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Fault, Producer, Schedule, Topic
from reference.storage.log import Log
from reference.storage.recovery import PreviousRun


def schedule(nodes: int) -> Schedule:
    node = 1 if nodes > 1 else 0
    faults = [Fault(at_ms=100 * turn, kind="crash-in-step", node=node, for_ms=90, amount=turn) for turn in range(1, 8)]
    return Schedule(
        seed=5,
        nodes=nodes,
        duration_ms=1_500,
        topics=(Topic(name="orders", configs={"internal.segment.bytes": "500"}),),
        clients=(Producer(acks="all", batches=40, pause_ms=20),),
        faults=tuple(faults),
    )


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_node_survives_them(nodes: int) -> None:
    outcome, _ = run_schedule(schedule(nodes))
    assert outcome.rule == "" and outcome.counts["process killed in a step"] >= 4


def test_a_batch_lost_at_an_unclean_start_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that an unclean start truncates by one batch too many is detected."""
    opened = Log.__init__

    def open_shorter(log: Log, *arguments: Any) -> None:
        opened(log, *arguments)
        (previous,) = (each for each in arguments if isinstance(each, PreviousRun))
        if not previous.clean and log.log_end_offset > log.log_start_offset:
            log.truncate_to(log.log_end_offset - 1)

    monkeypatch.setattr(Log, "__init__", open_shorter)
    assert run_schedule(schedule(1))[0].rule == "log-lost-bytes"


@pytest.mark.parametrize("changes", [1, 5, 8])
def test_a_node_that_is_killed_at_its_first_start_starts_again(changes: int) -> None:
    plan = schedule(3).model_copy(update={"first_start_dies_at": changes, "faults": (), "duration_ms": 300})
    outcome, _ = run_schedule(plan)
    assert outcome.rule == "" and outcome.counts["process killed in a step"] == 1
