"""The verdict on a run, and its reasons."""

from __future__ import annotations

import pytest

from linearizability.pipeline.verdict import UNKNOWN, Judgement
from linearizability.simulation import judging
from linearizability.simulation.explanation import explain
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Schedule, Transactor
from reference.protocol.errors import ErrorCode
from reference.storage.errors import RefusedByProducerState
from reference.storage.producer_state import ProducerState


def test_an_unknown_verdict_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    judgement = Judgement("seed-0", UNKNOWN, reasons=["3 × unseen: never read", "a torn file"])
    monkeypatch.setattr(judging, "judge_histories", lambda *_: judgement)
    outcome, trace = judging.run_schedule(Schedule(duration_ms=10))
    assert (outcome.verdict, outcome.text) == (UNKNOWN, "3 × unseen: never read; a torn file")
    assert "because: 3 × unseen" in explain(outcome, trace)


@pytest.mark.parametrize("version", [1, 2])
def test_a_cluster_that_opens_no_transaction_is_found(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    def refuse(*_: object) -> None:
        raise RefusedByProducerState(ErrorCode.INVALID_TXN_STATE, "no transaction is opened")

    plan = Schedule(duration_ms=500, clients=(Transactor.model_validate({"transactions": 3, "version": version}),))
    assert run_schedule(plan)[0].rule == ""
    monkeypatch.setattr(ProducerState, "check_opening", refuse)
    assert run_schedule(plan)[0].rule == "no-transaction-committed"
