"""Files of one run that declare different contracts: each record is judged by its own, the run by what all may rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from linearizability.history.contract import Acks, Contract
from linearizability.history.operations import poll, send
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check


@pytest.mark.parametrize("bystander", ["1", "all"])
def test_a_bystander_with_lower_acks_permits_nothing(tmp_path: Path, bystander: Acks) -> None:
    """Process 0 sends nothing. Value 2, unanswered, was read at offset 1 before value 1, with acks=all, was sent to offset 0."""
    with Recorder.open(tmp_path, process=0, contract=Contract(acks=bystander), run="r"):
        pass
    with Recorder.open(tmp_path, process=1, run="r") as producer, Recorder.open(tmp_path, process=2, run="r") as reader:
        unanswered = producer.invoke("send", [send("t-0", 2)])
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(1, 2)]})])
        with Recorder.open(tmp_path, process=3, run="r") as other:
            other.ok(other.invoke("send", [send("t-0", 1)]), [send("t-0", 1, offset=0)])
        producer.info(unanswered, error="TIMED_OUT")
    (judgement,) = check([tmp_path])
    assert judgement.verdict == "invalid" and judgement.anomalies["nonlinearizable"] == 1, judgement.to_json()
    assert "nonlinearizable" not in judgement.permitted


def run(folder: Path, first: Contract, second: Contract) -> None:
    """The second process begins to read behind the record at offset 0."""
    with Recorder.open(folder, process=1, contract=first, run="r") as producer:
        for value in range(2):
            producer.ok(producer.invoke("send", [send("t-0", value)]), [send("t-0", value, offset=value)])
    with Recorder.open(folder, process=2, contract=second, run="r") as reader:
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(1, 1)]})])


def test_one_consumer_that_begins_in_the_middle_proves_no_loss(tmp_path: Path) -> None:
    """Whichever file comes first."""
    for number, contracts in enumerate(
        ((Contract(), Contract(reads_from_start=False)), (Contract(reads_from_start=False), Contract()))
    ):
        run(tmp_path / str(number), *contracts)
        (judgement,) = check([tmp_path / str(number)])
        assert judgement.verdict == "unknown" and judgement.anomalies == {"unseen": 1}, judgement.to_json()


@pytest.mark.parametrize("term", ["strict_recency", "bound_after_healing_ms"])
def test_what_judges_the_whole_run_must_be_equal(tmp_path: Path, term: str) -> None:
    run(tmp_path, Contract(), Contract.model_validate({term: 1}))
    (judgement,) = check([tmp_path])
    assert any(f"declares {term}" in reason for reason in judgement.reasons), judgement.reasons
