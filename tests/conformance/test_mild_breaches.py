"""Breaches of musts that harm no client: they are tolerated, and hide no other failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.classic_groups import subscription
from conformance.liars import Behind
from linearizability.client.requests import READ_COMMITTED
from linearizability.mutants.wire.lies import LIES
from linearizability.mutants.wire.proxy import Answer, Exchange, sized
from linearizability.mutants.wire.rewriting import Liar
from linearizability.targets import open_target
from linearizability.targets.loop import Loop
from reference.protocol.codec import encode
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.describe_transactions import DescribeTransactionsRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorResponse
from reference.protocol.primitives import NO_UUID
from tests.conformance.test_habits import Habit, Habits, judged

WITH_EPOCHS = 5
"""The version of EndTxn that gives the next epoch."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Loop, Behind]]:
    with Loop() as loop, open_target("reference:1", folder=tmp_path_factory.mktemp("sound"), config={}) as target:
        yield loop, Behind(target)


def no_leader_epochs(answer: Any, _: Exchange) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.leader_epoch = -1


def neither_ids_nor_epochs(answer: Any, exchange: Exchange) -> None:
    no_leader_epochs(answer, exchange)
    for topic in answer.topics:
        topic.topic_id = NO_UUID


def no_protocol(answer: Any, _: Exchange) -> None:
    answer.protocol_type = answer.protocol_name = None


def the_first_that_all_support(answer: Any, _: Exchange) -> None:
    if answer.protocol_name == "c":
        answer.protocol_name = "b"
        for member in answer.members:
            member.metadata = subscription(user_data=b"b")


def another_code_for_who_leaves(answer: Any, _: Exchange) -> None:
    for each in (answer, *answer.members):
        if each.error_code == ErrorCode.FENCED_INSTANCE_ID:
            each.error_code = ErrorCode.UNKNOWN_MEMBER_ID


def a_rebalance_for_unknown_instances(answer: Any, exchange: Exchange) -> None:
    if exchange.request.group_instance_id == "nobody":
        answer.error_code = ErrorCode.REBALANCE_IN_PROGRESS


def an_entry_for_no_key(answer: Any, exchange: Exchange) -> None:
    if exchange.version >= 4 and not exchange.request.coordinator_keys:
        answer.coordinators = [FindCoordinatorResponse.Coordinator(key="", host="127.0.0.1")]


def another_epoch_without_a_session(answer: Any, exchange: Exchange) -> None:
    if exchange.request.session_id == 0 and answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
        answer.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


def any_instance_of_the_member(answer: Any, exchange: Exchange) -> None:
    if exchange.request.group_instance_id == "two":
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.error_code = 0


def a_rebalance_for_other_generations(answer: Any, _: Exchange) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.ILLEGAL_GENERATION:
                partition.error_code = ErrorCode.REBALANCE_IN_PROGRESS


def the_other_code_of_the_fenced(answer: Any, _: Exchange) -> None:
    if answer.error_code == ErrorCode.PRODUCER_FENCED:
        answer.error_code = ErrorCode.INVALID_PRODUCER_EPOCH


def no_epoch_of_who_leaves(answer: Any, exchange: Exchange) -> None:
    if exchange.request.member_epoch < 0:
        answer.member_epoch = 0


def a_time_of_special_offsets(answer: Any, exchange: Exchange) -> None:
    if exchange.request.topics[0].partitions[0].timestamp in (-1, -4, -5, -6):
        answer.topics[0].partitions[0].timestamp = 0


def no_partition_of_offsets(answer: Any, _: Exchange) -> None:
    for transaction in answer.transaction_states:
        transaction.topics = []


def nothing_in_the_second_partition(answer: Any, _: Exchange) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.offset = 0 if partition.partition_index == 1 else partition.offset


def any_record_for_the_largest_timestamp(answer: Any, exchange: Exchange) -> None:
    if exchange.request.topics[0].partitions[0].timestamp == -3:
        answer.topics[0].partitions[0].offset = 0


def no_marker_in_the_first_partition(answer: Any, exchange: Exchange) -> None:
    for topic in answer.topics if exchange.request.isolation_level == READ_COMMITTED else []:
        for partition in topic.partitions:
            partition.offset = 0 if partition.partition_index == 0 else partition.offset


def nothing_ends_well(answer: Any, exchange: Exchange) -> None:
    if answer.error_code == ErrorCode.INVALID_TXN_STATE and exchange.version < WITH_EPOCHS:
        answer.error_code = 0


