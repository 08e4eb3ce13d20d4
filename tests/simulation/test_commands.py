"""`tidegauge fuzz` and the replay of its stored schedules."""

import json
from collections import Counter
from concurrent.futures import wait
from pathlib import Path

import pytest

import tidegauge
from linearizability.results import suite_version
from linearizability.simulation import fuzzing
from linearizability.simulation.accumulating import run_of
from linearizability.simulation.commands import _print, replay_schedule
from linearizability.simulation.fuzzing_summary import Plan, Small, Summary
from linearizability.simulation.schedule import Schedule, read_schedule


def run(arguments: list[str], capsys) -> tuple[int, list[str]]:
    with pytest.raises(SystemExit) as ended:
        tidegauge.main(arguments)
    return int(ended.value.code or 0), capsys.readouterr().out.splitlines()


def test_fuzz_sums_up_in_its_last_line_and_leaves_a_folder(tmp_path: Path, capsys):
    code, lines = run(["fuzz", "--schedules", "3", "--jobs", "1", "--json", "--results", str(tmp_path)], capsys)
    said = json.loads(lines[-1])
    assert code == 0
    assert said["verdict"] == "valid" and said["schedules"] == 3 and not said["violations"]
    assert said["messages"] > 0 and said["schedules_per_second"] > 0 and said["coverage"]
    folder = Path(said["folder"])
    stored = json.loads((folder / "summary.json").read_text())
    assert (stored["schedules"], stored["tidegauge"]) == (3, suite_version())
    assert json.loads((folder / "config.json").read_text())["schedules"] == 3


def test_what_fuzz_finds_is_small_and_fails_again(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, lines = run(["fuzz", "--mutant", "high-watermark-back", "--until-found", "--jobs", "1", "--json"], capsys)
    said = json.loads(lines[-1])
    assert code == 1 and said["verdict"] == "invalid"
    (found,) = said["violations"]
    folder = Path(found["folder"])
    small = read_schedule(folder / "schedule.json")
    original = read_schedule(folder / "original.json")
    assert len(small.faults) <= len(original.faults) and len(small.clients) <= len(original.clients)
    assert small.mutant == "high-watermark-back"
    first = json.loads((folder / "outcome.json").read_text())
    capsys.readouterr()
    assert replay_schedule(Path(said["folder"]), Schedule, json=True) == 1
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (again["digest"], again["rule"]) == (first["digest"], first["rule"])
    assert "VIOLATION high-watermark-back" in (folder / "explanation.txt").read_text()
    assert list((folder / "history").glob("history-*.jsonl"))


def test_an_unknown_mutant_is_wrong_usage(capsys):
    code, _ = run(["fuzz", "--mutant", "nonsense"], capsys)
    assert code == 64


def test_replaying_what_is_no_schedule_is_an_engine_error(tmp_path: Path, capsys):
    (tmp_path / "x.json").write_text("[]")
    assert replay_schedule(tmp_path / "x.json", Schedule) == 3
    assert "no schedule" in capsys.readouterr().err


@pytest.mark.sampled(days=5)
def test_several_processes_give_the_same_runs(tmp_path: Path, capsys):
    both = []
    for jobs in ("1", "2"):
        _, lines = run(
            ["fuzz", "--schedules", "4", "--seed", "20", "--jobs", jobs, "--json", "--results", str(tmp_path)], capsys
        )
        said = json.loads(lines[-1])
        both.append((said["messages"], said["coverage"], said["permitted"], said["verdict"]))
    assert both[0] == both[1]


@pytest.mark.sampled(days=5)
def test_a_cluster_is_fuzzed_shrunk_and_drawn(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["fuzz", "--mutant", "kip-497", "--until-found", "--jobs", "1", "--json"]
    code, lines = run(arguments, capsys)
    said = json.loads(lines[-1])
    assert (code, said["nodes"], said["verdict"]) == (1, 3, "invalid")
    (found,) = said["violations"]
    folder = Path(found["folder"])
    small = read_schedule(folder / "schedule.json")
    original = read_schedule(folder / "original.json")
    assert 2 <= small.nodes <= 3, "one node alone has no ISR to ignore"
    assert len(small.faults) <= len(original.faults) and len(small.clients) <= len(original.clients)
    diagram = (folder / "diagram.mmd").read_text()
    assert diagram.startswith("sequenceDiagram") and "VIOLATION" in diagram and "->>node" in diagram
    assert json.loads((Path(said["folder"]) / "pairs.json").read_text())


@pytest.mark.sampled(days=5)
def test_an_interrupt_keeps_what_is_finished_and_is_no_verdict(tmp_path: Path, monkeypatch):
    waits = 0

    def interrupted(*arguments, **options):
        nonlocal waits
        waits += 1
        if waits == 2:
            raise KeyboardInterrupt
        return wait(*arguments, **options)

    monkeypatch.setattr(fuzzing, "wait", interrupted)
    summary = fuzzing.fuzz(Plan(tmp_path, schedules=1_000, jobs=2))
    assert summary.interrupted and 10 <= len(summary.runs) < 1_000
    assert {run.verdict for run in summary.runs} == {"valid"} and summary.verdict == "unknown"
    assert json.loads((tmp_path / "summary.json").read_text())["reason"].startswith("interrupted after")
    recorded = run_of(summary)
    assert [run.seed for run in summary.runs[: recorded.schedules]] == [*range(recorded.next_seed)]
    assert recorded.next_seed not in [run.seed for run in summary.runs]


def test_an_interrupt_in_one_process_keeps_what_is_finished(tmp_path: Path):
    def progress(summary: Summary) -> None:
        if len(summary.runs) == 3:
            raise KeyboardInterrupt

    summary = fuzzing.fuzz(Plan(tmp_path, schedules=20), progress)
    assert (len(summary.runs), summary.verdict) == (3, "unknown")


def test_a_full_disk_loses_no_verdict(tmp_path: Path):
    (tmp_path / "summary.json").symlink_to("/dev/full")
    summary = fuzzing.fuzz(Plan(tmp_path, schedules=1))
    assert (summary.verdict, summary.not_kept) == ("valid", "No space left on device")


@pytest.mark.parametrize(
    ("verdicts", "verdict", "reason"),
    [
        ({"": "valid", "no record was read": "unknown"}, "valid", ""),
        ({"no record was read": "unknown"}, "unknown", "no run showed enough"),
        ({"": "valid", "1 × nonlinearizable-register: too long": "unknown"}, "unknown", "1 runs are undecided"),
        ({"": "valid", "no record was read; 2 × offset-reuse: open": "unknown"}, "unknown", "1 runs are undecided"),
        ({"1 × nonlinearizable-register: too long": "unknown", "offset 3 twice": "invalid"}, "invalid", ""),
    ],
)
def test_a_run_that_is_undecided_is_no_valid_one(
    tmp_path: Path, capsys, verdicts: dict[str, str], verdict: str, reason: str
):
    summary = Summary(Plan(tmp_path, schedules=2))
    for seed, (text, each) in enumerate(verdicts.items()):
        summary.add(Small(seed, each, "", text, 1, 1, 1, 0, 0.1, Counter(), {}, 0, {}, ""))
    assert summary.verdict == verdict and summary.reason.startswith(reason) and bool(summary.reason) == bool(reason)
    unknown = [{"seed": s, "reason": t} for s, (t, each) in enumerate(verdicts.items()) if each == "unknown"]
    assert summary.to_json()["unknown_runs"] == unknown
    _print(summary)
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("unknown")] == [
        f"unknown at seed {each['seed']}: {each['reason']}" for each in unknown
    ]
