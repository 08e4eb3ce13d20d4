"""The commands: exit codes, the last JSON line, result folders."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import conformance.requirement
import linearizability.targets
from conformance.commands import app
from conformance.contract_check import Check
from conformance.doctor import JARS, USES, examine, uses
from conformance.results import Verdict
from linearizability.results import new_run_folder
from tests.conformance.parrot import Parrot, parrot, target_of
from tests.conformance.test_runner import kept


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each requirement be judged by itself: a wrong broker also fails requirements on which others build."""
    monkeypatch.setattr(conformance.requirement, "dependencies_of", lambda id: ())


@pytest.fixture
def bird(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parrot]:
    """A wrong broker behind every target."""
    with parrot({"Fetch": kept}) as made:
        monkeypatch.setattr(linearizability.targets, "open_target", target_of(made.bootstrap))
        yield made


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def last_line(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout.strip().splitlines()[-1])


def run_json(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    result = command("run", *arguments, "--target", "addr:127.0.0.1:1", "--results", str(tmp_path), "--json")
    return result.exit_code, last_line(result)


def test_a_pass_exits_0_and_sums_up_in_one_line(bird: Parrot, tmp_path: Path) -> None:
    code, summary = run_json(tmp_path, "API-01", "API-07")
    assert code == 0
    assert summary["verdict"] == "pass"
    assert summary["must"] == {"pass": 1, "fail": 0, "tolerated": 0, "blocked": 0, "not_judged": 0}
    assert {"should", "may", "untestable", "engine_errors", "seconds", "folder"} <= set(summary)
    assert {path.name for path in Path(summary["folder"]).iterdir()} >= {"report.json", "report.html", "junit.xml"}


def test_a_failed_must_exits_1(bird: Parrot, tmp_path: Path) -> None:
    code, summary = run_json(tmp_path, "PRD-05")
    assert (code, summary["verdict"], summary["must"]["fail"]) == (1, "fail", 1)


def test_nothing_but_skips_exits_2(bird: Parrot, tmp_path: Path) -> None:
    code, summary = run_json(tmp_path, "TXN-18", "--version", "3.9.2")
    assert (code, summary["verdict"], sum(summary[level]["not_judged"] for level in ("must", "should", "may"))) == (
        2,
        "unknown",
        1,
    )


def test_a_broken_target_exits_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def broken(spec: str, **_: Any) -> Iterator[None]:
        raise OSError("no target")
        yield

    monkeypatch.setattr(linearizability.targets, "open_target", broken)
    code, summary = run_json(tmp_path, "API-01")
    assert (code, summary["verdict"]) == (3, "unknown")
    assert "no target" in summary["reason"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "XYZ-99"),
        ("run", "--level", "perhaps"),
        ("list", "NOPE"),
        ("report", "/nowhere"),
        ("run", "--confirm"),
        ("run", "--backend", "netns", "--target", "addr:127.0.0.1:1"),
    ],
)
def test_wrong_usage_is_an_error_message(arguments: tuple[str, ...]) -> None:
    result = command(*arguments)
    assert result.exit_code == 2  # typer's own; the command line's root makes it 64
    assert "Error" in result.stderr


def test_a_baseline_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path} holds no report.json" in " ".join(command("report", str(tmp_path)).stderr.split())
    absent = tmp_path / "no.json"
    said = command("run", "--baseline", str(absent), "--target", "addr:127.0.0.1:1")
    assert f"{absent} does not exist" in " ".join(said.stderr.split())


def test_repeated_runs_are_summed_up(bird: Parrot, tmp_path: Path) -> None:
    code, summary = run_json(tmp_path, "API-01", "API-07", "--repeat", "2")
    assert (code, summary["runs"], summary["flakes"]) == (0, 2, [])
    assert len(set(summary["folders"])) == 2


def test_a_changing_verdict_is_a_flake() -> None:
    from conformance.output import flakes_of
    from tests.conformance.test_report import a_run

    runs = [a_run(FRM_01=Verdict.PASS, FRM_02=Verdict.PASS), a_run(FRM_01=Verdict.PASS, FRM_02=Verdict.FAIL)]
    assert flakes_of(runs) == ["FRM-02"]


def test_expected_failures_come_from_a_file(bird: Parrot, tmp_path: Path) -> None:
    listed = tmp_path / "expected.txt"
    listed.write_text("# known\nPRD-05 9999-01-01 a parrot checks no CRC\n")
    code, summary = run_json(tmp_path, "PRD-05", "API-01", "--expected-failures", str(listed))
    assert (code, summary["verdict"]) == (0, "pass")
    listed.write_text("API-01 9999-01-01 no longer\n")
    code, summary = run_json(tmp_path, "API-01", "--expected-failures", str(listed))
    assert (code, summary["verdict"]) == (1, "fail")


