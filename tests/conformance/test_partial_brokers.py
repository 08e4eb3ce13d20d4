"""Brokers that serve a handful of APIs, as strikemq and Mokapi do: what they lack is not judged, and each fault has one name."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.answers import as_codes, shown
from conformance.batches import HEADER_BYTES, batches
from conformance.conversation import Conversation
from conformance.liars import Behind
from conformance.requirements import negotiation
from conformance.requirements.coordinators import OFFSETS
from linearizability.client.requests import READ_UNCOMMITTED, Topic
from linearizability.mutants.wire.lies import LIES
from linearizability.mutants.wire.proxy import Answer, Exchange, sized
from linearizability.mutants.wire.rewriting import Liar
from linearizability.targets import open_target
from linearizability.targets.loop import Loop
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_response
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.leave_group import LeaveGroupRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from reference.protocol.primitives import NO_UUID
from tests.conformance.test_habits import Habit, Habits, judged

WITHOUT_EPOCHS = 6
"""The last version of Metadata without leader epochs."""
HIGHEST_INIT_PRODUCER_ID = 5
BY_NAME = 12
"""The last version of Fetch with names of topics."""
EPOCH_AT = 12
"""Where a batch's header has the leader epoch."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Loop, Behind]]:
    with Loop() as loop, open_target("reference:1", folder=tmp_path_factory.mktemp("sound"), config={}) as target:
        yield loop, Behind(target)


def kept(answer: Any, _: Exchange) -> None:
    """As it is."""


def by_name(answer: Any, _: Exchange) -> None:
    """Fetch names topics."""
    for api in (each for each in answer.api_keys if each.api_key == FetchRequest.KEY):
        api.max_version = BY_NAME


def without(*keys: int) -> Habit:
    """These APIs are not advertised."""

    def hide(answer: Any, _: Exchange) -> None:
        answer.api_keys = [api for api in answer.api_keys if api.api_key not in keys]

    return Habit("ApiVersions", hide)


def without_isolation(answer: Any, exchange: Exchange) -> None:
    """The high watermark as the last stable offset, for readers of uncommitted records."""
    if exchange.request.isolation_level == READ_UNCOMMITTED:
        for partition in (each for topic in answer.responses for each in topic.partitions):
            partition.last_stable_offset = partition.high_watermark


