"""A step that stirs nothing leaves nothing to do: to look after all parts all the same changes neither effects nor deadlines."""

from __future__ import annotations

import pytest

from linearizability.simulation import machine
from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import live
from linearizability.simulation.schedule import Schedule
from reference.node.node import Node
from reference.protocol.primitives import TimestampMs

DURATION_MS = 600


class Doubter(Node):
    """A node that looks after everything when it need not."""

    quiet_steps = 0

    def _pump(self, now: TimestampMs) -> None:
        deadline = self._upkeep_deadline
        if self._is_pumping or deadline is None or now >= deadline:
            super()._pump(now)
            return
        effects = len(self._effects)
        self.stir()
        super()._pump(now)
        Doubter.quiet_steps += 1
        assert len(self._effects) == effects, f"left undone: {self._effects[effects:]}"
        self.next_deadline()
        assert self._upkeep_deadline == deadline, "a deadline has moved and nobody said so"


def schedule(seed: int, nodes: int, workload: str) -> Schedule:
    drawn = draw(seed, nodes=nodes, workload=workload)
    return drawn.model_copy(update={"duration_ms": min(drawn.duration_ms, DURATION_MS)})


@pytest.mark.parametrize(
    ("seed", "nodes", "workload"),
    [(1, 1, "records"), (2, 3, "records"), (3, 3, "transactions"), (4, 3, "groups"), (5, 1, "transactions")],
)
def test_what_stirs_nothing_leaves_nothing_to_do(
    seed: int, nodes: int, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "Node", Doubter)
    Doubter.quiet_steps = 0
    outcome, _ = live(schedule(seed, nodes, workload))
    assert outcome.verdict == "valid", outcome.text
    assert Doubter.quiet_steps > 10
