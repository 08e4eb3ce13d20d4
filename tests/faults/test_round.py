"""One round, without a broker: what is judged when the history could not be written."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from linearizability.faults import all_faults, round
from linearizability.faults.plan import Plan
from linearizability.faults.round import Round
from linearizability.faults.schedule import Schedule
from linearizability.history.operations import send
from linearizability.history.recorder import Recorder, RecordingError
from linearizability.targets.addresses import AddressMap


def test_a_disk_that_fills_up_leaves_the_verdict_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded part is judged; the reasons name the failure, and the files that have no end."""
    all_faults()
    monkeypatch.setattr(round, "create_topic", lambda *_, **__: None)
    monkeypatch.setattr(round, "served_apis", lambda nodes: {11, 22})
    monkeypatch.setattr(round, "inspecting", lambda *_, **__: nullcontext())

    def until_full(this: Round, clients: Any, nemesis: Any, say: Any) -> list[str]:
        producer = Recorder.open(clients.history, process=1000, contract=this.profile.contract(), run=this.run_id)
        producer.ok(producer.invoke("send", [send("t-0", 1)]), [send("t-0", 1, offset=0)])
        this.attacked_s = 1.0
        raise RecordingError("client 1 could not go on; 0 bytes are free")

    monkeypatch.setattr(Round, "_attack", until_full)
    monkeypatch.setattr(round, "select", lambda *_: [])
    target: Any = SimpleNamespace(nodes=[1, 2, 3], bootstrap="127.0.0.1:1", addresses=AddressMap())
    plan = Plan(target="addr:127.0.0.1:1", minutes=1, seed=1)
    schedule = Schedule(seed=1, seconds=1, waves=[])
    result = Round(plan, target, None, tmp_path, "t", schedule).run(lambda text: None)
    assert result.verdict == "unknown"
    assert "the history could not be written: client 1 could not go on; 0 bytes are free" in result.reasons
    assert any("history-01000.jsonl:3: " in reason and "closing line" in reason for reason in result.reasons)