class EndsNothing(Habit):
    """Agrees to an EndTxn before KIP-890 of a transactional id to which no partition was ever added."""

    def __init__(self) -> None:
        super().__init__("EndTxn", nothing_ends_well)
        self.begun: set[str] = set()

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        if exchange.api == "AddPartitionsToTxn":
            self.begun.add(exchange.request.v3_and_below_transactional_id)
        if exchange.api == self.api and exchange.request.transactional_id in self.begun:
            return None
        return super().answered(exchange, frame)


class Asking(Habit):
    """Treats an empty array of topics as null."""

    def __init__(self) -> None:
        super().__init__("Metadata", lambda answer, exchange: None)

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.api != self.api or not exchange.version or exchange.request.topics != []:
            return None
        header, request = exchange.decoded()
        request.topics = None
        return [sized(header + encode(request, exchange.version))]


class LateOnce(Habit):
    """Refuses a member that was late as one of an earlier generation, once."""

    def __init__(self) -> None:
        super().__init__("Heartbeat", self.refuse)
        self.met = False

    def refuse(self, answer: Any, _: Exchange) -> None:
        if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID and not self.met:
            answer.error_code, self.met = ErrorCode.ILLEGAL_GENERATION, True


class Keeping(Habit):
    """Removes a member that is late for a rebalance, and none after that."""

    def __init__(self) -> None:
        super().__init__("Heartbeat", self.keep)
        self.removed = 0

    def keep(self, answer: Any, _: Exchange) -> None:
        self.removed += answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        if self.removed > 1:
            answer.error_code = 0


class Unheld(Habit):
    """Answers a Heartbeat with REBALANCE_IN_PROGRESS until the leader has synchronised, as SeaweedFS and Kafka 2.6.0 do."""

    def __init__(self) -> None:
        super().__init__("Heartbeat", self.refuse)
        self.led: set[tuple[str, int]] = set()

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.api == "SyncGroup" and exchange.request.assignments:
            self.led.add((exchange.request.group_id, exchange.request.generation_id))
        return None

    def refuse(self, answer: Any, exchange: Exchange) -> None:
        if not answer.error_code and (exchange.request.group_id, exchange.request.generation_id) not in self.led:
            answer.error_code = ErrorCode.REBALANCE_IN_PROGRESS


class Admitting(Habit):
    """Admits the first member of a group without a protocol type; with `any_member` later members, too."""

    def __init__(self, any_member: bool) -> None:
        super().__init__("JoinGroup", self.admit)
        self.any_member = any_member
        self.known: set[str] = set()

    def admit(self, answer: Any, exchange: Exchange) -> None:
        group, nameless = exchange.request.group_id, not exchange.request.protocol_type
        if not answer.error_code:
            self.known.add(group)
        refused = answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if nameless and refused and (self.any_member or group not in self.known):
            answer.error_code, answer.generation_id = 0, 1


@pytest.mark.parametrize(
    ("habit", "id", "verdict"),
    [
        (Unheld(), "GRP-14", "tolerated"),
        (Unheld(), "GRP-42", "tolerated"),
        (Admitting(any_member=False), "GRP-05", "tolerated"),
        (Admitting(any_member=True), "GRP-05", "fail"),
    ],
)
def test_what_no_client_of_a_group_heeds_or_says_is_tolerated(
    habit: Habit, id: str, verdict: str, sound: tuple[Loop, Behind], tmp_path: Path
) -> None:
    _, verdicts = judged(sound, habit, id, tmp_path)
    assert verdicts == {id: verdict}


@pytest.mark.parametrize(
    ("id", "api", "change"),
    [
        ("COO-03", "FindCoordinator", an_entry_for_no_key),
        ("FSS-04", "Fetch", another_epoch_without_a_session),
        ("GRP-07", "JoinGroup", the_first_that_all_support),
        ("GRP-10", "SyncGroup", no_protocol),
        ("GRP-21", "LeaveGroup", another_code_for_who_leaves),
        ("GRP-21", "Heartbeat", a_rebalance_for_unknown_instances),
        ("LOF-13", "ListOffsets", any_record_for_the_largest_timestamp),
        ("MET-07", "Metadata", no_leader_epochs),
        ("OFF-08", "OffsetCommit", any_instance_of_the_member),
        ("OFF-08", "OffsetCommit", a_rebalance_for_other_generations),
        ("OFF-25", "OffsetCommit", a_rebalance_for_other_generations),
        ("TXN-11", "EndTxn", nothing_ends_well),
        ("TXN-06", "InitProducerId", the_other_code_of_the_fenced),
        ("TXN-14", "EndTxn", the_other_code_of_the_fenced),
        ("TXN-30", "ListOffsets", no_marker_in_the_first_partition),
        ("TXN-35", "DescribeTransactions", no_partition_of_offsets),
        ("TXV-04", "ListOffsets", nothing_in_the_second_partition),
    ],
)
def test_a_breach_without_harm_is_tolerated(
    id: str, api: str, change: Callable[[Any, Exchange], None], sound: tuple[Loop, Behind], tmp_path: Path
) -> None:
    _, verdicts = judged(sound, Habit(api, change), id, tmp_path)
    assert verdicts == {id: "tolerated"}


