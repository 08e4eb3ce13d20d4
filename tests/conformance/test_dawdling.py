"""What depends on the suite's own speed would fail sound brokers on a busy machine: here the suite dawdles."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from conformance.requirement import select
from conformance.results import RunVerdict
from conformance.runner import Plan, run
from conformance.wire import BrokerConnection
from reference.protocol.messages.produce import ProduceRequest

PAUSE_S = 0.5
"""Longer than the broker waits between two looks for expired segments (log.retention.check.interval.ms of RET)."""


@pytest.mark.timeout(120)
def test_brokers_that_look_between_two_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = BrokerConnection.send_bytes
    paused: list[int] = []

    def late(self: BrokerConnection, data: bytes, **more: Any) -> Any:
        if more.get("api_key") == ProduceRequest.KEY:
            paused.append(len(data))
            time.sleep(PAUSE_S)
        return at_once(self, data, **more)

    monkeypatch.setattr(BrokerConnection, "send_bytes", late)
    report = run(Plan(spec="reference:1", entries=select(["RET-01", "RET-04"]), folder=tmp_path))
    reported = [f"{each.requirement.id} {each.verdict}: {each.reason}" for each in report.judgements]
    assert report.verdict is RunVerdict.PASS, reported
    assert paused
