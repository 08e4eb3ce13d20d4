"""`tidegauge history`: output, exit codes, wrong usage."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import tidegauge
from linearizability.history.contract import Contract
from linearizability.history.reader import read_histories
from linearizability.history.recorder import Recorder
from linearizability.history.rule_commands import app
from linearizability.history.streams import History
from linearizability.pipeline.engine import judge_history
from linearizability.pipeline.verdict import Judgement
from tests.history.judged_histories import Clock, record
from tests.rules.test_labelled import LABELLED


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], standalone_mode=False)


def test_one_object_a_history_and_one_that_sums_up() -> None:
    result = run("check", "--format", "neutral", "--engine", "local", "--json", LABELLED)
    *histories, summary = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(histories) == 500 == summary["histories"]
    assert {"id", "verdict", "anomalies"} <= set(histories[0])
    assert histories[0]["id"] == "rand-944" and histories[0]["anomalies"]["inconsistent-offsets"] == 2
    assert result.return_value == 1 and summary["verdict"] == "invalid"
    assert summary["valid"] + summary["invalid"] + summary["unknown"] == 500


def test_exit_codes(tmp_path: Path) -> None:
    files = record(tmp_path)
    assert run("check", tmp_path).return_value == 0
    files[0].write_text(files[0].read_text()[:-40])
    result = run("check", tmp_path)
    assert result.return_value == 2 and f"{files[0]}:" in result.stdout


@pytest.mark.parametrize("arguments", [["check"], ["check", "/no/such/file"], ["check", "--format", "x", "/tmp"]])
def test_wrong_usage(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exception is not None and type(result.exception).__name__ in {"MissingParameter", "BadParameter"}


def test_show_and_report(tmp_path: Path) -> None:
    files = record(tmp_path / "run")
    files[1].write_text(files[1].read_text().replace("[[4,4],[5,5]]", "[[5,5],[4,4]]"))
    result = run("show", tmp_path / "run", "--rule", "int-nonmonotonic-poll", "--svg", tmp_path / "svg")
    assert "process 2 was given offset 4 after 5" in result.stdout and "poll t-0:5@5 t-0:4@4" in result.stdout
    (drawing,) = (tmp_path / "svg").iterdir()
    assert "t-0:5@5" in drawing.read_text()
    result = run("check", tmp_path / "run", "--report", tmp_path / "report.html")
    assert result.return_value == 1
    html = (tmp_path / "report.html").read_text()
    assert (
        "int-nonmonotonic-poll" in html
        and "<svg" in html
        and "src=" not in html
        and "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    )


def test_output_folder(tmp_path: Path) -> None:
    files = record(tmp_path / "run")
    files[1].write_text(files[1].read_text().replace("[[4,4],[5,5]]", "[[5,5],[4,4]]"))
    run("check", tmp_path / "run", "--output", tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"summary.json", "anomalies.parquet", "series-0000.parquet", "series-0000.svg", "report.html"}
    rows = pq.read_table(tmp_path / "out" / "anomalies.parquet").to_pylist()
    assert sum(row["count"] for row in rows) == 3 and {row["topic"] for row in rows} == {"t"}
    assert sum(pq.read_table(tmp_path / "out" / "series-0000.parquet")["ok"].to_pylist()) > 0


@pytest.mark.parametrize("form", ["neutral", "edn", "parquet"])
def test_export_is_judged_like_the_original(tmp_path: Path, form: str) -> None:
    files = record(tmp_path / "run")
    files[1].write_text(files[1].read_text().replace("[[4,4],[5,5]]", "[[5,5],[4,4]]"))
    out = tmp_path / {"neutral": "out.jsonl.gz", "edn": "out.edn", "parquet": "store"}[form]
    assert run("export", tmp_path / "run", out, "--to", form).return_value == 0
    original, exported = (
        json.loads(run("check", "--json", path).stdout.splitlines()[0]) for path in (tmp_path / "run", out)
    )
    assert exported["anomalies"] == original["anomalies"] == {"int-nonmonotonic-poll": 1, "poll-skip": 2}
    assert exported["verdict"] == "invalid"


def test_import(tmp_path: Path) -> None:
    run("export", "--to", "edn", record(tmp_path / "run")[0].parent, tmp_path / "h.edn")
    assert run("import", tmp_path / "h.edn", tmp_path / "h.jsonl").return_value == 0
    assert run("check", "--format", "neutral", tmp_path / "h.jsonl").return_value == 0
    (tmp_path / "bad").write_text("nonsense\n")
    assert run("import", tmp_path / "bad", tmp_path / "out").return_value == 2


def test_rules_are_explained() -> None:
    *records, summary = [json.loads(line) for line in run("rules", "--json").stdout.splitlines()]
    assert summary["rules"] == len(records) > 40
    assert "0 send t-0:1@0" in run("rules", "lost-write").stdout


def test_exit_code_of_the_program(tmp_path: Path) -> None:
    record(tmp_path)
    command = [sys.executable, "-m", "tidegauge", "history", "check", "--json"]
    assert subprocess.run([*command, tmp_path], capture_output=True).returncode == 0
    assert subprocess.run([*command, LABELLED], capture_output=True).returncode == 1
    assert subprocess.run([*command, tmp_path / "none"], capture_output=True).returncode == 64


def test_a_mistake_of_ours_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python itself would exit with 1, the code of "invalid"."""

    def broken(*_: object) -> Iterator[Judgement]:
        raise RuntimeError("a mistake")

    monkeypatch.setattr("linearizability.pipeline.engine.check", broken)
    with pytest.raises(SystemExit) as end:
        tidegauge.main(["history", "check", str(tmp_path)])
    assert end.value.code == tidegauge.ENGINE_ERROR


