"""A quiet step leaves nothing to do: background work after it changes neither effects nor deadlines."""

from __future__ import annotations

import pytest

from linearizability.simulation import machine
from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Schedule
from reference.node.node import Node
from reference.protocol.primitives import TimestampMs

DURATION_MS = 600


class Doubter(Node):
    """A node that also does background work where a quiet step would skip it."""

    quiet_steps = 0

    def _drain(self, now: TimestampMs, is_quiet: bool = False) -> None:
        deadline = self._upkeep_deadline
        is_due = deadline is None or self._next_background_work() <= now
        if not is_quiet or self.logs.has_failed or self._is_draining or is_due:
            super()._drain(now, is_quiet)
            return
        effects = len(self._effects)
        super()._drain(now)
        Doubter.quiet_steps += 1
        assert len(self._effects) == effects, f"left undone: {self._effects[effects:]}"
        self.next_deadline()
        assert self._upkeep_deadline == deadline, "a deadline has moved that is not read after a quiet step"


def schedule(seed: int, nodes: int, workload: str) -> Schedule:
    drawn = draw(seed, nodes=nodes, workload=workload)
    return drawn.model_copy(update={"duration_ms": min(drawn.duration_ms, DURATION_MS)})


@pytest.mark.parametrize(
    ("seed", "nodes", "workload"),
    [(1, 1, "records"), (2, 3, "records"), (3, 3, "transactions"), (4, 3, "groups"), (5, 1, "transactions")],
)
def test_a_quiet_step_leaves_nothing_to_do(
    seed: int, nodes: int, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "Node", Doubter)
    Doubter.quiet_steps = 0
    outcome, _ = run_schedule(schedule(seed, nodes, workload))
    assert outcome.verdict == "valid", outcome.text
    assert Doubter.quiet_steps > 10
