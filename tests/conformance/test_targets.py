"""The suite on real brokers: every must-requirement passes on Apache Kafka and on the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.requirement import select
from conformance.results import Run, Verdict
from conformance.runner import Plan, run


def told(report: Run) -> str:
    """What did not pass, as a failing test should say it."""
    bad = [one for one in report.judgements if one.verdict in (Verdict.FAIL, Verdict.ENGINE_ERROR)]
    return "\n".join([report.reason, *(f"{one.requirement.id} {one.verdict}: {one.reason}" for one in bad)])


@pytest.mark.kafka
def test_apache_kafka_passes(tmp_path: Path) -> None:
    report = run(Plan("kafka:4.3.1", select(), tmp_path))
    assert report.verdict == "pass", told(report)
    assert report.must.fail == report.should.fail == report.engine_errors == 0, told(report)


def test_the_reference_passes(tmp_path: Path) -> None:
    report = run(Plan("reference:1", select(), tmp_path))
    assert report.verdict == "pass", told(report)
    assert report.must.fail == report.engine_errors == 0, told(report)