def test_marks_stand_where_they_were_made(tmp_path: Path) -> None:
    """A fault that was written behind later events would look like a clock that steps back."""
    clock = Clock()
    with Recorder.open(tmp_path / "run", process=0, run="r", clock=clock) as nemesis:
        nemesis.mark("fault", name="kill", node=1)
        record(tmp_path / "run", clock)
        nemesis.mark("heal", name="kill", node=1)
    again = tmp_path / "again.jsonl"
    for source, target, command in ((tmp_path / "run", again, "export"), (again, tmp_path / "twice.jsonl", "import")):
        run(command, *(("--to", "neutral") if command == "export" else ()), source, target)
        (exported,) = read_histories([target])
        assert isinstance(exported, History) and not exported.defects
        assert [mark["f"] for mark in exported.marks] == ["fault", "heal"]
        assert judge_history(exported).verdict == "valid"


def test_what_is_wrong_with_a_history_is_exported_too(tmp_path: Path) -> None:
    """Else the copy would be judged better than the original. EDN has no place for defects: such an export is refused."""
    files = record(tmp_path / "run")
    files[1].write_text("".join(files[1].read_text().splitlines(keepends=True)[:-1]))
    assert run("export", "--to", "neutral", tmp_path / "run", tmp_path / "out.jsonl").return_value == 2
    original, exported = (
        json.loads(run("check", "--json", path).stdout.splitlines()[0])
        for path in (tmp_path / "run", tmp_path / "out.jsonl")
    )
    assert exported["verdict"] == original["verdict"] == "unknown" and exported["reasons"] == original["reasons"]
    result = run("export", "--to", "edn", tmp_path / "run", tmp_path / "out.edn")
    assert result.return_value == 2 and not (tmp_path / "out.edn").exists()


@pytest.mark.parametrize("form", ["neutral", "edn"])
def test_several_contracts_of_one_run_are_not_exported_as_one(tmp_path: Path, form: str) -> None:
    clock = Clock()
    record(tmp_path / "run", clock)
    Recorder.open(tmp_path / "run", process=0, run="r", contract=Contract(acks="1"), clock=clock).close()
    result = run("export", "--to", form, tmp_path / "run", tmp_path / "out")
    assert result.return_value == 2 and "different contracts" in result.stderr
    assert run("export", "--to", "parquet", tmp_path / "run", tmp_path / "store").return_value == 0
