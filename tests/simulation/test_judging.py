"""The verdict on a run, and its reasons."""

from __future__ import annotations

import pytest

from linearizability.pipeline.verdict import UNKNOWN, Judgement
from linearizability.simulation import judging
from linearizability.simulation.explanation import explain
from linearizability.simulation.schedule import Schedule


def test_an_unknown_verdict_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    judgement = Judgement("seed-0", UNKNOWN, reasons=["3 × unseen: never read", "a torn file"])
    monkeypatch.setattr(judging, "judge_histories", lambda *_: judgement)
    outcome, trace = judging.run_schedule(Schedule(duration_ms=10))
    assert (outcome.verdict, outcome.text) == (UNKNOWN, "3 × unseen: never read; a torn file")
    assert "because: 3 × unseen" in explain(outcome, trace)
