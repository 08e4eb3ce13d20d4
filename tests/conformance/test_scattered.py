"""A cluster that places partitions as it likes is not accused where a requirement needs several that one broker leads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.broker import Broker
from conformance.requirement import catalogue, select
from conformance.results import Verdict
from conformance.runner import Plan, run
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tests.conformance.mortal import verdicts

SESSIONS = ["FSS-01", "FSS-05", "FSS-11"]


@pytest.mark.process
@pytest.mark.parametrize(("heeds", "verdict"), [(True, Verdict.PASS), (False, Verdict.NOT_JUDGED)])
def test_fetch_sessions_ask_one_broker_of_its_own_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heeds: bool, verdict: Verdict
) -> None:
    if not heeds:
        monkeypatch.setattr(Broker, "_on_one_broker", lambda broker, partitions: None)
    report = run(Plan("reference:3", select(SESSIONS), tmp_path, starts=1))
    reasons = {one.requirement.id: one.reason for one in report.judgements}
    assert verdicts(report) == dict.fromkeys(SESSIONS, verdict), reasons
    assert heeds or all("needs partitions that one broker leads" in reason for reason in reasons.values())


@pytest.mark.process
def test_what_needs_its_replicas_in_a_place_moves_them_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster refuses assignments in CreateTopics, as crabka does."""
    asked = Broker.call

    def call(broker: Broker, request: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(request, CreateTopicsRequest) and any(topic.assignments for topic in request.topics):
            code = int(ErrorCode.INVALID_PARTITIONS)
            refused = [
                CreateTopicsResponse.CreatableTopicResult(name=one.name, error_code=code) for one in request.topics
            ]
            return CreateTopicsResponse(topics=refused)
        return asked(broker, request, *arguments, **options)

    monkeypatch.setattr(Broker, "call", call)
    report = run(Plan("reference:3", select(["RET-06"]), tmp_path, starts=1))
    found = {one.requirement.id: (one.verdict, one.reason) for one in report.judgements}
    assert found["RET-06"] == (Verdict.PASS, ""), found


@pytest.mark.slow
@pytest.mark.process
def test_no_requirement_accuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "_on_one_broker", lambda broker, partitions: None)
    needs = {id: entry.requirement.needs for id, entry in catalogue().items() if entry.test}
    chosen = [id for id, one in needs.items() if not (one.hooks or one.configs or id.startswith("HIS"))]
    report = run(Plan("reference:3", select(chosen), tmp_path, starts=1))
    wrong = {
        one.requirement.id: one.reason
        for one in report.judgements
        if one.verdict not in (Verdict.PASS, Verdict.NOT_JUDGED)
    }
    assert not wrong
    assert sum(one.verdict is Verdict.PASS for one in report.judgements) > 300