def test_only_a_real_kafka_confirms(bird: Parrot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on another target is refused and stores nothing; a later run on Kafka withdraws what no longer passes."""
    monkeypatch.setattr(conformance.requirement, "CONFIRMATIONS", tmp_path / "confirmed.json")
    refused = command("run", "API-01", "--confirm", "--target", "reference:1", "--results", str(tmp_path))
    assert refused.exit_code == 2 and not (tmp_path / "confirmed.json").exists()
    conformance.requirement.confirm("4.3.1", ["API-01", "API-02"], ["API-01", "API-02"])
    conformance.requirement.confirm("4.3.1", ["API-03"], ["API-02", "API-03"])
    held = json.loads((tmp_path / "confirmed.json").read_text())
    assert held["4.3.1"] == ["API-01", "API-03"], "what was judged again and did not pass is confirmed no more"


def test_list_and_explain_show_the_records() -> None:
    assert "FRM-04" in command("list", "FRM").stdout
    listed = command("list", "--json")
    lines = [json.loads(line) for line in listed.stdout.splitlines()]
    assert lines[-1]["requirements"] == len(lines) - 1
    shown = command("explain", "PRD-05").stdout
    for words in ("PRD-05", "CORRUPT_MESSAGE", "source", "produce_batches.py"):
        assert words in shown


def test_a_verdict_that_cannot_be_stored_is_shown_and_exits_3(
    bird: Parrot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))

    monkeypatch.setattr("conformance.report.write", full)
    code, summary = run_json(tmp_path, "API-01")
    assert (code, summary["verdict"], summary["folder"]) == (3, "pass", "")


def test_on_a_full_disk_no_half_report_is_left(bird: Parrot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        whole(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    assert run_json(tmp_path, "API-01")[0] == 3
    assert not [*tmp_path.glob("*/report*")]


def test_a_summary_that_cannot_be_written_is_said_after_the_verdict(bird: Parrot, tmp_path: Path) -> None:
    wanted = str(tmp_path / "none" / "summary.md")
    done = command("run", "API-01", "--target", "addr:127.0.0.1:1", "--results", str(tmp_path), "--summary", wanted)
    assert done.exit_code == 3
    assert "pass  " in done.stdout and "the summary could not be written: No such file" in done.stderr


@pytest.mark.parametrize("where", ["a file", "nowhere"])
def test_a_results_folder_that_cannot_be_made_is_an_error_message(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    results = tmp_path / "file" if where == "a file" else Path("/proc/none")
    arguments = [
        sys.executable,
        "-m",
        "tidegauge",
        "run",
        "--target",
        "reference:1",
        "API-01",
        "--results",
        str(results),
    ]
    said = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert said.returncode == 3
    assert said.stderr.startswith("Error: ") and str(results) in said.stderr and "Traceback" not in said.stderr


def test_a_report_is_the_newest_run_whatever_came_after(
    bird: Parrot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_json(tmp_path / "results", "PRD-05")
    new_run_folder("hunt", "reference-3", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    result = command("report", "--json")
    assert (result.exit_code, last_line(result)["verdict"]) == (1, "fail")
    monkeypatch.chdir(tmp_path / "results")
    assert "tidegauge run" in command("report").output


def test_a_stored_run_is_shown_and_compared(bird: Parrot, tmp_path: Path) -> None:
    folders = [run_json(tmp_path, *ids)[1]["folder"] for ids in (("API-01",), ("API-01", "PRD-05"))]
    result = command("report", folders[1], "--json")
    assert (result.exit_code, last_line(result)["verdict"]) == (1, "fail")
    page = tmp_path / "matrix.html"
    compared = command("compare", *folders, "--html", str(page), "--json")
    assert last_line(compared)["requirements"] == 2
    assert page.exists()


def test_doctor_names_what_is_there() -> None:
    result = command("doctor", "--json")
    assert result.exit_code == 0, result.stdout
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert {"python", "loopback", "java"} <= {line.get("name") for line in lines}
    assert lines[-1]["verdict"] == "pass"


@pytest.mark.parametrize("version", ["latest", "4", "4.x", "v4.3.1"])
def test_a_version_that_is_no_release_is_wrong_usage(version: str) -> None:
    """Nothing that came later than it would be owed, so a broker would pass by a typing error."""
    result = command("run", "--target", "addr:127.0.0.1:1", "--version", version)
    assert (result.exit_code, result.stdout) == (2, "")  # the command line tool makes 64 of it
    assert f"{version!r} is no release of Apache Kafka" in result.stderr


def test_doctor_names_what_fetches_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linearizability.targets.artifacts.is_cached", lambda name: False)
    monkeypatch.setattr("conformance.doctor.find_spec", lambda name: None)
    (kafka,) = [use for use in uses(examine()[0]) if "kafka:VERSION" in use.name]
    assert "[spec]'" in kafka.obstacles[-1]
    monkeypatch.setattr("linearizability.targets.artifacts.is_cached", lambda name: name == "kafka-4.3.1")
    (jars,) = [check for check in examine()[0] if check.name == JARS]
    assert (jars.state, jars.found) == ("ok", "kept: 4.3.1")


def test_doctor_says_what_the_machine_can_be_used_for() -> None:
    found = [Check(name=name, state="ok") for needed in USES.values() for name in needed]
    assert all(use.obstacles == [] for use in uses(found))
    lacking = [Check(name="java", state="missing", advice="install Java")]
    hindered = [use for use in uses([*(one for one in found if one.name != "java"), *lacking]) if use.obstacles]
    assert [use.obstacles for use in hindered] == [["install Java"], ["install Java"]]
    assert {check.name for check in examine()[0]} >= {name for needed in USES.values() for name in needed}
