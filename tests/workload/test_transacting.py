"""A producer of transactions does not go on after a record of which librdkafka does not know whether it was appended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from linearizability.history.contract import Contract
from linearizability.workload import transacting
from linearizability.workload.client_run import ClientRun, ClientTask
from linearizability.workload.profile import Transacting
from linearizability.workload.transacting import Incarnation, IncarnationOver

MOST = 3


class Message:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


class LosingProducer:
    """librdkafka's producer: with `error`, records end with it when their transaction is aborted, and none is committed."""

    def __init__(self, error: int | None) -> None:
        self.error = error
        self.begun = 0
        self.open: list[Callable[[KafkaError | None, Message], None]] = []

    def init_transactions(self, timeout: float) -> None:
        pass

    def begin_transaction(self) -> None:
        self.begun += 1
        if self.begun > MOST:
            raise IncarnationOver("enough")

    def produce(self, topic: str, value: str, *, partition: int, on_delivery: Any) -> None:
        self.open.append(on_delivery)

    def flush(self, timeout: float) -> None:
        if self.error is None:
            self.abort_transaction(timeout)

    def commit_transaction(self, timeout: float) -> None:
        if self.error is not None:
            raise KafkaException(KafkaError(KafkaError._FAIL, "spoilt", False, False, True))

    def abort_transaction(self, timeout: float) -> None:
        for delivered in self.open:
            delivered(KafkaError(self.error) if self.error is not None else None, Message(7))
        self.open = []


def run(producer: LosingProducer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let one incarnation use the producer; the reason why it ended."""
    task = ClientTask(
        run="test",
        number=1,
        bootstrap="127.0.0.1:9",
        topic="t",
        partitions=2,
        seed=1,
        history=folder,
        contract=Contract(),
        does=Transacting(rate_per_s=10_000, abort_every=2),
    )
    monkeypatch.setattr(transacting, "HELD_SHARE", 0)
    monkeypatch.setattr(transacting, "Producer", lambda settings: producer)
    client_run = ClientRun(task)
    with client_run.recorder() as recorder:
        Incarnation(client_run, recorder).run()
    events = [json.loads(line) for line in (folder / "history-01000.jsonl").read_text().splitlines()]
    (note,) = [event["text"] for event in events if event.get("f") == "note"]
    return note


@pytest.mark.parametrize(
    ("error", "within_s", "begun", "said"),
    [
        (KafkaError._PURGE_QUEUE, 60, 1, "may take effect late"),
        (KafkaError.MSG_SIZE_TOO_LARGE, 60, MOST + 1, "enough"),
        (None, 60, MOST + 1, "enough"),
        (None, -1, 1, "may take effect late"),
    ],
)
def test_an_incarnation_ends_with_a_record_or_an_end_of_unknown_outcome(
    error: int | None, within_s: float, begun: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transacting, "GIVEN_UP_WITHIN_S", within_s)
    producer = LosingProducer(error)
    assert said in run(producer, tmp_path, monkeypatch)
    assert producer.begun == begun


def test_an_incarnation_ends_with_a_producer_that_fails_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(LosingProducer):
        def flush(self, timeout: float) -> None:
            fatal = KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "desynchronised", True))
            raise SystemError("returned a result with an exception set") from fatal

    assert "desynchronised" in run(Failing(None), tmp_path, monkeypatch)