def test_readers_of_uncommitted_records_need_no_last_stable_offset(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(sound, Habit("Fetch", without_isolation), "FET-19", tmp_path)
    assert verdicts == {"FET-19": "tolerated"}


def test_groups_are_judged_where_members_cannot_leave(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(sound, without(LeaveGroupRequest.KEY), "BAS-07 BAS-08 GRP-06 OFF-12", tmp_path)
    assert verdicts == {"BAS-07": "not judged", "BAS-08": "pass", "GRP-06": "pass", "OFF-12": "pass"}


def test_wrong_crcs_have_one_name(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    report, verdicts = judged(sound, Liar(LIES["crc-broken"]), "FET-10 ACK-10 ACK-11 PRD-15 PRD-23", tmp_path)
    blocked = dict.fromkeys(("ACK-10", "ACK-11", "PRD-15", "PRD-23"), "blocked FET-10")
    assert verdicts == {"FET-10": "fail"} | blocked
    assert any("the batch at offset 0 has the CRC 0x" in one.reason for one in report.judgements)


def test_commits_that_are_kept_in_another_place_are_in_no_wrong_partition(
    sound: tuple[Loop, Behind], tmp_path: Path
) -> None:
    """strikemq makes the topic, as any other, when Metadata is asked for it; nothing is written into it."""

    def keep_empty(answer: Any, _: Exchange) -> None:
        for partition in (each for topic in answer.topics if topic.name == OFFSETS for each in topic.partitions):
            partition.offset = 0

    _, verdicts = judged(sound, Habit("ListOffsets", keep_empty), "COO-08", tmp_path)
    assert verdicts == {"COO-08": "not judged"}


def as_sent(answer: Any, exchange: Exchange) -> None:
    """The first batch has the leader epoch of PRD-23's client, the second none."""
    for partition in (each for topic in answer.responses for each in topic.partitions):
        stored, at = bytearray(partition.records or b""), 0
        while at < len(stored):
            base, length = struct.unpack_from(">qi", stored, at)
            struct.pack_into(">i", stored, at + EPOCH_AT, 77 if base == 0 else -1)
            at += 12 + length
        partition.records = bytes(stored)


def test_leader_epochs_that_no_client_can_compare_are_tolerated(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    def old(answer: Any, _: Exchange) -> None:
        answer.api_keys = [api for api in answer.api_keys if api.api_key != OffsetForLeaderEpochRequest.KEY]
        for api in (each for each in answer.api_keys if each.api_key == MetadataRequest.KEY):
            api.max_version = WITHOUT_EPOCHS

    for name, habit, verdict in (
        ("reported", Habit("Fetch", as_sent), "fail"),
        ("not reported", Habits(Habit("ApiVersions", old), Habit("Fetch", as_sent)), "tolerated"),
    ):
        (tmp_path / name).mkdir()
        _, verdicts = judged(sound, habit, "PRD-23", tmp_path / name)
        assert verdicts == {"PRD-23": verdict}


def always_ongoing(answer: Any, _: Exchange) -> None:
    for transaction in answer.transaction_states:
        transaction.transaction_state, transaction.transaction_timeout_ms = "Ongoing", 60_000


class Restarting(Habit):
    """Answers a member that joins a group again with a generation of its own, as strikemq does."""

    def __init__(self) -> None:
        super().__init__("JoinGroup", self.count)

    def count(self, answer: Any, exchange: Exchange) -> None:
        if answer.leader == answer.member_id and len(answer.members) > 1:
            answer.generation_id += 1


@pytest.mark.parametrize(
    ("habit", "ids", "blocked"),
    [
        (Restarting(), "GRP-08 GRP-49", {"GRP-49": "blocked GRP-08"}),
        (
            Habit("DescribeTransactions", always_ongoing),
            "TXN-22 TXN-01 TXN-26",
            {"TXN-01": "blocked TXN-22", "TXN-26": "blocked TXN-22"},
        ),
        (Liar(LIES["list-all-committed"]), "LOF-13 TXV-06", {"TXV-06": "blocked LOF-13"}),
        (Liar(LIES["out-of-range-unnoticed"]), "FET-02 FET-23", {"FET-23": "blocked FET-02"}),
        (Liar(LIES["commit-generation-unchecked"]), "GRP-12 OFF-25", {"OFF-25": "blocked GRP-12"}),
    ],
)
def test_the_cause_is_named(
    habit: Habit | Liar, ids: str, blocked: dict[str, str], sound: tuple[Loop, Behind], tmp_path: Path
) -> None:
    _, verdicts = judged(sound, habit, ids, tmp_path)
    assert verdicts == dict.fromkeys(ids.split(), "fail") | blocked


class KnownByConnection(Habit):
    """Knows a member on the connection alone on which it joined, as Mokapi does."""

    def __init__(self) -> None:
        super().__init__("Heartbeat", self.refuse)

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        if exchange.api == "JoinGroup":
            answer: Any = decode_response(exchange.key, exchange.version, frame)[1]
            exchange.connection.memory.setdefault("members", []).append(answer.member_id)
        return super().answered(exchange, frame)

    def refuse(self, answer: Any, exchange: Exchange) -> None:
        if exchange.request.member_id not in exchange.connection.memory.get("members", ()):
            answer.error_code = ErrorCode.UNKNOWN_MEMBER_ID


def test_members_beat_on_the_connection_on_which_they_joined(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    """As Java's and librdkafka's consumers do; GRP-35 alone asks on another one, as franz-go does."""
    _, verdicts = judged(sound, KnownByConnection(), "GRP-04 GRP-08 GRP-11 GRP-35 GRP-36", tmp_path)
    assert verdicts == dict.fromkeys(("GRP-04", "GRP-08", "GRP-11", "GRP-36"), "pass") | {"GRP-35": "fail"}


class Silent(Habit):
    """Never answers an API, as strikemq does, which advertises CreateTopics."""

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        return Answer([]) if exchange.api == self.api and exchange.version == 2 else None


def test_no_answer_is_called_so(sound: tuple[Loop, Behind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {**(Conversation.connect.__kwdefaults__ or {}), "timeout_s": 1.0}
    monkeypatch.setattr(Conversation.connect, "__kwdefaults__", defaults)
    report, verdicts = judged(sound, Silent("CreateTopics", kept), "TOP-09", tmp_path)
    assert verdicts == {"TOP-09": "fail"}
    assert "no answer to CreateTopics v2 in time" in [one.reason for one in report.judgements]


class Stuck(Habit):
    """Answers nothing more on a connection after InitProducerId in its highest version, as Mokapi does: it reads on for more."""

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.connection.memory.get("stuck"):
            return []
        exchange.connection.memory["stuck"] = exchange.api == self.api and exchange.version == HIGHEST_INIT_PRODUCER_ID
        return None


def test_a_request_that_is_not_read_to_its_end_is_not_served(
    sound: tuple[Loop, Behind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(negotiation, "NEXT_WITHIN_S", 0.5)
    report, verdicts = judged(sound, Stuck("InitProducerId", kept), "API-05 IDM-03 IDM-15", tmp_path)
    assert verdicts == {"API-05": "fail", "IDM-03": "pass", "IDM-15": "pass"}
    assert any("and the next request on its connection is not" in one.reason for one in report.judgements)


@pytest.mark.parametrize("lowest", [1, 3])
def test_versions_are_judged_where_the_lowest_of_api_versions_is_not_0(
    lowest: int, sound: tuple[Loop, Behind], tmp_path: Path
) -> None:
    def raised(answer: Any, _: Exchange) -> None:
        next(api for api in answer.api_keys if api.api_key == ApiVersionsRequest.KEY).min_version = lowest

    _, verdicts = judged(sound, Habit("ApiVersions", raised), "API-05", tmp_path)
    assert verdicts == {"API-05": "pass"}


class Expiring(Habit):
    """Takes -1 for an age, so that all records of a topic with retention.ms=-1 have expired, as in kafkaesque's mock."""

    def __init__(self) -> None:
        super().__init__("Fetch", self.expire)
        self.names: set[str] = set()

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        for topic in exchange.request.topics if exchange.api == "CreateTopics" else ():
            if any((config.name, config.value) == ("retention.ms", "-1") for config in topic.configs):
                self.names.add(topic.name)
        return None

    def expire(self, answer: Any, _: Exchange) -> None:
        for partition in (each for topic in answer.responses if topic.topic in self.names for each in topic.partitions):
            partition.records = b""


def test_records_are_read_in_topics_that_keep_them(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    without_ids = Habits(Expiring(), Habit("ApiVersions", by_name))
    _, verdicts = judged(sound, without_ids, "BAS-04 ACK-01 ACK-12", tmp_path)
    assert verdicts == {"BAS-04": "pass", "ACK-01": "pass", "ACK-12": "pass"}


class Uncompressed(Habit):
    """Closes the connection at a compressed batch."""

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        sent = exchange.request.topic_data if exchange.api == self.api else []
        data = [bytes(each.records or b"") for topic in sent for each in topic.partition_data]
        if any(one.codec for each in data if len(each) > HEADER_BYTES for one in batches(each)):
            exchange.connection.writer.close()
            return []
        return None


def test_codecs_that_are_not_served_have_one_name(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    ids = "ACK-11 ACK-12 ACK-15 FET-10 FET-15 PRD-15 PRD-21"
    _, verdicts = judged(sound, Uncompressed("Produce", kept), ids, tmp_path)
    assert verdicts == dict.fromkeys(ids.split(), "blocked ACK-12") | {"ACK-12": "fail", "ACK-15": "pass"}


class Listing(Habit):
    """Lists a topic without a name where a request names no topics, as Mokapi does once it was asked to make one."""

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        if exchange.api != self.api or exchange.request.topics:
            return None
        return Answer([sized(frame + bytes(8))])


def test_frames_are_judged_whatever_topics_there_are(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    ids = "FRM-01 FRM-02 FRM-03 FRM-11"
    _, verdicts = judged(sound, Listing("Metadata", kept), ids, tmp_path)
    assert verdicts == dict.fromkeys(ids.split(), "pass")


def test_a_restart_is_judged_by_one_partition_where_no_more_can_be_had(
    sound: tuple[Loop, Behind], tmp_path: Path
) -> None:
    _, verdicts = judged(sound, without(CreateTopicsRequest.KEY), "ACK-17", tmp_path)
    assert verdicts == {"ACK-17": "pass"}


def test_answers_to_acks_0_are_called_so(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    report, _ = judged(sound, Liar(LIES["acks-0-answered"]), "ACK-02", tmp_path)
    assert any("an answer to one of the three" in one.reason for one in report.judgements)


def test_errors_and_topics_have_names_in_sentences() -> None:
    topic = Topic("t", NO_UUID, 1)
    assert shown({(topic, 0): ErrorCode.NONE}) == "{(t, 0): NONE(0)}"
    assert shown([ErrorCode.NONE, b"x", ()]) == "[NONE(0), b'x', ()]"
    wanted = {(topic, 0): (ErrorCode.UNKNOWN_SERVER_ERROR, 3)}
    seen = as_codes({(topic, 0): (0, 3), (topic, 1): (3, 0)}, wanted)
    assert shown(seen) == "{(t, 0): (NONE(0), 3), (t, 1): (UNKNOWN_TOPIC_OR_PARTITION(3), 0)}"
    assert as_codes([0, 12345], [ErrorCode.NONE]) == [ErrorCode.NONE, 12345]
