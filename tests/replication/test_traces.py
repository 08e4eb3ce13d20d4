"""Every step of the broker's code is a step that the specification allows: lives of the world, checked by TLC."""

import json

import pytest

from reference.replication.leader import Leading
from spec.checker import Verdict
from spec.trace import Trace, check_traces, read_trace
from tests.replication.promises import Broken
from tests.replication.world import NODES, World

pytestmark = pytest.mark.java

LIVES, STEPS = 60, 800


def trace_of(seed: int, *, steps: int = STEPS) -> Trace:
    """One incarnation as far as it went."""
    world = World(seed, as_specified=True)
    try:
        world.run(steps)
        world.heal()
    except Broken:
        pass
    begin = {"action": "Begin", "brokers": list(NODES), "minIsr": world.min_isr, "partition": world.first_record}
    return read_trace([json.dumps(row) for row in [begin, *world.rows]], f"life {seed}")


def test_runs_are_behaviours_of_the_specification() -> None:
    done = check_traces([trace_of(seed) for seed in range(LIVES)])
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert [(verdict.name, verdict.place, verdict.event, verdict.reason) for verdict in done.rejected] == []
    assert done.events > 50 * LIVES


def test_a_run_with_a_planted_bug_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leading, "is_in_maximal_isr", lambda self, broker: broker in self.state.isr)
    done = check_traces([trace_of(seed, steps=400) for seed in range(40)])
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    actions = {verdict.event["action"] for verdict in done.rejected if verdict.event is not None}
    assert "AdvanceHighWatermark" in actions
