"""Where a record of unknown outcome stood is known from who read it: retention may have removed it."""

from __future__ import annotations

import pytest

from linearizability.history.contract import Contract
from linearizability.history.operations import drain, poll, send
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check


def record(folder, start: int) -> None:
    """The first of two records has no answer, is read at offset 0, and is not in the final read from `start` on."""
    contract = Contract(acks="all", cleanup="delete")
    with Recorder.open(folder, process=1, contract=contract, run="r") as producer:
        producer.info(producer.invoke("send", [send("t-0", 1)]), [send("t-0", 1)], error="TIMED_OUT")
        producer.ok(producer.invoke("send", [send("t-0", 2)]), [send("t-0", 2, offset=1)])
    with Recorder.open(folder, process=2, contract=contract, run="r") as reader:
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(0, 1), (1, 2)]})])
    with Recorder.open(folder, process=3, contract=contract, run="r") as reader:
        final = reader.invoke("drain")
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(1, 2)]})])
        reader.ok(final, [drain("t-0", start, 2, 2)])


@pytest.mark.parametrize(("start", "verdict"), [(1, "valid"), (0, "invalid")])
def test_what_retention_took_is_not_lost(tmp_path, start: int, verdict: str) -> None:
    record(tmp_path, start)
    (judgement,) = check([tmp_path])
    assert judgement.verdict == verdict, judgement.to_json()
    assert ("lost-write" in judgement.anomalies) == (verdict == "invalid")