@pytest.mark.parametrize(
    ("id", "judge", "api", "change"),
    [
        ("CGH-10", "CGH-42", "ConsumerGroupHeartbeat", no_epoch_of_who_leaves),
        ("CGH-11", "CGH-42", "ConsumerGroupHeartbeat", no_epoch_of_who_leaves),
        ("LOF-05", "LOF-16", "ListOffsets", a_time_of_special_offsets),
        ("LOF-13", "LOF-16", "ListOffsets", a_time_of_special_offsets),
    ],
)
def test_one_requirement_alone_judges_a_field_that_no_client_reads(
    id: str, judge: str, api: str, change: Callable[[Any, Exchange], None], sound: tuple[Loop, Behind], tmp_path: Path
) -> None:
    _, verdicts = judged(sound, Habit(api, change), f"{id} {judge}", tmp_path)
    assert verdicts == {id: "pass", judge: "fail"}


def test_what_ends_without_a_transaction_says_nothing_of_one(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    """As tansu does, which has no DescribeTransactions either."""

    def hide(answer: Any, _: Exchange) -> None:
        answer.api_keys = [api for api in answer.api_keys if api.api_key != DescribeTransactionsRequest.KEY]

    both = Habits(Habit("ApiVersions", hide), Habit("EndTxn", nothing_ends_well))
    _, verdicts = judged(sound, both, "TXN-01 TXN-11", tmp_path)
    assert verdicts == {"TXN-01": "pass", "TXN-11": "tolerated"}


def test_a_copy_may_be_refused_as_one(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    """As tansu does: Java, librdkafka and franz-go treat this error as success."""
    _, verdicts = judged(sound, Liar(LIES["copy-refused"]), "IDM-05 IDM-16", tmp_path)
    assert verdicts == {"IDM-05": "tolerated", "IDM-16": "tolerated"}


@pytest.mark.parametrize(
    ("habit", "verdict"), [(EndsNothing(), "tolerated"), (Habit("EndTxn", nothing_ends_well), "fail")]
)
def test_an_end_of_nothing_is_tolerated_and_one_of_another_outcome_is_not(
    habit: Habit, verdict: str, sound: tuple[Loop, Behind], tmp_path: Path
) -> None:
    _, verdicts = judged(sound, habit, "TXN-28", tmp_path)
    assert verdicts == {"TXN-28": verdict}


def test_a_member_that_was_late_may_be_of_an_earlier_generation(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(sound, LateOnce(), "GRP-18", tmp_path)
    assert verdicts == {"GRP-18": "tolerated"}


def test_timeouts_that_no_client_says_need_not_be_heeded(
    sound: tuple[Loop, Behind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As noida-db does, which removes no member that does not synchronise."""
    monkeypatch.setattr("conformance.observations.READY_WITHIN_S", 1.0)
    _, verdicts = judged(sound, Keeping(), "GRP-18", tmp_path)
    assert verdicts == {"GRP-18": "tolerated"}


def test_a_topic_without_an_id_is_tolerated_where_no_client_needs_it(
    sound: tuple[Loop, Behind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below Fetch v13, which asks by id."""
    for name, verdict in (("by id", "fail"), ("by name", "tolerated")):
        (tmp_path / name).mkdir()
        if name == "by name":
            monkeypatch.setattr("conformance.requirements.metadata.FETCH_WITH_IDS", 99)
        _, verdicts = judged(sound, Habit("Metadata", neither_ids_nor_epochs), "MET-09", tmp_path / name)
        assert verdicts == {"MET-09": verdict}


def test_topics_for_none_are_tolerated(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    """As noida-db and tansu do."""
    _, verdicts = judged(sound, Asking(), "MET-01", tmp_path)
    assert verdicts == {"MET-01": "tolerated"}


def test_no_leader_epoch_is_checked_where_none_is_reported(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(sound, Habit("Metadata", no_leader_epochs), "EPO-02 FET-07", tmp_path)
    assert verdicts == {"EPO-02": "not judged", "FET-07": "pass"}
