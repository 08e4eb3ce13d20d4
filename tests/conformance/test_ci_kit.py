"""What CI needs of a run: the baseline, expected failures, JUnit, the summary, badges, and exit codes."""

from __future__ import annotations

import re
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from junit2htmlreport import parser as junit2html
from junitparser import JUnitXml
from typer.testing import CliRunner

import conformance.requirement
import linearizability.targets
from conformance import baseline, report
from conformance.commands import app
from conformance.expectations import Expectation, read
from conformance.output import exit_code
from conformance.report.badge import GREEN, GREY, RED, YELLOW, badge
from conformance.report.junit import junit
from conformance.report.markdown import summary
from conformance.results import INTERRUPTED, Lack, ProfileTally, Run, RunVerdict, Verdict
from tests.conformance.parrot import parrot, target_of
from tests.conformance.test_report import a_run
from tests.conformance.test_runner import kept

P, F, T, B, N, E = (
    Verdict.PASS,
    Verdict.FAIL,
    Verdict.TOLERATED,
    Verdict.BLOCKED,
    Verdict.NOT_JUDGED,
    Verdict.ENGINE_ERROR,
)


@pytest.mark.parametrize(
    ("before", "now", "word"),
    [
        (P, F, "worse"), (P, B, "worse"), (P, T, "worse"), (P, N, "worse"), (T, F, "worse"), (T, N, "worse"),
        (P, P, ""), (P, E, ""), (F, F, ""), (F, B, ""), (B, F, ""), (F, N, ""), (N, F, ""), (N, P, ""), (E, F, ""),
        (F, P, "better"), (B, P, "better"), (T, P, "better"), (F, T, "better"),
    ],
)  # fmt: skip
def test_what_is_worse_and_what_is_better(before: Verdict, now: Verdict, word: str) -> None:
    worse, better = baseline.compare(a_run(FRM_01=now), {"FRM-01": before})
    assert ("worse" if worse else "better" if better else "") == word


def test_what_was_not_reached_or_is_not_owed_is_not_worse() -> None:
    for change in ({"unreached": True}, {"lacks": Lack.RELEASE}):
        run = a_run(FRM_01=N)
        run.judgements = [run.judgements[0].model_copy(update=change)]
        assert baseline.compare(run, {"FRM-01": P}) == ([], [])


def test_only_a_failure_of_the_baseline_excuses_a_failure() -> None:
    failing = a_run(FRM_01=F).judgements[0]
    assert [before for before in (*Verdict, None) if baseline.excused(failing, before)] == [F, B]


def test_an_expectation_has_a_day_and_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "expected.txt"
    file.write_text("# ours\n\nPRD-05  2027-03-01  no CRC: issue #812\n")
    assert read(file, ["PRD-05"]) == [Expectation("PRD-05", date(2027, 3, 1), "no CRC: issue #812")]
    assert [read(file, ["PRD-05"])[0].expired(date(2027, 3, day)) for day in (1, 2)] == [False, True]
    for line, problem in (
        ("PRD-05", "a reason are needed"), ("PRD-05 2027-03-01", "a reason are needed"), ("XXX-01 2027-03-01 why", "no such"),
        ("PRD-05 soon why", "'soon' is no day"), ("PRD-05 2027-03-01 a\nPRD-05 2027-03-01 b", "line 2: PRD-05 is there already"),
    ):  # fmt: skip
        file.write_text(line)
        with pytest.raises(ValueError, match=problem):
            read(file, ["PRD-05"])


