"""`tidegauge bench fuzz`: trials, the stored results, and the table."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linearizability.bench import fuzz as bench
from linearizability.bench.commands import app
from linearizability.bench.fuzz import EVERYTHING, HISTORY, Task, Trial, read_store, rows, run_trial, table, tasks
from linearizability.mutants.registry import MUTANTS
from linearizability.simulation.remote_interpreter import RemoteInterpreter


def test_a_trial_counts_the_runs_until_the_bug_is_found():
    trial = run_trial(Task("acknowledged-before-commit", EVERYTHING, 0), most=10)
    assert trial.schedules is not None and trial.schedules == trial.runs <= 10
    assert trial.rule == "acknowledged-before-commit" and trial.seconds > 0


def test_another_interpreter_finds_the_same():
    remote = RemoteInterpreter(sys.executable, "PyPy 3.11")
    try:
        for name, by in (("acknowledged-before-commit", EVERYTHING), ("acks-all-as-one", HISTORY)):
            task = Task(name, by, 0)
            here, there = run_trial(task, most=20), run_trial(task, most=20, interpreter=remote)
            assert here.schedules is not None and there.seconds > 0
            assert there == replace(here, seconds=there.seconds, python="PyPy 3.11")
        unseen = Task("acknowledged-before-commit", HISTORY, 9)
        assert run_trial(unseen, 1, remote).runs == 1
    finally:
        remote.close()


def test_the_table_names_another_interpreter(tmp_path: Path):
    store = tmp_path / "fuzz.json"
    trials = {
        "kip-279/history/0": Trial(1336, 749.6, 1336, "leader-epoch-regression", "x"),
        "kip-279/history/1": Trial(2000, 300.0, 2000, "leader-epoch-regression", "x", "PyPy 3.11"),
    }
    bench.write_store(store, trials)
    assert store.read_text().count("python") == 1 and read_store(store) == trials
    assert "| records, 3 nodes | history (1 by PyPy 3.11) | 2 |" in table(rows(["kip-279"], trials))


def test_an_interpreter_that_cannot_execute_runs_is_wrong_usage(tmp_path: Path):
    ended = CliRunner().invoke(
        app, ["fuzz", "--python", str(tmp_path / "none"), "--store", str(tmp_path / "fuzz.json")]
    )
    assert ended.exit_code == 2 and "does not run" in ended.output


def test_a_trial_that_does_not_find_its_bug_has_no_number_of_schedules(monkeypatch):
    monkeypatch.setitem(MUTANTS, "fencing-unnoticed", MUTANTS["unknown-tags-refused"])
    assert run_trial(Task("fencing-unnoticed", EVERYTHING, 0), most=1).schedules is None


def test_one_trial_of_each_comes_before_the_second_of_any():
    drawn = [*tasks(["kip-101-loss", "fencing-unnoticed"], 2)]
    assert [(task.mutant, task.by, task.trial) for task in drawn] == [
        (name, by, trial)
        for trial in range(2)
        for name, by in (("kip-101-loss", EVERYTHING), ("fencing-unnoticed", EVERYTHING), ("kip-101-loss", HISTORY))
    ]
    assert len({task.first_seed for task in drawn}) == 2


def test_a_bug_that_only_histories_show_has_no_trial_of_everything(tmp_path: Path):
    assert {task.by for task in tasks(["kip-101-divergence"], 2)} == {HISTORY}
    store = tmp_path / "fuzz.json"
    asked = bench.fingerprint("kip-101-divergence")
    trials = {
        f"kip-101-divergence/{by}/0": Trial(3, 0.5, 3, "inconsistent-offsets", asked) for by in (EVERYTHING, HISTORY)
    }
    bench.write_store(store, trials)
    arguments = ["fuzz", "--mutant", "kip-101-divergence", "--seeds", "1", "--store", str(store), "--resume", "--json"]
    ended = CliRunner().invoke(app, arguments)
    assert [row["by"] for row in json.loads(ended.stdout.splitlines()[-1])["rows"]] == [HISTORY]


def test_resuming_runs_only_what_is_missing_or_stale(tmp_path: Path, monkeypatch):
    ran: list[str] = []

    def trial(task: Task, most: int, leader: RemoteInterpreter | None) -> Trial:
        ran.append(task.name)
        return Trial(3, 0.5, 3, "logs-differ", bench.fingerprint(task.mutant))

    monkeypatch.setattr(bench, "run_trial", trial)
    store = tmp_path / "fuzz.json"
    arguments = ["fuzz", "--mutant", "fencing-unnoticed", "--seeds", "2", "--store", str(store), "--resume", "--json"]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    assert ran == ["fencing-unnoticed/everything/0", "fencing-unnoticed/everything/1"]
    (row,) = json.loads(first.stdout.splitlines()[-1])["rows"]
    assert row["found"] == 2 and row["median_schedules"] == 3
    CliRunner().invoke(app, arguments)
    assert len(ran) == 2, "all of it was kept"
    kept = json.loads(store.read_text())
    kept["fencing-unnoticed/everything/1"]["fingerprint"] = "another"
    store.write_text(json.dumps(kept))
    CliRunner().invoke(app, arguments)
    assert ran[2:] == ["fencing-unnoticed/everything/1"]


def test_stale_trials_of_other_mutants_are_kept_and_counted(tmp_path: Path, monkeypatch):
    def trial(task: Task, most: int, leader: RemoteInterpreter | None) -> Trial:
        return Trial(3, 0.5, 3, "logs-differ", bench.fingerprint(task.mutant))

    store, page = tmp_path / "fuzz.json", tmp_path / "TIMES.md"
    page.write_text(f"<!-- {bench.PART}: begin -->\n<!-- {bench.PART}: end -->\n")
    monkeypatch.setattr(bench, "run_trial", trial)
    monkeypatch.setattr(bench, "PAGE", page)
    former = Trial(7, 0.5, 7, "fenced-member-in-isr", "another")
    names = [f"{name}/everything/{index}" for name in ("fencing-unnoticed", "kip-497") for index in (0, 1)]
    bench.write_store(store, dict.fromkeys([*names, "nonsense/everything/0"], former))
    arguments = ["fuzz", "--mutant", "fencing-unnoticed", "--seeds", "1", "--store", str(store), "--resume"]
    ended = CliRunner().invoke(app, [*arguments, "--record", "--json"])
    assert ended.exit_code == 0, ended.output
    kept = read_store(store)
    assert [*kept] == names and [name for name in names if kept[name] == former] == names[1:]
    (row,) = json.loads(ended.stdout.splitlines()[-1])["rows"]
    assert (row["mutant"], row["trials"], row["stale"]) == ("fencing-unnoticed", 2, 1)
    written = page.read_text()
    assert "| `fencing-unnoticed` | records, 3 nodes | everything (1 stale) | 2 |" in written
    assert "| `kip-497` | records, 3 nodes | everything (2 stale) | 2 |" in written


def test_a_change_of_a_bugs_judges_does_not_make_its_trials_stale(monkeypatch):
    kept = bench.fingerprint("fencing-unnoticed")
    monkeypatch.setitem(
        MUTANTS, "fencing-unnoticed", replace(MUTANTS["fencing-unnoticed"], in_history=False, caught_by=("REP-01",))
    )
    assert bench.fingerprint("fencing-unnoticed") == kept
    body = bench._body(MUTANTS["fencing-unnoticed"].replacement)
    assert body.startswith("def fencing_unnoticed(") and "in_history" not in body


def test_a_trial_without_a_find_is_repeated_with_more_runs(tmp_path, monkeypatch):
    runs: list[int] = []

    def trial(task: Task, most: int, leader: RemoteInterpreter | None) -> Trial:
        runs.append(most)
        return Trial(None, 0.5, most, "", bench.fingerprint(task.mutant))

    monkeypatch.setattr(bench, "run_trial", trial)
    arguments = [
        "fuzz",
        "--mutant",
        "fencing-unnoticed",
        "--seeds",
        "1",
        "--store",
        str(tmp_path / "fuzz.json"),
        "--resume",
    ]
    for most in ("5", "5", "3", "9"):
        assert CliRunner().invoke(app, [*arguments, "--schedules", most]).exit_code == 0
    assert runs == [5, 9]


def test_the_table_names_median_and_worst():
    trials = {
        f"fencing-unnoticed/everything/{index}": Trial(n, 1.0, n, "logs-differ", "x")
        for index, n in enumerate((1, 9, 2))
    }
    trials["fencing-unnoticed/everything/3"] = Trial(None, 8.0, 50, "", "x")
    assert "| `fencing-unnoticed` | records, 3 nodes | everything | 4 | 3 | 2 | 9 | 1 | logs-differ |" in table(
        rows(["fencing-unnoticed"], trials)
    )


def test_an_unknown_mutant_is_wrong_usage():
    assert CliRunner().invoke(app, ["fuzz", "--mutant", "nonsense"]).exit_code != 0


@pytest.mark.parametrize("name", sorted({name.split("/")[0] for name in read_store(bench.STORE)}))
def test_the_stored_trials_are_of_registered_mutants(name: str):
    assert name in MUTANTS
