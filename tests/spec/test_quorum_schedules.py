"""The metadata quorum's behaviours are driven through three simulated voters: allowed behaviours hold, and the
counterexample of a switch fails with the mutant of the same bug, whose trace is rejected at that step.
"""

from __future__ import annotations

import pytest

from linearizability.mutants.registry import MUTANTS, planted
from linearizability.simulation.judging import run_schedule
from spec.catalogue import MODELS
from spec.checker import Verdict
from spec.quorum_schedules import MUTANT_OF
from spec.quorum_trace import quorum_traces
from spec.trace import AnyTrace, check_traces, trace_of
from tests.spec.clusters import Row, as_read
from tests.spec.counterexamples import counterexample
from tests.spec.driven import driven, share_taken

pytestmark = pytest.mark.java

OF_CHANGING_VOTERS = {
    "ChangeBeforeEpochIsCommitted",
    "RemovedLeaderCountsItself",
    "RemovedLeaderNeverStands",
    "SecondChangeAtOnce",
}
"""A guided schedule keeps the voters, so it cannot reach these. A drawn run shows the third
(`tests/mutants/test_mutants.py`), drawn quorums the second and the fourth (`test_quorum_changing_machine.py`)."""


def test_every_switch_of_the_quorum_has_a_mutant() -> None:
    assert {
        switch.name for model in MODELS if model.folder == "quorum" for switch in model.switches if not switch.edit
    } == {*MUTANT_OF} | OF_CHANGING_VOTERS
    assert {*MUTANT_OF.values()} <= {*MUTANTS}


FORBIDDEN = {
    "CommitEarlierEpoch": ("AdvanceHighWatermark", "commit-of-old-epoch"),
    "FetchAcrossEpochs": ("ApplyFetch", "committed-differs"),
    "ForgetVote": ("GrantVote", "two-votes"),
    "VoteForShorterLog": ("GrantVote", "committed-differs"),
}
"""Switch -> the step that it allows, at which a sound quorum leaves its counterexample; the promise that its mutant breaks."""


@pytest.mark.sampled(days=6)
@pytest.mark.parametrize("switch", FORBIDDEN)
def test_a_counterexample_is_left_by_the_reference_and_fails_with_the_mutant(switch: str) -> None:
    plan = driven(counterexample(switch))
    step, rule = FORBIDDEN[switch]
    by_reference: list[Row] = []
    by_mutant: list[Row] = []
    sound, _ = run_schedule(plan, rows=by_reference)
    assert (sound.verdict, sound.rule) == ("valid", ""), sound.text
    assert plan.script.steps[sound.counts["script_steps"]].action == step
    with planted(MUTANT_OF[switch]):
        broken, _ = run_schedule(plan, rows=by_mutant)
    assert (broken.verdict, broken.rule) == ("invalid", rule)
    assert broken.counts["script_steps"] >= sound.counts["script_steps"] - 1, (
        "what the switch allows comes with the step before, or later"
    )
    done = check_traces([quorum_trace(by_reference, "reference"), quorum_trace(by_mutant, "mutant")])
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert [(verdict.name, (verdict.event or {})["action"]) for verdict in done.rejected] == [("mutant", step)]


def quorum_trace(rows: list[Row], name: str) -> AnyTrace:
    return trace_of(quorum_traces(as_read(rows))["metadata quorum"], name)


@pytest.mark.sampled(days=5)
def test_random_behaviours_hold_with_the_reference() -> None:
    """The script ends where voters cannot do what the specification may (a leader's first record comes with its epoch)."""
    assert share_taken("MCQuorum", 4, 40) > 1 / 4
