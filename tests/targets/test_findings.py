"""Every finding has a page with its parts and a reproduction that exists; an outcome is shown, not shown or could not run."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from conformance.requirement import catalogue
from linearizability.findings import reproducing
from linearizability.findings.commands import app
from linearizability.findings.finding import HOME, load, names, page
from linearizability.findings.reproducing import REPOSITORY, reproduce
from linearizability.rules import RULES

PARTS = ["```mermaid", "**Reproduction.**", "**Specification", "tidegauge findings reproduce"]


@pytest.mark.parametrize("name", names())
def test_a_finding_has_its_parts(name: str) -> None:
    finding, text = load(name), page(name)
    assert text.startswith(f"# {finding.title}\n") and all(part in text for part in PARTS)
    assert f"({name}/README.md)" in (HOME / "README.md").read_text()
    shown = finding.reproduction
    match shown.kind:
        case "clients":
            assert (HOME / name / "reproduction.py").is_file()
        case "test":
            assert (REPOSITORY / shown.arguments[0]).is_file()
        case "requirement":
            assert {*shown.arguments} <= catalogue().keys() and shown.shows
        case "hunt":
            assert shown.shows and {*shown.shows} <= RULES.keys()
    assert shown.kind == "hunt" or any(each.verdict == "shown" for each in finding.outcomes)


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ('{"id": "TXV-24", "verdict": "tolerated", "reason": "KAFKA-20734: no marker"}', "shown"),
        ('{"id": "TXV-24", "verdict": "pass", "reason": ""}', "not shown"),
        ('{"id": "TXV-24", "verdict": "fail", "reason": "not within 20 s"}', "could not run"),
        ("", "could not run"),
    ],
)
def test_a_requirement_that_failed_otherwise_shows_nothing(
    line: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = type("Done", (), {"stdout": line})
    monkeypatch.setattr(reproducing, "_run", lambda *_: answer)
    assert reproduce("unwritten-marker").verdict == verdict


@pytest.mark.parametrize(
    ("summary", "verdict"),
    [
        ('{"verdict": "invalid", "anomalies": {"lost-write": 2}}', "shown"),
        ('{"verdict": "invalid", "anomalies": {"no-progress": 1}}', "could not run"),
        ('{"verdict": "valid", "anomalies": {}}', "not shown"),
        ('{"verdict": "unknown", "anomalies": {}}', "could not run"),
    ],
)
def test_a_hunt_shows_a_finding_by_its_own_rules(summary: str, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproducing, "_run", lambda *_: type("Done", (), {"stdout": summary}))
    outcome = reproduce("high_watermark_truncation", "kafka:0.10.2.2")
    assert (outcome.verdict, outcome.target) == (verdict, "kafka:0.10.2.2:3")


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("pass", "shown"),
        ("assert 1 == 2", "not shown"),
        ("raise OSError", "could not run"),
        ("skip()", "could not run"),
    ],
)
def test_only_a_failed_assertion_of_a_test_says_that_it_is_not_shown(
    body: str, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"from pytest import mark\n@mark.slow\ndef test_kafka():\n    {body}\n"
    (tmp_path / "tests/targets").mkdir(parents=True)
    (tmp_path / "tests/targets/test_raised_min_isr.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: x\n")
    monkeypatch.setattr(reproducing, "REPOSITORY", tmp_path)
    assert reproduce("raised_min_isr").verdict == verdict


def test_an_unknown_finding_and_a_target_that_is_none_are_named() -> None:
    answer = CliRunner().invoke(app, ["show", "nonsense"])
    assert answer.exit_code == 2 and "nonsense" in answer.output
    assert reproduce("raised_min_isr", "reference:1").verdict == "could not run"


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.kafka
def test_the_reference_fences_the_producer_that_kafka_lets_in_again(tmp_path: Path) -> None:
    outcome = reproduce("fenced_producer", "reference:1")
    assert outcome.verdict == "not shown" and any("abort: ProducerFencedException" in line for line in outcome.seen)


@pytest.mark.slow
def test_the_reference_truncates_durably() -> None:
    outcome = reproduce("unflushed_truncation", "reference:3")
    assert outcome.verdict == "not shown" and any("2: 'd'" in line for line in outcome.seen[-1:])
