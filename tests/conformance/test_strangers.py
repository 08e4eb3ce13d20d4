"""Whole runs on brokers that others wrote: what is stored of them, and the failures that are drawn from one."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conformance import report, strangers_commands
from conformance.requirement import catalogue
from conformance.results import Judgement, Lack, Run, TargetRecord, Verdict
from conformance.strangers_commands import FOLDER, app, summary

IDS = ("PRD-05", "PRD-06", "PRD-07", "PRD-08")


def a_run(count: int = 0) -> Run:
    """A run in which the requirements IDS fail, and the others are not judged for lack of nodes."""
    judgements = [
        Judgement(requirement=entry.requirement, verdict=Verdict.NOT_JUDGED, reason="needs 3 nodes", lacks=Lack.NODES)
        for entry in catalogue().values()
    ]
    for one in judgements:
        if one.requirement.id in IDS:
            one.verdict, one.reason, one.lacks = Verdict.FAIL, f"{one.requirement.id} was seen", None
    return Run(
        suite_version="0",
        target=TargetRecord(spec="kfake:3"),
        selection="all",
        started_at="2026-11-24",
        judgements=judgements[: count or None],
    )


def test_a_whole_run_is_stored_by_the_name_of_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers_commands, "FOLDER", tmp_path)
    run = a_run()
    (tmp_path / "whole").mkdir()
    report.write(run, tmp_path / "whole")
    assert CliRunner().invoke(app, ["store", str(tmp_path / "whole")]).exit_code == 0
    kept = json.loads((tmp_path / "kfake-3.json").read_text())
    assert kept == json.loads(json.dumps(summary(run)))
    assert kept["verdicts"]["fail"] == " ".join(IDS)
    assert kept["coverage"]["judged"] == len(IDS)
    assert kept["share equipped"] == 1 > kept["share by APIs"]
    shown = CliRunner().invoke(app, ["show", "kfake-3"])
    assert shown.exit_code == 0 and "the rest lacks nodes" in shown.output


def test_a_part_of_a_run_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers_commands, "FOLDER", tmp_path)
    (tmp_path / "part").mkdir()
    report.write(a_run(10), tmp_path / "part")
    assert CliRunner().invoke(app, ["store", str(tmp_path / "part")]).exit_code != 0
    assert not [*tmp_path.glob("*.json")]


def test_the_same_seed_draws_the_same_failures(tmp_path: Path) -> None:
    report.write(a_run(), tmp_path)
    drawn = [CliRunner().invoke(app, ["draw", str(tmp_path), "--count", "2", "--seed", "7"]).output for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert sum(f"{id} was seen" in drawn[0] for id in IDS) == 2


def test_the_stored_runs_name_requirements_that_exist() -> None:
    stored = [*FOLDER.glob("*.json")]
    assert stored
    for path in stored:
        kept = json.loads(path.read_text())
        ids = {id for found in kept["verdicts"].values() for id in found.split()}
        assert ids <= catalogue().keys(), path
