"""Breaches without harm by coordinators and leaders that others wrote: they are tolerated, and hide nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.batches import batch, batches
from conformance.liars import Behind
from linearizability.client.requests import READ_COMMITTED
from linearizability.mutants.wire.proxy import Exchange, Tamper, sized
from linearizability.mutants.wire.rewriting import Liar, Lie, closed, when
from linearizability.targets import open_target
from linearizability.targets.loop import Loop
from reference.protocol.codec import encode
from reference.protocol.errors import ErrorCode
from reference.protocol.records.batch import header_at
from tests.conformance.test_habits import Habit, Habits, judged

NO_RECORDS = batch(base_offset=-1, last_offset_delta=0, count=0)
"""A batch without a record, as kafka-test-broker gives it where a log ends."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Loop, Behind]]:
    with Loop() as loop, open_target("reference:1", folder=tmp_path_factory.mktemp("sound"), config={}) as target:
        yield loop, Behind(target)


def agreed(answer: Any, _: Exchange) -> None:
    answer.error_code = 0


def each_agreed(answer: Any, _: Exchange) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.error_code = 0


def another_refusal(answer: Any, _: Exchange) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code:
                partition.error_code = ErrorCode.UNKNOWN_MEMBER_ID


def no_aborted_transactions(answer: Any, exchange: Exchange) -> None:
    for topic in answer.responses if exchange.request.isolation_level == READ_COMMITTED else []:
        for partition in topic.partitions:
            partition.aborted_transactions = []


def taken_for_copies(due: int) -> Callable[[Any, Exchange], None]:
    """Refuse batches that end before the sequence that is due as copies."""

    def change(answer: Any, exchange: Exchange) -> None:
        for asked, topic in zip(exchange.request.topic_data, answer.responses, strict=True):
            for data, partition in zip(asked.partition_data, topic.partition_responses, strict=True):
                last = header_at(data.records, 0).last_sequence
                if partition.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and last < due:
                    partition.error_code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER

    return change


def beats_from(generation: int) -> Callable[[Any, Exchange], None]:
    """Agree to heartbeats in a wrong generation that is this one or a later one."""

    def change(answer: Any, exchange: Exchange) -> None:
        if answer.error_code == ErrorCode.ILLEGAL_GENERATION and exchange.request.generation_id >= generation:
            answer.error_code = 0

    return change


def an_empty_batch_at_the_end(answer: Any, _: Exchange) -> None:
    for topic in answer.responses:
        for partition in topic.partitions:
            partition.records = partition.records or NO_RECORDS


def assignments_in_version_0(answer: Any, _: Exchange) -> None:
    answer.assignment = b"\0\0" + bytes(answer.assignment)[2:] if answer.assignment else b""


def nothing_committed_is_0(answer: Any, exchange: Exchange) -> None:
    for topic in [*answer.topics, *(topic for group in answer.groups for topic in group.topics)]:
        for partition in topic.partitions:
            partition.committed_offset = max(partition.committed_offset, 0)


def no_leader_epoch(answer: Any, _: Exchange) -> None:
    for topic in answer.responses:
        for partition in topic.partitions:
            stored = batches(bytes(partition.records or b""))
            partition.records = b"".join(one.data[:12] + b"\xff" * 4 + one.data[16:] for one in stored)


class AdmitsUnknown(Habit):
    """Makes a client with an unknown member id the member of a group, as tansu and crabka do."""

    def __init__(self) -> None:
        super().__init__("JoinGroup", lambda answer, exchange: None)

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.api != self.api or exchange.request.member_id != "nobody":
            return None
        header, request = exchange.decoded()
        request.member_id, request.group_instance_id = "", "static"
        return [sized(header + encode(request, exchange.version))]


class Unchanging(Habit):
    """Refuses each change of settings, and makes none."""

    def __init__(self) -> None:
        super().__init__("IncrementalAlterConfigs", self.refuse)

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.api != self.api:
            return None
        header, request = exchange.decoded()
        request.validate_only = True
        return [sized(header + encode(request, exchange.version))]

    def refuse(self, answer: Any, _: Exchange) -> None:
        for result in answer.responses:
            result.error_code = ErrorCode.INVALID_REQUEST


CLOSES_ON_UNREADABLE = Liar(
    Lie("closes", "JoinGroup", "", "", answer=when(lambda x, _: len(x.request.protocols[0].metadata) < 10, closed))
)
"""Closes the connection of a client whose metadata are no subscription, as kafka-test-broker does."""
OFFSETS_AGREED = Habit("AddOffsetsToTxn", agreed)
ALL_AGREED = Habits(OFFSETS_AGREED, Habit("TxnOffsetCommit", each_agreed))


@pytest.mark.parametrize(
    ("habit", "verdicts"),
    [
        (OFFSETS_AGREED, {"TXN-02": "tolerated", "TXN-07": "tolerated", "TXN-08": "tolerated", "TXN-51": "fail"}),
        (ALL_AGREED, {"TXN-02": "fail", "TXN-07": "fail", "TXN-08": "fail"}),
        (Habit("TxnOffsetCommit", another_refusal), {"TXN-36": "tolerated"}),
        (Habit("TxnOffsetCommit", each_agreed), {"TXN-36": "fail"}),
        (Habit("Fetch", no_aborted_transactions), {"TXN-05": "blocked TXV-02", "TXV-02": "fail"}),
        (Habit("Produce", taken_for_copies(6)), {"IDM-04": "tolerated"}),
        (Habit("Produce", taken_for_copies(1001)), {"IDM-04": "fail"}),
        (Habit("Produce", taken_for_copies(3)), {"IDM-07": "tolerated"}),
        (Habit("Produce", taken_for_copies(4)), {"IDM-07": "fail"}),
        (AdmitsUnknown(), {"GRP-04": "tolerated"}),
        (Habit("Heartbeat", beats_from(3)), {"GRP-12": "tolerated"}),
        (Habit("Heartbeat", beats_from(1)), {"GRP-12": "fail"}),
        (Habit("Fetch", an_empty_batch_at_the_end), {"BAS-04": "pass", "ACK-14": "pass"}),
        (Habit("SyncGroup", assignments_in_version_0), {"BAS-07": "pass", "GRP-10": "fail"}),
        (Habit("OffsetFetch", nothing_committed_is_0), {"OFF-07": "pass", "OFF-02": "fail"}),
        (Habit("Fetch", no_leader_epoch), {"PRD-23": "tolerated"}),
        (CLOSES_ON_UNREADABLE, {"GRP-46": "tolerated"}),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, dict) else "",
)
def test_only_a_breach_without_harm_is_tolerated(
    habit: Tamper, verdicts: dict[str, str], sound: tuple[Loop, Behind], tmp_path: Path
) -> None:
    assert judged(sound, habit, " ".join(verdicts), tmp_path)[1] == verdicts


def test_one_that_changes_no_settings_of_brokers_is_not_accused(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    report, verdicts = judged(sound, Unchanging(), "CFG-16 CFG-17", tmp_path)
    assert verdicts == {"CFG-16": "not judged", "CFG-17": "not judged"}
    reasons = {one.requirement.id: one.reason for one in report.judgements}
    assert "whose settings for all brokers can change" in reasons["CFG-16"]
    assert "whose own settings can change" in reasons["CFG-17"]
