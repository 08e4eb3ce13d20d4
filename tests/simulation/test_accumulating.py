"""Recorded runs: their rows, the first seed of the next run, and the sums."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from linearizability.simulation.accumulating import PAGE, STORE, Run, next_seed, read_runs, record, table, write_table
from linearizability.simulation.commands import app


def run(nodes: int, first_seed: int, schedules: int, workload: str = "records", **fields: Any) -> Run:
    known = Run(
        date="2026-11-22",
        commit="abc",
        nodes=nodes,
        workload=workload,
        first_seed=first_seed,
        schedules=schedules,
        valid=schedules,
        unknown=0,
        messages=10,
        cpu_seconds=1.0,
    )
    return replace(known, **fields)


def test_what_is_recorded_is_read_again(tmp_path: Path):
    runs = [run(3, 0, 10, violations=((4, "logs-differ"),), valid=9), run(1, 0, 5)]
    for each in runs:
        record(each, tmp_path / "runs.jsonl")
    assert read_runs(tmp_path / "runs.jsonl") == runs
    assert read_runs(tmp_path / "none.jsonl") == []


def test_a_run_goes_on_where_its_like_ended():
    runs = [run(3, 0, 10), run(3, 10, 5), run(3, 0, 100, "groups"), run(1, 0, 7)]
    runs += [run(3, 0, 20, coordination="zookeeper")]
    series = [("kraft", 3, "records"), ("kraft", 3, "groups"), ("kraft", 5, "records"), ("zookeeper", 3, "records")]
    assert [next_seed(*each, runs) for each in series] == [15, 100, 0, 20]


def test_the_table_adds_up(tmp_path: Path):
    runs = [
        run(3, 0, 10, valid=9, violations=((4, "logs-differ"),)),
        run(3, 10, 1_000, date="2026-11-23"),
        run(1, 0, 7),
        run(1, 0, 2, coordination="zookeeper"),
    ]
    lines = table(runs).splitlines()
    assert lines[2] == "| kraft | 1 | records | 7 | 7 | 0 | 0 | 10 | 1 | 2026-11-22 | 2026-11-22 |"
    assert lines[3] == "| kraft | 3 | records | 1,010 | 1,009 | 0 | 1 | 20 | 2 | 2026-11-22 | 2026-11-23 |"
    assert lines[4].startswith("| zookeeper | 1 | records | 2 |")
    assert lines[5].startswith("| all | all | all | 1,019 | 1,018 |")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- accumulated: begin -->\nold\n<!-- accumulated: end -->\nafter\n")
    write_table(runs, page)
    assert page.read_text().splitlines() == [
        "before",
        "<!-- accumulated: begin -->",
        *lines,
        "<!-- accumulated: end -->",
        "after",
    ]


def test_the_page_says_what_the_repository_keeps():
    assert table(read_runs(STORE)) in PAGE.read_text()


@pytest.mark.parametrize("first", [0, 2])
def test_fuzz_records_its_run(tmp_path: Path, first: int):
    store = tmp_path / "runs.jsonl"
    if first:
        record(run(1, 0, first), store)
    options = ["--schedules", "1", "--jobs", "1", "--results", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, ["fuzz", *options, "--record", "--store", str(store)], standalone_mode=False)
    said = json.loads(result.stdout.splitlines()[-1])
    kept = read_runs(store)[-1]
    assert (kept.first_seed, kept.schedules, kept.messages) == (first, 1, said["messages"])
    assert said["first_seed"] == first


@pytest.mark.parametrize("more", [["--mutant", "kip-101-loss"], ["--seed", "7"], ["--by-history"]])
def test_only_plain_runs_from_the_next_seed_on_are_recorded(tmp_path: Path, more: list[str]):
    store = tmp_path / "runs.jsonl"
    result = CliRunner().invoke(app, ["fuzz", "--schedules", "1", "--record", "--store", str(store), *more])
    assert result.exit_code == 2 and not store.exists()
