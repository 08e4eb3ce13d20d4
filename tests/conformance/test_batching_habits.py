"""Habits of brokers that others wrote, in how they store and return batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.batches import Record, batch, batches, patched, records
from conformance.liars import Behind
from linearizability.mutants.wire.proxy import Exchange
from linearizability.targets import open_target
from linearizability.targets.loop import Loop
from reference.protocol.errors import ErrorCode
from tests.conformance.test_habits import Habit, judged


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Loop, Behind]]:
    with Loop() as loop, open_target("reference:1", folder=tmp_path_factory.mktemp("sound"), config={}) as target:
        yield loop, Behind(target)


def in_one_batch(answer: Any, _: Exchange) -> None:
    """Keeps records, and puts them into batches of its own when they are fetched, as SeaweedFS does."""
    for partition in (partition for topic in answer.responses for partition in topic.partitions):
        data = bytes(partition.records or b"")
        if found := batches(data):
            one = patched(batch(*records(data)), base_offset=found[0].base_offset)
            partition.records = patched(one, partition_leader_epoch=found[0].partition_leader_epoch)


def test_other_batches_are_accused_of_other_bytes_alone(log: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(log, Habit("Fetch", in_one_batch), "ACK-15 FET-06 FET-10 FET-15 PRD-15 PRD-23", tmp_path)
    assert verdicts == {
        "ACK-15": "tolerated",
        "FET-06": "pass",
        "FET-10": "tolerated",
        "FET-15": "fail",
        "PRD-15": "pass",
        "PRD-23": "pass",
    }


def with_times_of_its_own(answer: Any, _: Exchange) -> None:
    """Returns each record with another timestamp than the client's, as SeaweedFS does: the time of its append."""
    for partition in (partition for topic in answer.responses for partition in topic.partitions):
        parts: list[bytes] = []
        for found in batches(bytes(partition.records or b"")):
            given = [Record(one.value, one.key, one.headers, (one.timestamp or 0) + 7) for one in found.records()]
            made = patched(batch(*given, codec=found.codec), base_offset=found.base_offset)
            parts.append(patched(made, partition_leader_epoch=found.partition_leader_epoch))
        partition.records = b"".join(parts)


def test_other_times_are_accused_where_times_are_judged(log: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(log, Habit("Fetch", with_times_of_its_own), "ACK-10 ACK-12 PRD-15 PRD-23", tmp_path)
    assert verdicts == {"ACK-10": "fail", "ACK-12": "fail", "PRD-15": "blocked ACK-10", "PRD-23": "pass"}


class Slow(Habit):
    """Has no records ready when it is first asked for an offset, as SeaweedFS on a busy machine."""

    def __init__(self) -> None:
        super().__init__("Fetch", self.forget)
        self.known: set[str] = set()

    def forget(self, answer: Any, exchange: Exchange) -> None:
        asked = repr(exchange.request.topics)
        for partition in (partition for topic in answer.responses for partition in topic.partitions):
            partition.records = partition.records if asked in self.known else b""
        self.known.add(asked)


def test_records_that_come_with_the_next_fetch_are_not_missing(log: tuple[Loop, Behind], tmp_path: Path) -> None:
    """Clients fetch again. CMP-03 and CMP-04 once treated such a response as a log without records."""
    _, verdicts = judged(log, Slow(), "ACK-12 ACK-14", tmp_path)
    assert {*verdicts.values()} == {"pass"}


def takes_all(answer: Any, _: Exchange) -> None:
    """Takes records without a key for a compacted topic, as crabka does."""
    for partition in (partition for topic in answer.responses for partition in topic.partition_responses):
        if partition.record_errors:
            partition.error_code, partition.base_offset, partition.record_errors = 0, 0, []


def test_records_that_are_not_refused_are_not_missed_in_the_answer(log: tuple[Loop, Behind], tmp_path: Path) -> None:
    """PRD-13 is the requirement on such records, also where it is not judged because its partitions need one leader."""
    _, verdicts = judged(log, Habit("Produce", takes_all), "PRD-28", tmp_path)
    assert verdicts == {"PRD-28": "not judged"}


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ErrorCode.INVALID_TXN_STATE, "tolerated"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "fail"),
        (ErrorCode.NONE, "fail"),
    ],
)
def test_a_transactional_batch_without_an_id_may_be_refused_with_another_code(
    error: ErrorCode, verdict: str, log: tuple[Loop, Behind], tmp_path: Path
) -> None:
    """No client sends such a batch. It has its producer's own epoch: a refusal of that epoch belongs to TXN-01."""

    def refuse(answer: Any, _: Exchange) -> None:
        for partition in (partition for topic in answer.responses for partition in topic.partition_responses):
            if partition.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                partition.error_code = error

    report, verdicts = judged(log, Habit("Produce", refuse), "TXN-21", tmp_path)
    assert verdicts == {"TXN-21": verdict}
    assert (report.judgements[-1].built_on == "TXN-01") == (error == ErrorCode.INVALID_PRODUCER_EPOCH)
