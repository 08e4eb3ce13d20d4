"""Requests that the suite itself sends late, as on a busy machine, must not make a sound broker fail."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.requirement import select
from conformance.results import Verdict
from conformance.runner import Plan, run
from conformance.wire import BrokerConnection
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.produce import ProduceRequest

ALWAYS = 1_000_000
LOOKS_S = 0.5
"""Longer than the broker waits between two looks for expired segments (log.retention.check.interval.ms of RET)."""
TIMES_OUT_S = 0.7
"""Longer than the shortest transaction timeout of TXN-20 and TXN-23."""
FORGETS_S = 2.0
"""Longer than a transactional id is kept without an open transaction in TXN-27."""


def dawdle(
    monkeypatch: pytest.MonkeyPatch, ids: Sequence[str], api: int, pause_s: float, times: int = ALWAYS
) -> list[str]:
    """Delay the first `times` requests of this API in each of the requirements. The returned list has an id for each delay."""
    at_once = BrokerConnection.send_bytes
    paused: list[str] = []

    def late(self: BrokerConnection, data: bytes, **more: Any) -> Any:
        id = self.check.__self__.requirement.id  # a connection checks by the broker object of its requirement
        if more.get("api_key") == api and id in ids and paused.count(id) < times:
            paused.append(id)
            time.sleep(pause_s)
        return at_once(self, data, **more)

    monkeypatch.setattr(BrokerConnection, "send_bytes", late)
    return paused


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("ids", "api", "pause_s", "times", "verdict"),
    [(["RET-01", "RET-04"], ProduceRequest.KEY, LOOKS_S, ALWAYS, Verdict.PASS),
     (["TXN-20", "TXN-23"], ProduceRequest.KEY, TIMES_OUT_S, 1, Verdict.PASS),
     (["TXN-27"], AddPartitionsToTxnRequest.KEY, FORGETS_S, 1, Verdict.PASS)],
)  # fmt: skip
def test_what_comes_late_accuses_no_broker(
    ids: list[str],
    api: int,
    pause_s: float,
    times: int,
    verdict: Verdict,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused = dawdle(monkeypatch, ids, api, pause_s, times)
    report = run(Plan(spec="reference:1", entries=select(ids), folder=tmp_path))
    reached = {each.requirement.id: each for each in report.judgements}
    for id in ids:
        assert reached[id].verdict is verdict, reached[id].reason
        assert id in paused
