"""Mutants differ as they say, and their stored results are current and explained."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from spec import mutation
from spec.commands import app
from spec.mutants import MUTATED, definitions_in
from spec.mutation import Limits, MutantOutcome, all_mutants, judge
from spec.proof_pages import unread_survivors
from spec.survivors import reason_of, reasons
from spec.tla_text import definitions_of

MODULE = r"""---- MODULE Small ----
Guarded(a, b) ==
    /\ a < b   \* a comment
    /\ \/ a = 0
       \/ b = 0 /\ a > 1
    /\ x' = [x EXCEPT !.one = a + 1, !.two = b]
    /\ UNCHANGED y

Other == Guarded(1, 2)
====
"""


def test_items_of_lists_and_operands_are_found() -> None:
    definition = definitions_of("Small", MODULE)["Guarded"]
    assert [item.span.of(MODULE) for item in definition.items()] == [
        "a < b",
        "\\/ a = 0\n       \\/ b = 0 /\\ a > 1",
        "a = 0",
        "b = 0 /\\ a > 1",
        "b = 0",
        "a > 1",
        "x' = [x EXCEPT !.one = a + 1, !.two = b]",
        "UNCHANGED y",
    ]
    assert "Guarded" in definitions_of("Small", MODULE)["Other"].names


def test_there_is_a_mutant_for_each_kind_of_change() -> None:
    changes = {(mutant.definition, mutant.kind, mutant.change) for mutant in all_mutants().values()}
    assert {
        ("ExpandIsr", "guard", "progress[l][f].end >= StartOffsetOf(log[l], metadata[l].leaderEpoch) -> TRUE"),
        ("UnfenceBroker", "guard", "HasReplayed(b) -> TRUE"),
        ("IsForThisEpoch", "guard", "proposal.partitionEpoch = partition.partitionEpoch -> TRUE"),
        ("BecomeLeader", "reset", "[progress EXCEPT ![b] = NoProgress] -> progress"),
        ("BecomeLeader", "reset", "[pending EXCEPT ![b] = None] -> pending"),
        ("Truncate", "bound", "point -> IF point < EndOffset(@) THEN (point) + 1 ELSE point"),
        ("UncleanlyLed", "reset", ", !.elr = {} -> "),
        ("Replayable", "alternative", "known[b].leader = b -> FALSE"),
        ("UnderMinIsr", "comparison", "< -> <="),
        ("RegisterBroker", "count", "+ 1 -> "),
    } <= changes
    assert {mutant.step for mutant in all_mutants().values() if mutant.kind == "action"} > {
        "Crash",
        "TakeProposal",
        "Heartbeat",
    }


@pytest.mark.parametrize("folder", MUTATED)
def test_a_mutant_differs_from_its_module_in_one_place(folder: str) -> None:
    clean = definitions_in(folder)
    mutants = [mutant for mutant in all_mutants().values() if mutant.folder == folder]
    assert mutants
    for mutant in mutants:
        changed = definitions_of(mutant.module, mutant.text())
        others = {name for name in clean if name != mutant.definition and clean[name].module == mutant.module}
        assert all(
            clean[name].body.of(clean[name].text) == changed[name].body.of(changed[name].text) for name in others
        )
        was, becomes = clean[mutant.definition], changed[mutant.definition]
        assert was.body.of(was.text) != becomes.body.of(becomes.text), mutant.name
        assert mutant.was != mutant.becomes


def test_stored_rows_are_of_mutants_that_there_are_and_current() -> None:
    rows = mutation.load()
    assert rows
    assert [name for name in rows if name not in all_mutants()] == []
    assert [name for name, row in rows.items() if not mutation.is_fresh(all_mutants()[name], row)] == []


def test_each_reason_has_a_survivor_and_no_survivor_is_added_unread() -> None:
    assert unread_survivors() == [], "read them, and write their reasons into the survivors.toml of their book"
    used = {reason_of(name) for name, row in mutation.load().items() if row.survived}
    assert [begins for begins, reason in reasons().items() if reason not in used] == []


def test_what_has_outgrown_a_model_has_met_it_and_what_met_none_has_not() -> None:
    mutant = all_mutants()["Quorum.AppendRecord.guard2"]
    grown = tuple(model.name for model in mutation.models_for(mutant, mutation.SETTLED_S))
    assert grown
    for out_of_time, is_current in ((grown, True), (grown[1:], False), ((), False)):
        row = replace(mutation.row_of(mutant, MutantOutcome.UNFINISHED), out_of_time=out_of_time)
        row = replace(row, fingerprint=mutation.fingerprint(mutant, out_of_time, ""))
        assert mutation.is_current(mutant, row, mutation.SETTLED_S) == is_current


@pytest.mark.java
def test_a_mutant_is_killed_and_a_step_that_is_not_taken_is_missed() -> None:
    stored = mutation.load()
    for name, result in (
        ("Client.Produce.action1", MutantOutcome.UNREACHED),
        ("Controller.Publish.reset1", MutantOutcome.KILLED),
    ):
        row = judge(all_mutants()[name], Limits(largest_s=9))
        assert (row.outcome, row.by) == (result, stored[name].by)


def test_what_chooses_between_steps_has_models_though_no_step_rests_on_it() -> None:
    mutant = all_mutants()["Messages.ProposalStep.guard1"]
    models = mutation.models_for(mutant, mutation.SETTLED_S)
    assert models and all(not mutation.actions_by(model, mutant.definition) for model in models)


def test_the_command_lists_what_it_would_run() -> None:
    done = CliRunner().invoke(app, ["spec", "mutate", "Replica.ExpandIsr", "--dry-run", "--again", "--json"])
    lines = [json.loads(line) for line in done.output.splitlines()]
    assert done.exit_code == 0
    assert {"Replica.ExpandIsr.guard1", "Replica.ExpandIsr.action1"} < {line.get("mutant") for line in lines}
    assert lines[-1]["run"] == 0