def test_two_readers_find_the_same_in_junit(tmp_path: Path) -> None:
    run = a_run(FRM_01=P, FRM_02=F, FRM_03=E, PRD_05=N, PRD_06=F, PRD_07=B)
    run.judgements[4].expected = True
    (tmp_path / "junit.xml").write_bytes(junit(run))
    first = JUnitXml.fromstring(junit(run))
    cases = {case.name: type(case.result[0]).__name__ if case.result else "passed" for suite in first for case in suite}
    second = junit2html.Junit(str(tmp_path / "junit.xml"))
    again = {case.name: case.outcome() for suite in second.suites for case in suite.all()}
    assert cases == {
        "FRM-01": "passed",
        "FRM-02": "Failure",
        "FRM-03": "Error",
        "PRD-05": "Skipped",
        "PRD-06": "Skipped",
        "PRD-07": "Skipped",
    }
    assert {name: again[name] for name in cases} == {
        "FRM-01": "passed",
        "FRM-02": "failed",
        "FRM-03": "failed",
        "PRD-05": "skipped",
        "PRD-06": "skipped",
        "PRD-07": "skipped",
    }
    assert [(suite.tests, suite.failures, suite.errors, suite.skipped) for suite in first] == [
        (3, 1, 1, 0),
        (3, 0, 0, 3),
    ]


def test_the_summary_is_markdown_that_what_was_seen_cannot_break() -> None:
    run = a_run(FRM_01=F, FRM_02=P)
    run.judgements[0].reason = "a | b\n<img> `x`"
    run.worse, run.better = baseline.compare(run, {"FRM-01": P, "FRM-02": F})
    run.baseline = "addr:a, yesterday"
    run.sum_up()
    text = summary(run)
    assert "| FRM-01 | must | a \\| b \\<img\\> \\`x\\` |  |" in text
    assert "### Worse than the baseline: 1\n\n- FRM-01: pass, now fail." in text
    assert "### Better than the baseline: 1\n\n- FRM-02: fail, now pass." in text
    assert "| core | 2 | 2 | 1 |" in text
    assert run.verdict is RunVerdict.FAIL


@pytest.mark.parametrize(
    ("judged", "failed", "colour"), [(4, [], GREEN), (3, [], YELLOW), (4, ["FRM-01"], RED), (0, [], GREY)]
)
def test_a_badge_has_the_colour_of_what_was_judged(judged: int, failed: list[str], colour: str) -> None:
    text = badge(ProfileTally(profile="core", musts=4, judged=judged, failed=failed))  # pyright: ignore
    root = ElementTree.parse(BytesIO(text.encode())).getroot()
    assert colour in text
    assert root.get("aria-label") == f"tidegauge core: {judged - len(failed)} of 4 musts pass"


def test_an_interrupted_run_is_unknown_and_a_failure_before_is_one() -> None:
    run = a_run(FRM_01=P)
    run.sum_up(target_broke=INTERRUPTED)
    assert exit_code(run) == 2
    run = a_run(FRM_01=F)
    run.sum_up(target_broke=INTERRUPTED)
    assert exit_code(run) == 1


def test_the_command_compares_summarizes_and_leaves_badges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance.requirement, "dependencies_of", lambda id: ())
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "job.md"))
    results = ["--results", str(tmp_path / "results"), "--summary", str(tmp_path / "summary.md")]

    def judge(*arguments: str) -> tuple[int, Run]:
        with parrot({"Fetch": kept}) as bird:
            monkeypatch.setattr(linearizability.targets, "open_target", target_of(bird.bootstrap))
            code = CliRunner().invoke(app, ["run", "API-01", "PRD-05", *results, *arguments]).exit_code
        return code, report.read(tmp_path / "results" / "latest")

    code, first = judge()
    stored = tmp_path / "results" / "latest" / "report.json"
    kept_report: Any = tmp_path / "baseline.json"
    kept_report.write_bytes(stored.read_bytes())
    assert (code, first.verdict) == (1, RunVerdict.FAIL)
    code, again = judge("--baseline", str(kept_report))
    assert (code, again.verdict, again.worse) == (0, RunVerdict.PASS, [])
    kept_report.write_text(re.sub(r'"verdict": "fail"', '"verdict": "pass"', kept_report.read_text()))
    code, worse = judge("--baseline", str(kept_report))
    assert (code, [one.id for one in worse.worse]) == (1, ["PRD-05"])
    assert "worse than the baseline" in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "job.md").read_text().count("## Conformance of") == 3
    assert (tmp_path / "results" / "latest" / "badges" / "core.svg").exists()
