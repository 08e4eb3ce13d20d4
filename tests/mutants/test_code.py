"""A tool's changes of the code: they are listed, planted one at a time, and judged by two judges."""

import ast
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from linearizability.mutants.code import judging
from linearizability.mutants.code.__main__ import app, wilson
from linearizability.mutants.code.changes import PACKAGES, ROOT, Change, all_changes, changes_of
from linearizability.mutants.code.judging import (
    PYTEST,
    STORE,
    THIS,
    Row,
    ask_simulation,
    is_current,
    load,
    said,
    store,
)
from linearizability.mutants.code.reaching import ALWAYS, MARK, Reached, marked, place_of

REFUSES_FOLLOWERS = "controller.quorum_leading:fetch_error:bound2"
HIGH_WATERMARK = "replication.replica:Replica.keep_high_watermark_within_log:bound1"


def test_each_package_has_changes_of_each_kind():
    kinds = {package: {each.kind for each in all_changes().values() if each.package == package} for package in PACKAGES}
    assert all(found == {"negate", "operand", "bound", "step", "call", "reset"} for found in kinds.values()), kinds


@pytest.mark.parametrize("module", ["reference.replication.partition", "reference.storage.log_manager"])
def test_each_change_differs_from_the_module_in_one_place(module: str):
    clean = ast.unparse(changes_of(module)[0])
    for number in range(len(changes_of(module)[1])):
        tree, changes = changes_of(module)
        changes[number].apply()
        changed = ast.unparse(tree)
        assert changed != clean, changes[number]
        compile(tree, module, "exec")


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


PLANT = "from linearizability.mutants.code.planting import plant; plant({!r}); "


def test_a_planted_change_runs_and_the_file_stays():
    code = r"from reference.storage.checkpoints import _properties; print(_properties(b'#a=1\nb=2', '='))"
    change = next(
        name for name, each in all_changes().items() if each.function == "_properties" and each.becomes == "line"
    )
    assert run(code).stdout == "{'b': '2'}\n"
    assert run(PLANT.format(change) + code).stdout == "{'#a': '1', 'b': '2'}\n"


def test_a_change_is_planted_before_its_module_is_imported():
    done = run("import reference.replication.replica; " + PLANT.format(HIGH_WATERMARK))
    assert "is imported already" in done.stderr


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Reached:
    """Of four runs the last three reach the change."""
    change = all_changes()[REFUSES_FOLLOWERS]
    found = Reached(dict.fromkeys("0123", 1.0), {place_of(change): [*"123"]})
    monkeypatch.setattr(judging, "reached_by_runs", lambda first, end: found)
    return found


def test_the_simulation_detects_a_change_and_names_the_promise(reached: Reached):
    limits = judging.Limits(runs=4, simulation_s=600)
    assert ask_simulation(all_changes()[REFUSES_FOLLOWERS], limits)[:2] == ("no-progress", 2)


def test_runs_that_do_not_reach_a_change_are_not_repeated(reached: Reached):
    assert ask_simulation(all_changes()[HIGH_WATERMARK], judging.Limits(runs=4)) == ("", 4, 0)
    assert ask_simulation(all_changes()[REFUSES_FOLLOWERS], judging.Limits(runs=4), first=4) == ("", 4, 0)


def test_a_judge_does_not_make_a_failing_example_smaller():
    """With this change, which leaves checkpoints beyond the log's end, shrinking took 303 seconds and 626 MB."""
    change, machine = "storage.shortening:Shortening._lower_checkpoints:bound3", "tests/storage/test_log_machine.py"
    command = [*THIS, "with", change, "pytest", *PYTEST, "--hypothesis-show-statistics", machine]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "FAILED " + machine in done.stdout and "during generate phase" in done.stdout, done.stdout
    assert "during shrink phase" not in done.stdout


