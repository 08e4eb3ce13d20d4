"""Many mutants in one run of TLC are judged as each is by itself."""

from dataclasses import replace

import pytest

from spec import fused
from spec.catalogue import MODELS
from spec.checker import Outcome, Verdict
from spec.fused import CLEAN, Judged, Met, judge_together, rows_together
from spec.models import Model
from spec.mutants import Mutant
from spec.mutation import Limits, MutantOutcome, all_mutants, judge, models_for, row_of
from spec.results import load as load_results

MODEL = {model.name: model for model in MODELS}
BY_ITSELF = ("Controller.Publish.reset1", "Replica.AdvanceHighWatermark.guard4", "Replica.AppendFetched.guard3")
"""One breaks a promise of states, one a promise of steps, one cannot be evaluated."""
UNPARSABLE = "Cluster.NoProgress.count1"
UNTAKEN = "Controller.ElectLeader.action1"
WIDER = "Controller.Replayable.guard2"


def mutants(*names: str) -> list[Mutant]:
    return [all_mutants()[name] for name in names]


def test_a_copy_keeps_its_columns_and_the_definition_chooses() -> None:
    numbered = dict(enumerate(mutants("Replica.ExpandIsr.guard1", "Replica.ExpandIsr.guard2"), 1))
    text = fused._modules(MODEL["MCIsr"], numbered)["Replica"]
    assert "\nExpandIsr(l, f) == IF mutant = 1 THEN ExpandIsrOfMutant1(l, f) ELSE IF mutant = 2 THEN" in text
    clean, first = (text.partition(f"\nExpandIsrOfMutant{number}(l, f) ==\n")[2].splitlines() for number in (CLEAN, 1))
    differing = [(was, now) for was, now in zip(clean[:8], first[:8], strict=True) if was != now]
    assert len(differing) == 1 and len(differing[0][1]) - len(differing[0][1].lstrip()) == len(differing[0][0]) - len(
        differing[0][0].lstrip()
    )


def test_models_of_liveness_and_simulations_are_not_fused() -> None:
    assert {model.name for model in MODELS if not fused.can_fuse(model)} == {
        model.name for model in MODELS if model.behaviours or "FairSpec" in model.text
    }


def test_the_mutant_that_an_initial_state_stops_is_named() -> None:
    """TLC prints no trace then; before, the whole run ended in an error."""
    model = MODEL["MCZooKeeperReassignment"]
    job = fused._job(model, dict(enumerate(mutants("ZooKeeperController.AddReplica.guard1"), 1)), 60, 500, 100)
    printed = (
        "Error: While working on the initial state:\n/\\ running = {b1}\n/\\ mutant = 1\n\nThe error occurred when"
    )
    outcome = Outcome(Verdict.WRONG_MODEL, reason="", output=printed)
    assert fused._culprit(job, outcome) == (1, True)


def test_a_mutant_with_a_stale_row_meets_the_model_that_settled_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    stale, new = mutants("Replica.ExpandIsr.guard2", "Replica.ExpandIsr.guard3")
    limits = Limits(largest_s=9)
    names = [model.name for model in models_for(stale, limits.largest_s) if fused.can_fuse(model)]
    before = replace(
        row_of(stale, MutantOutcome.KILLED, "LeaderIsInIsr"), model=names[3], fingerprint="of another text"
    )
    met: list[tuple[str, list[str]]] = []

    def judged(model: Model, some: list[Mutant], *limits: float) -> Judged:
        met.append((model.name, [mutant.name for mutant in some]))
        return Judged(clean=Met(is_whole=True))

    monkeypatch.setattr(fused, "judge_together", judged)
    assert len(list(rows_together([stale, new], limits, {stale.name: before}))) == len(names) + 1
    assert met[0] == (names[3], [stale.name])
    assert [(name, len(some)) for name, some in met[1:]] == [(name, 1 if name == names[3] else 2) for name in names]


@pytest.mark.sampled(days=5)
@pytest.mark.java
def test_a_bound_of_the_model_is_kept() -> None:
    """Without its bound the model is infinite, and no mutant could survive."""
    model = MODEL["MCZooKeeperShutdown"]
    assert "CONSTRAINT FewVersions" in model.text
    most = 4 * load_results()[model.name].distinct
    judged = judge_together(model, mutants("ZooKeeperController.BrokerStartup.guard1"), 600, 1000, most)
    assert judged.clean.is_whole


@pytest.mark.sampled(days=5)
@pytest.mark.java
def test_each_is_judged_as_by_itself() -> None:
    limits = Limits(largest_s=load_results()["MCFailover"].cpu_seconds)
    together = {
        row.mutant: row
        for rows in rows_together(mutants(*BY_ITSELF, UNPARSABLE, UNTAKEN, WIDER), limits, {})
        for row in rows
    }
    for mutant in mutants(*BY_ITSELF):
        one = judge(mutant, limits)
        assert one.outcome in (MutantOutcome.KILLED, MutantOutcome.REFUSED)
        row = together[mutant.name]
        assert (row.outcome, row.by, row.model, row.depth) == (one.outcome, one.by, one.model, one.depth)
        assert row.fingerprint == one.fingerprint
    assert together[UNPARSABLE].outcome == MutantOutcome.UNPARSABLE
    assert (together[UNTAKEN].outcome, together[UNTAKEN].by) == (MutantOutcome.UNREACHED, "ElectLeader")
    assert (together[WIDER].outcome, together[WIDER].models) == (MutantOutcome.WIDER, ("MCFailover",))


@pytest.mark.sampled(days=5)
@pytest.mark.java
def test_what_a_limit_of_states_ends_has_met_no_model() -> None:
    judged = judge_together(MODEL["MCFailover"], mutants("Controller.Publish.reset1", WIDER), 600, 1000, 30)
    assert judged.met["Controller.Publish.reset1"].broken == "TypeOK"
    assert not judged.met[WIDER].is_whole and not judged.clean.is_whole
    assert not judged.met[WIDER].broken
