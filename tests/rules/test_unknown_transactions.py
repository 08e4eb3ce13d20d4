"""What proves that a transaction of unknown outcome was committed: a read of committed records, not a look at the log."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from linearizability.history.contract import Contract
from linearizability.history.operations import Key, drain, poll, send
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check

pytestmark = pytest.mark.xdist_group("spark")
UNDECIDED = [send("t-0", 1), send("t-1", 2)]


def record(folder: Path, first_reader: Literal["read_uncommitted", "read_committed"]) -> None:
    """A transaction of unknown outcome: process 2 was given one of its records, and the final committed reads have none."""
    contract = Contract(acks="all", isolation="read_committed")
    with Recorder.open(folder, process=1, contract=contract, run="r") as producer:
        acknowledged = producer.invoke("send", [send("t-2", 9)])
        producer.ok(acknowledged, [send("t-2", 9, offset=0)])
        producer.info(producer.invoke("txn", UNDECIDED), UNDECIDED, error="TIMED_OUT")
    with Recorder.open(folder, process=2, contract=Contract(acks="all", isolation=first_reader), run="r") as reader:
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(0, 1)]})])
    with Recorder.open(folder, process=3, contract=contract, run="r") as reader:
        last: dict[Key, list[tuple[int, int]]] = {"t-2": [(0, 9)]}
        for key, records, end in (("t-0", {}, 3), ("t-1", {}, 3), ("t-2", last, 1)):
            final = reader.invoke("drain")
            reader.ok(reader.invoke("poll", [poll()]), [poll(records)])
            reader.ok(final, [drain(key, 0, end, end)])


@pytest.mark.sampled(days=3)
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize(
    ("first_reader", "verdict", "anomalies"),
    [("read_uncommitted", "valid", set()), ("read_committed", "invalid", {"lost-write"})],
)
def test_who_looked(tmp_path, engine, first_reader, verdict, anomalies) -> None:
    record(tmp_path, first_reader)
    (judgement,) = check([tmp_path], engine=engine, master="local[2]")
    assert judgement.verdict == verdict, judgement.to_json()
    assert anomalies <= set(judgement.anomalies)


@pytest.mark.parametrize(("is_shown_before", "verdict"), [(False, "valid"), (True, "invalid")])
def test_it_may_be_committed_after_a_final_read_of_one_partition(tmp_path, is_shown_before: bool, verdict: str) -> None:
    """A final read must return what another partition had shown to be committed before, and no more."""
    contract = Contract(acks="all", isolation="read_committed")
    with Recorder.open(tmp_path, process=1, contract=contract, run="r") as producer:
        producer.ok(producer.invoke("send", [send("t-2", 9)]), [send("t-2", 9, offset=0)])
        producer.info(producer.invoke("txn", UNDECIDED), UNDECIDED, error="TIMED_OUT")
    with (
        Recorder.open(tmp_path, process=2, contract=contract, run="r") as reader,
        Recorder.open(tmp_path, process=3, contract=contract, run="r") as other,
    ):
        if is_shown_before:
            reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(0, 1)]})])
        final = other.invoke("drain")
        other.ok(other.invoke("poll", [poll()]), [poll({})])
        other.ok(final, [drain("t-1", 0, 0, 0)])
        if not is_shown_before:
            reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(0, 1)]})])
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-2": [(0, 9)]})])
    (judgement,) = check([tmp_path], engine="local")
    assert judgement.verdict == verdict, judgement.to_json()


@pytest.mark.sampled(days=3)
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize(
    ("answered", "isolation", "verdict", "anomalies"),
    [
        (True, "read_committed", "invalid", {"lost-write", "torn-transaction"}),
        (True, "read_uncommitted", "valid", set()),
        (False, "read_committed", "valid", set()),  # a send without an answer may not have been stored
    ],
)
def test_one_record_proves_the_steps_that_were_answered(
    tmp_path, engine, answered, isolation, verdict, anomalies
) -> None:
    """The commit has no answer; one partition's record was read, and the other partition's is gone."""
    with Recorder.open(tmp_path, process=1, run="r") as producer:
        producer.ok(producer.invoke("begin", txn="a", producer="p", epoch=0))
        producer.ok(producer.invoke("send", [send("t-0", 1)], txn="a"), [send("t-0", 1, offset=0)])
        other = producer.invoke("send", [send("t-1", 2)], txn="a")
        if answered:
            producer.ok(other, [send("t-1", 2, offset=0)])
        else:
            producer.info(other, [send("t-1", 2)])
        producer.info(producer.invoke("end", txn="a", commit=True))
        producer.ok(producer.invoke("send", [send("t-2", 9)]), [send("t-2", 9, offset=0)])
    with Recorder.open(tmp_path, process=2, run="r", contract=Contract(isolation=isolation)) as reader:
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(0, 1)], "t-2": [(0, 9)]})])
        final = reader.invoke("drain")
        reader.ok(final, [drain("t-1", 0, 2, 2)])
    (judgement,) = check([tmp_path], engine=engine, master="local[2]")
    assert judgement.verdict == verdict, judgement.to_json()
    assert set(judgement.anomalies) == anomalies
