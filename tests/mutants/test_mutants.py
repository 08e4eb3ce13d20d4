"""Planted bugs: each can be planted, is found, and leaves nothing behind."""

import importlib
import json
import subprocess
import sys
from typing import Any

import pytest

from linearizability.mutants.judging import PAGE, RESULTS, is_fuzzed, judged, table
from linearizability.mutants.registry import MUTANTS, BrokenMutant, Mutant, UnknownMutant, planted
from linearizability.simulation.drawing import draw
from linearizability.simulation.fuzzing import run_planted
from linearizability.simulation.judging import run_schedule
from tests.simulation.short import short

SAMPLE = {
    "wrong-correlation-id": 10,
    "acknowledged-without-append": 10,
    "session-forgets-positions": 10,
    "high-watermark-ahead": 10,
    "flush-skipped": 30,
    "offset-skipped-at-restart": 30,
    "kip-320": 60,
    "kip-497": 20,
    "kip-380": 10,
    "kip-570": 10,
    "acknowledged-before-commit": 5,
    "old-epoch-committed": 5,
    "snapshot-ahead": 10,
    "epoch-kept-by-next-session": 20,
    "marker-written-twice": 10,
    "stable-up-to-high-watermark": 5,
}
"""Mutant -> the schedules within which CI must find it."""


def original_of(function: str) -> object:
    module, _, path = function.partition(":")
    owner = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner.__dict__[name]


def test_there_is_at_least_a_dozen_for_each_of_the_two_judges():
    assert sum(mutant.fuzz for mutant in MUTANTS.values()) >= 12
    assert sum(bool(mutant.caught_by) for mutant in MUTANTS.values()) >= 12


@pytest.mark.parametrize("name", MUTANTS)
def test_planting_replaces_one_function_and_is_undone(name: str):
    mutant = MUTANTS[name]
    original = original_of(mutant.function)
    with planted(name):
        assert original_of(mutant.function) is not original
    assert original_of(mutant.function) is original


def test_a_module_that_imported_the_function_by_name_has_the_bug_too():
    import reference.storage.producer_state as importer

    original = importer.check_sequence
    with planted("sequence-unchecked"):
        assert importer.check_sequence is not original
    assert importer.check_sequence is original


def test_a_mutant_that_was_not_planted():
    with pytest.raises(UnknownMutant, match="nonsense"), planted("nonsense"):
        pass


@pytest.mark.sampled(days=6)
@pytest.mark.parametrize("name", SAMPLE)
def test_fuzzing_finds(name: str):
    mutant = MUTANTS[name]
    draws = (draw(seed, name, mutant.nodes, mutant.workload, mutant.coordination) for seed in range(SAMPLE[name]))
    outcomes = (run_planted(schedule)[0] for schedule in draws)
    found = next(
        (each for each in outcomes if each.verdict == "invalid" and MUTANTS[name].is_found_by(each.rule)), None
    )
    assert found is not None
    clean, _ = run_schedule(found.schedule)
    assert clean.verdict != "invalid", "without the bug the same schedule must hold"


@pytest.mark.sampled(days=3)
@pytest.mark.parametrize(
    ("name", "seed", "drawn"),
    [
        ("removed-leader-never-stands", 107, {"nodes": 3, "coordination": "changing-voters"}),
        ("aborted-records-revived", 93, {"workload": "copy"}),
        ("idle-epoch-left-behind", 683, {"nodes": 3}),
        ("lone-tombstones-not-loaded", 4, {"workload": "groups"}),
        ("deleted-topics-log-kept", 4, {"nodes": 3}),
        ("deleted-topics-high-watermark-kept", 114, {"nodes": 3}),
    ],
)
def test_a_rare_bug_is_found_by_the_first_run_that_shows_it(name: str, seed: int, drawn: dict[str, Any]):
    schedule = draw(seed, name, **drawn)
    found, _ = run_planted(schedule)
    assert found.verdict == "invalid" and MUTANTS[name].is_found_by(found.rule), found.text
    clean, _ = run_schedule(schedule)
    assert clean.verdict == "valid", clean.text


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.fuzz and mutant.nodes == 1])
def test_fuzzing_finds_every_one(name: str):
    """The rarest, `last-marker-wins`, needed up to 478 runs from other seeds (TIMES.md)."""
    drawn = (draw(seed, name, workload=MUTANTS[name].workload) for seed in range(1_000))
    assert any(run_planted(each)[0].verdict == "invalid" for each in drawn)


def test_a_property_can_be_replaced_and_comes_back():
    from reference.node.node import Node

    before = vars(Node)["has_caught_up"]
    with planted("replay-skipped"):
        assert isinstance(vars(Node)["has_caught_up"], property) and vars(Node)["has_caught_up"] is not before
    assert vars(Node)["has_caught_up"] is before


def test_a_bug_may_count_as_found_by_certain_broken_promises_only():
    divergence = MUTANTS["kip-101-divergence"]
    assert divergence.is_found_by("lost-write, replica-divergence")
    assert not divergence.is_found_by("lost-write")
    assert MUTANTS["kip-497"].is_found_by("whatever")


def test_a_bug_does_not_outlast_its_run():
    before, _ = run_schedule(short(1))
    buggy, _ = run_planted(short(1, "high-watermark-back"))
    assert buggy.verdict == "invalid"
    after, _ = run_schedule(short(1))
    assert before.digest == after.digest


@pytest.mark.parametrize("arguments", [[], ["serve"], ["serve", "nonsense", "x.properties"], ["adapter", "nonsense"]])
def test_wrong_usage(arguments: list[str]):
    done = subprocess.run(
        [sys.executable, "-m", "linearizability.mutants", *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 64
    assert done.stderr.strip()


def test_a_mutant_that_does_not_fit_the_code_is_an_error_and_no_find(monkeypatch):
    stale = Mutant("stale", "", "reference.node.produce:_answer", lambda original, node: None, ("ACK",), False, True)
    gone = Mutant("gone", "", "reference.node.produce:_nothing", lambda original: None, ("ACK",), False, True)
    slip = Mutant("slip", "", "reference.node.node:Node.tick", lambda original, node, now: node.tock(), (), True, True)
    for mutant in (stale, gone, slip):
        monkeypatch.setitem(MUTANTS, mutant.name, mutant)
    for name in ("stale", "gone"):
        with pytest.raises(BrokenMutant, match=name), planted(name):
            pass
    with pytest.raises(BrokenMutant, match="tock"):
        run_planted(short(1, "slip"))


def test_the_stored_results_show_that_every_mutant_was_found():
    results = json.loads(RESULTS.read_text())
    assert [name for name in judged() if name not in results] == []
    for name in judged():
        mutant = MUTANTS[name]
        assert not mutant.caught_by or results[name]["requirements"], name
        assert not is_fuzzed(mutant) or results[name]["schedules"], name
    assert table(results) in PAGE.read_text()