def test_each_change_is_in_a_block_that_is_marked():
    modules = {each.module for each in all_changes().values()}
    marks = {
        node.args[0].value
        for module in modules
        for node in ast.walk(marked(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == MARK
        if isinstance(node.args[0], ast.Constant)
    }
    assert {place_of(each) for each in all_changes().values()} <= marks


def test_a_mark_shows_what_is_reached():
    code = "from reference.storage.checkpoints import _properties; _properties(b'a=1', '=')"
    marks = "from linearizability.mutants.code.planting import plant_marks; seen = set(); plant_marks(seen); "
    names = next(each for name, each in all_changes().items() if each.function == "_properties")
    assert run(marks + code + f"; print({place_of(names)!r} in seen, len(seen) < 10)").stdout == "True True\n"


def test_runs_that_reach_a_change_come_quickest_first_and_all_runs_if_it_is_always_reached():
    change = all_changes()[HIGH_WATERMARK]
    seconds = {"slow": 2.0, "quick": 1.0, "other": 0.5}
    assert Reached(seconds, {place_of(change): ["slow", "quick"]}).of(change) == ["quick", "slow"]
    assert Reached(seconds, {place_of(change): ["slow", ALWAYS]}).of(change) == ["slow", "other", "quick"]


def test_several_broken_promises_of_one_run_are_read():
    assert said("lost-write, leader-epoch-regression 1.25\n") == ("lost-write, leader-epoch-regression", 1.25)
    assert said("- 0.50\n") == ("-", 0.5)


def test_an_interval_is_wilsons():
    assert [round(each, 3) for each in wilson(9, 11)] == [0.523, 0.949]


def test_an_unknown_change_is_named():
    done = CliRunner().invoke(app, ["run", "storage.nonsense"])
    assert done.exit_code == 2 and "storage.nonsense" in done.output


def test_rows_of_changed_code_are_dropped(tmp_path):
    change = all_changes()[HIGH_WATERMARK]
    row = Row(change.name, change.fingerprint, change.line, change.was, change.becomes, "t", "", 5)
    store([row], tmp_path / "results.json")
    assert load(tmp_path / "results.json") == {change.name: row}
    store([replace(row, fingerprint="other")], tmp_path / "results.json")
    assert load(tmp_path / "results.json") == {}


def test_a_change_that_other_checks_did_not_detect_is_judged_again_from_the_first_run(monkeypatch: pytest.MonkeyPatch):
    missed, detected = all_changes()[HIGH_WATERMARK], all_changes()[REFUSES_FOLLOWERS]
    rows = {
        each.name: Row(each.name, each.fingerprint, each.line, each.was, each.becomes, "t", simulation, 500)
        for each, simulation in ((missed, ""), (detected, "no-progress"))
    }
    asked: list[tuple[str, int]] = []

    def judge(change: Change, limits: judging.Limits, before: Row | None) -> Row:
        assert before is not None and before.unit == "t"
        asked.append((change.name, before.runs))
        return replace(before, checks=judging.checks_of_today(), runs=limits.runs)

    monkeypatch.setattr(judging, "load", lambda: rows)
    monkeypatch.setattr(judging, "judge", judge)
    monkeypatch.setattr(judging, "store", lambda new: rows.update({row.change: row for row in new}))
    for _ in range(2):
        done = CliRunner().invoke(app, ["run", missed.name, detected.name, "--renew"])
        assert done.exit_code == 0, done.output
    assert asked == [(missed.name, 0)]


def test_the_stored_rows_can_be_read():
    rows = load(STORE)
    assert rows and all(row.fingerprint and (row.runs or row.simulation) for row in rows.values())


def test_the_stored_rows_show_the_change_that_they_name():
    compared = 0
    for row in load(STORE).values():
        change = all_changes().get(row.change)
        if change is not None and is_current(change, row):
            assert (change.was[:200], change.becomes[:200]) == (row.was, row.becomes), row.change
            compared += 1
    assert compared > len(load(STORE)) / 2
