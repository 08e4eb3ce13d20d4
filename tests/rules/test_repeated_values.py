"""A value that was sent twice does not show which of its sends wrote a record, so no rule takes one of them for the writer."""

from __future__ import annotations

from pathlib import Path

import pytest

from linearizability.history.contract import Contract
from linearizability.history.notation import history
from linearizability.history.operations import poll, send
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check, judge_history

pytestmark = pytest.mark.xdist_group("spark")


@pytest.mark.parametrize(
    "text",
    [
        # The first send of 1 wrote the record at 0, the second one none.
        "0 send t-0:1 info\n0 send t-0:2@1\n0 send t-0:1 info\n1 poll t-0:1@0 t-0:2@1",
        """
        0 send t-0:1 producer=p epoch=3 info
        1 send t-0:3@0 producer=p epoch=3
        0 send t-0:1 producer=p epoch=2 info
        2 poll t-0:3@0 t-0:1@1
        """,
        # One of the two transactions was committed.
        """
        0 txn send t-0:1 send t-0:2@1 info
        1 txn send t-0:1 send t-0:3@5 info
        2 send t-0:5@9
        3 poll t-0:1@0 t-0:2@1 t-0:5@9
        """,
    ],
)
def test_either_send_may_have_written_it(text: str) -> None:
    judgement = judge_history(history(text))
    assert judgement.verdict == "unknown" and "repeated-value" in judgement.anomalies, judgement.to_json()


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_either_transaction_may_have_been_committed(tmp_path: Path, engine: str) -> None:
    """A record of both is read in one partition; in the other one the record of the second is passed over."""
    with Recorder.open(tmp_path, process=0, run="r") as producer:
        for value, offset in ((2, 0), (3, 2)):
            asked = [send("t-0", 1), send("t-1", value)]
            producer.info(
                producer.invoke("txn", asked), [asked[0], send("t-1", value, offset=offset)], error="TIMED_OUT"
            )
        producer.ok(producer.invoke("send", [send("t-1", 4)]), [send("t-1", 4, offset=9)])
    with Recorder.open(tmp_path, process=1, run="r") as reader:
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(0, 1)], "t-1": [(0, 2), (9, 4)]})])
    (judgement,) = check([tmp_path], engine=engine, master="local[2]")
    assert judgement.verdict == "unknown" and not judgement.anomalies.get("lost-write"), judgement.to_json()


def test_who_reads_committed_records_may_pass_over_the_send_that_was_aborted(tmp_path: Path) -> None:
    """An application that sends what was aborted again with the same value."""
    with Recorder.open(tmp_path, process=0, run="r") as producer:
        producer.ok(producer.invoke("send", [send("t-0", 4)]), [send("t-0", 4, offset=0)])
        producer.fail(producer.invoke("txn", [send("t-0", 1)]), [send("t-0", 1)], error="aborted")
        producer.ok(producer.invoke("txn", [send("t-0", 1)]), [send("t-0", 1, offset=3)])
    for process, isolation, seen in (
        (1, "read_uncommitted", [(0, 4), (1, 1), (3, 1)]),
        (2, "read_committed", [(0, 4), (3, 1)]),
    ):
        contract = Contract.model_validate({"isolation": isolation})
        with Recorder.open(tmp_path, process=process, contract=contract, run="r") as reader:
            reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": seen})])
    (judgement,) = check([tmp_path])
    assert judgement.verdict == "unknown" and set(judgement.anomalies) == {"repeated-value"}, judgement.to_json()
