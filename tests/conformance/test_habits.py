"""Habits of brokers that others wrote. Each once kept most requirements from being judged, or made them fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import conversation, observations
from conformance.cluster import QUICK
from conformance.judging import judge
from conformance.liars import Behind, Lying
from conformance.requirement import catalogue, select
from conformance.requirements import framing, throttling
from conformance.results import Run, Verdict
from conformance.runner import Plan, run
from conformance.subject import Subject
from linearizability.mutants.wire.proxy import Answer, Exchange, ProxiedConnection, Proxy, Tamper, sized
from linearizability.targets import open_target
from linearizability.targets.loop import Loop
from linearizability.targets.wire import FIRST_FLEXIBLE, NEWER, answers
from reference.protocol.codec import encode
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_request, decode_response, encode_response
from reference.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.metadata import MetadataRequest
from tests.protocol.frame import frame_of

NOT_READY_S = 2.0
LENGTHS = {1: 32, 2: 64}
"""SCRAM mechanism -> bytes of its hash."""


class Habit:
    """Changes the answers to one API. `change` gets the answer and the exchange."""

    rewrites_requests = True

    def __init__(self, api: str, change: Callable[[Any, Exchange], None], written_in: int | None = None) -> None:
        self.api, self.change, self.written_in = api, change, written_in

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        return None

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        if exchange.api != self.api:
            return None
        correlation_id, message = decode_response(exchange.key, exchange.version, frame)
        self.change(message, exchange)
        version = max(exchange.version, self.written_in or 0)
        return Answer([frame_of(encode_response(exchange.key, version, correlation_id, message))])

    def ended(self, connection: ProxiedConnection) -> bytes | None:
        return None


class Unplaced(Habit):
    """Makes as many partitions as assignments name, wherever it likes."""

    def __init__(self) -> None:
        super().__init__("CreateTopics", lambda answer, exchange: None)

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.api != self.api:
            return None
        header, request = exchange.decoded()
        for topic in request.topics:
            if topic.assignments:
                placed = topic.assignments
                topic.num_partitions, topic.replication_factor, topic.assignments = 1, len(placed[0].broker_ids), []
        return [sized(header + encode(request, exchange.version))]


class FromZero(Habit):
    """Counts the generations of a group from 0, as tansu does. A commit in generation -1 is of no member here."""

    def __init__(self) -> None:
        super().__init__("JoinGroup", self.lower)

    def lower(self, answer: Any, _: Exchange) -> None:
        answer.generation_id -= answer.generation_id > 0

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.api not in ("SyncGroup", "Heartbeat", "OffsetCommit"):
            return None
        header, request = exchange.decoded()
        if exchange.api != "OffsetCommit":
            request.generation_id += request.generation_id >= 0
        elif request.generation_id_or_member_epoch < 0:
            request.member_id = ""
        else:
            request.generation_id_or_member_epoch += 1
        return [sized(header + encode(request, exchange.version))]


class Habits(Habit):
    """Several of them, each with an API of its own."""

    def __init__(self, *habits: Habit) -> None:
        self.by_api = {habit.api: habit for habit in habits}

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        asked = [habit.asked(exchange) for habit in self.by_api.values()]
        return next((sent for sent in asked if sent is not None), None)

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        habit = self.by_api.get(exchange.api)
        return habit.answered(exchange, frame) if habit else None


class Evicting(Habit):
    """Removes a member when another one with its client id joins, as kafka-wire does; here only its Heartbeats show it."""

    def __init__(self) -> None:
        super().__init__("Heartbeat", self.refuse)
        self.members: dict[tuple[str, str | None], set[str]] = {}
        self.removed: set[str] = set()

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.api == "JoinGroup":
            shared = exchange.request.group_id, decode_request(exchange.frame)[0].client_id
            present = self.members.setdefault(shared, set())
            if exchange.request.member_id:
                present.add(exchange.request.member_id)
            else:
                self.removed |= present
        return None

    def refuse(self, answer: Any, exchange: Exchange) -> None:
        if exchange.request.member_id in self.removed:
            answer.error_code = ErrorCode.UNKNOWN_MEMBER_ID


class Unready(Habit):
    """Reports a rebalance to members alone that have synchronised, as tansu does."""

    def __init__(self) -> None:
        super().__init__("Heartbeat", self.hide)
        self.synchronised: set[tuple[str, int]] = set()

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.api == "SyncGroup":
            self.synchronised.add((exchange.request.member_id, exchange.request.generation_id))
        return None

    def hide(self, answer: Any, exchange: Exchange) -> None:
        if (exchange.request.member_id, exchange.request.generation_id) not in self.synchronised:
            answer.error_code = ErrorCode.NONE


class Handshaken(Habit):
    """Takes what follows a SaslHandshake for the bytes of a mechanism, as kafka-proxy does, whatever its answer was."""

    def __init__(self) -> None:
        super().__init__("SaslHandshake", lambda answer, exchange: None)

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.connection.memory.get("handshaken"):
            exchange.connection.writer.close()
            return []
        exchange.connection.memory["handshaken"] = exchange.api == self.api
        return None


class Lengths(Habit):
    """Refuses a salted password of another length than the mechanism's hash, as crabka does."""

    def __init__(self) -> None:
        super().__init__("AlterUserScramCredentials", self.refuse)
        self.refused: list[str] = []

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.api != self.api:
            return None
        header, request = exchange.decoded()
        wrong = [one for one in request.upsertions if len(one.salted_password) != LENGTHS.get(one.mechanism, 32)]
        self.refused = [one.name for one in wrong]
        request.upsertions = [one for one in request.upsertions if one not in wrong]
        return [sized(header + encode(request, exchange.version))]

    def refuse(self, answer: Any, _: Exchange) -> None:
        result = type(answer).AlterUserScramCredentialsResult
        answer.results += [result(user=user, error_code=ErrorCode.UNACCEPTABLE_CREDENTIAL) for user in self.refused]


class Forgetful(Habit):
    """Delays its answer to a large batch by a second of throttling, and does not count the batch after that, as crabka does."""

    def __init__(self) -> None:
        super().__init__("Produce", lambda answer, exchange: None)

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        if exchange.api != self.api:
            return None
        correlation_id, message = decode_response(exchange.key, exchange.version, frame)
        message.throttle_time_ms = 1_000 * (len(exchange.frame) > 10_000)  # type: ignore[attr-defined]
        parts = encode_response(exchange.key, exchange.version, correlation_id, message)
        return Answer([b"".join(parts)], delay_s=message.throttle_time_ms / 1_000)  # type: ignore[attr-defined]


class Generous(Habit):
    """Returns records together with a throttle time to a consumer above its quota, as crabka does."""

    def __init__(self) -> None:
        super().__init__("Fetch", self.throttle)

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        return [sized(exchange.frame.replace(b"tg-client-", b"tg-others-"))] if exchange.api == self.api else None

    def throttle(self, answer: Any, exchange: Exchange) -> None:
        of_client = b"tg-others-" in exchange.frame or b"tg-client-" in exchange.frame
        records = [partition.records for topic in answer.responses for partition in topic.partitions]
        answer.throttle_time_ms = 1_000 * (of_client and any(records))


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Loop, Behind]]:
    with Loop() as loop, open_target("reference:1", folder=tmp_path_factory.mktemp("sound"), config={}) as target:
        yield loop, Behind(target)


def judged(behind: tuple[Loop, Behind], habit: Tamper, ids: str, folder: Path) -> tuple[Run, dict[str, str]]:
    """A run on a broker with a habit, and the verdicts on the given ids. `blocked ID` names the requirement that blocks one."""

    @contextmanager
    def opened(spec: str, *, folder: Path, config: Mapping[str, str]) -> Iterator[Any]:
        with Proxy(behind[0], behind[1].target.nodes, habit) as proxy:
            assert answers(proxy.nodes[0].host, proxy.nodes[0].port)
            yield Lying(behind[1], proxy)

    report = run(Plan("exec:habit", select(ids.split()), folder, open_target=opened))
    found = {one.requirement.id: one for one in report.judgements}
    return report, {id: f"{found[id].verdict} {found[id].blocked_by}".strip() for id in ids.split()}


def test_one_that_answers_api_versions_in_newer_layouts_alone_is_judged(
    behind: tuple[Loop, Behind], tmp_path: Path
) -> None:
    habit = Habit("ApiVersions", lambda answer, exchange: None, written_in=FIRST_FLEXIBLE)
    report, verdicts = judged(behind, habit, "API-01 API-04 BAS-03", tmp_path)
    assert verdicts == {"API-01": "fail", "API-04": "blocked API-01", "BAS-03": "pass"}
    assert report.target.profile.asked_in in NEWER


def test_one_that_has_no_controller_yet_is_waited_for(behind: tuple[Loop, Behind], tmp_path: Path) -> None:
    first: list[float] = []

    def refuse(answer: Any, _: Exchange) -> None:
        first.append(time.monotonic())
        if time.monotonic() < first[0] + NOT_READY_S:
            for topic in answer.topics:
                topic.error_code = ErrorCode.NOT_CONTROLLER

    report, verdicts = judged(behind, Habit("CreateTopics", refuse), "BAS-02 TOP-04", tmp_path)
    assert verdicts == {"BAS-02": "pass", "TOP-04": "pass"}
    assert report.target.profile.topics_by == "CreateTopics"


def test_one_that_is_no_coordinator_of_an_unused_group_is_joined_all_the_same(
    behind: tuple[Loop, Behind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (conversation, observations):
        monkeypatch.setattr(module, "READY_WITHIN_S", 1.0)

    def disown(answer: Any, exchange: Exchange) -> None:
        if exchange.version < 3:
            answer.error_code = answer.error_code and ErrorCode.NOT_COORDINATOR
        elif any(one.error_code for one in answer.members):
            answer.members, answer.error_code = [], ErrorCode.NOT_COORDINATOR

    report, verdicts = judged(behind, Habit("LeaveGroup", disown), "BAS-07 GRP-06 GRP-19", tmp_path)
    assert verdicts == {"BAS-07": "pass", "GRP-06": "pass", "GRP-19": "fail"}
    assert not report.target.profile.knows_unused_groups


def test_one_that_reports_every_topic_is_judged(behind: tuple[Loop, Behind], tmp_path: Path) -> None:
    def add(answer: Any, _: Exchange) -> None:
        other = type(answer).MetadataResponseTopic(name="another", partitions=[])
        answer.topics = [other, *answer.topics] if answer.topics else []

    _, verdicts = judged(behind, Habit("Metadata", add), "BAS-02 BAS-03", tmp_path)
    assert verdicts == {"BAS-02": "pass", "BAS-03": "pass"}


def test_members_that_are_given_the_wrong_code_join_again_and_one_requirement_fails(
    behind: tuple[Loop, Behind], tmp_path: Path
) -> None:
    def swap(answer: Any, _: Exchange) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            answer.error_code = ErrorCode.ILLEGAL_GENERATION

    _, verdicts = judged(behind, Habit("Heartbeat", swap), "GRP-06 GRP-08 GRP-14 OFF-09", tmp_path)
    assert verdicts == {"GRP-06": "pass", "GRP-08": "pass", "GRP-14": "fail", "OFF-09": "pass"}


def test_a_member_that_is_forgotten_is_not_waited_for(behind: tuple[Loop, Behind], tmp_path: Path) -> None:
    def forget(answer: Any, _: Exchange) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            answer.error_code = ErrorCode.UNKNOWN_MEMBER_ID

    report, verdicts = judged(behind, Habit("Heartbeat", forget), "GRP-14", tmp_path)
    assert verdicts == {"GRP-14": "fail"}
    assert any("is answered with UNKNOWN_MEMBER_ID(25)" in one.reason for one in report.judgements)


def test_one_that_lets_no_members_share_a_client_id_fails_one_requirement(
    behind: tuple[Loop, Behind], tmp_path: Path
) -> None:
    _, verdicts = judged(behind, Evicting(), "GRP-08 GRP-14 GRP-49", tmp_path)
    assert verdicts == {"GRP-08": "pass", "GRP-14": "pass", "GRP-49": "fail"}


def test_one_that_reports_rebalances_to_synchronised_members_alone_is_not_accused(
    behind: tuple[Loop, Behind], tmp_path: Path
) -> None:
    _, verdicts = judged(behind, Unready(), "GRP-06 GRP-07 GRP-08 GRP-11", tmp_path)
    assert set(verdicts.values()) == {"pass"}


def test_an_api_that_is_advertised_with_no_version_is_not_served(behind: tuple[Loop, Behind], tmp_path: Path) -> None:
    def hide(answer: Any, _: Exchange) -> None:
        for api in answer.api_keys:
            if api.api_key == InitProducerIdRequest.KEY:
                api.min_version, api.max_version = 0, -1

    _, verdicts = judged(behind, Habit("ApiVersions", hide), "API-04 API-05 BAS-09", tmp_path)
    assert verdicts == {"API-04": "fail", "API-05": "pass", "BAS-09": "not judged"}


def test_one_that_counts_generations_from_0_is_not_accused(behind: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(behind, FromZero(), "GRP-08 GRP-14 OFF-25", tmp_path)
    assert verdicts == {"GRP-08": "tolerated", "GRP-14": "pass", "OFF-25": "pass"}


def test_one_that_asks_static_members_to_join_twice_fails_one_requirement(
    behind: tuple[Loop, Behind], tmp_path: Path
) -> None:
    def refuse(answer: Any, exchange: Exchange) -> None:
        if exchange.request.group_instance_id is not None and not exchange.request.member_id:
            answer.error_code = ErrorCode.MEMBER_ID_REQUIRED

    _, verdicts = judged(behind, Habit("JoinGroup", refuse), "GRP-14 GRP-20 GRP-21 GRP-39 GRP-40 GRP-41", tmp_path)
    blocked = dict.fromkeys(("GRP-21", "GRP-39", "GRP-40", "GRP-41"), "blocked GRP-20")
    assert verdicts == {"GRP-14": "pass", "GRP-20": "fail"} | blocked


def test_one_that_raises_the_epoch_again_is_not_excused_by_the_name_of_a_state(
    behind: tuple[Loop, Behind], tmp_path: Path
) -> None:
    asked: set[tuple[int, int]] = set()

    def empty(answer: Any, _: Exchange) -> None:
        for state in answer.transaction_states:
            if state.transaction_state.startswith("Complete"):
                state.transaction_state = "Empty"

    def raise_again(answer: Any, exchange: Exchange) -> None:
        identity = exchange.request.producer_id, exchange.request.producer_epoch
        answer.producer_epoch += identity in asked
        if exchange.request.producer_epoch >= 0:
            asked.add(identity)

    habits = Habits(Habit("DescribeTransactions", empty), Habit("InitProducerId", raise_again))
    _, verdicts = judged(behind, habits, "TXN-06 TXN-22", tmp_path)
    assert verdicts == {"TXN-06": "fail", "TXN-22": "fail"}


def test_what_needs_one_leader_is_not_judged_where_none_can_be_chosen(tmp_path: Path) -> None:
    with Loop() as loop, open_target("reference:3", folder=tmp_path / "three", config=QUICK) as target:
        report, verdicts = judged((loop, Behind(target)), Unplaced(), "TOP-13 PRD-29 ELE-04 BAS-14", tmp_path)
    assert verdicts == {"TOP-13": "pass", "PRD-29": "not judged", "ELE-04": "pass", "BAS-14": "pass"}
    assert not report.target.profile.places


def test_one_that_looks_at_a_size_with_the_first_byte_of_the_frame_is_not_accused(
    behind: tuple[Loop, Behind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_on = ProxiedConnection._requests

    def late(connection: ProxiedConnection, data: bytes) -> Sequence[bytes]:
        held = connection.memory.pop("held", b"") + data
        if len(held) > 4:
            return passed_on(connection, held)
        connection.memory["held"] = held
        return []

    monkeypatch.setattr(ProxiedConnection, "_requests", late)
    monkeypatch.setattr(framing, "CLOSED_WITHIN_S", 0.5)
    nothing = Habit("", lambda answer, exchange: None)
    _, verdicts = judged(behind, nothing, "FRM-02 FRM-04 FRM-05", tmp_path)
    assert verdicts == {"FRM-02": "pass", "FRM-04": "tolerated", "FRM-05": "tolerated"}


def test_ranges_that_are_out_of_order_are_named(behind: tuple[Loop, Behind], tmp_path: Path) -> None:
    def turn(answer: Any, _: Exchange) -> None:
        for api in answer.api_keys:
            if api.api_key == InitProducerIdRequest.KEY:
                api.min_version, api.max_version = 1, 0

    report, verdicts = judged(behind, Habit("ApiVersions", turn), "API-04", tmp_path)
    assert verdicts == {"API-04": "fail"}
    assert "but not InitProducerId (22) v1 to v0" in report.judgements[-1].reason


def test_one_that_writes_the_states_of_groups_in_capitals_fails_one_requirement(
    behind: tuple[Loop, Behind], tmp_path: Path
) -> None:
    def capitals(answer: Any, _: Exchange) -> None:
        for group in answer.groups:
            group.group_state = group.group_state.upper()

    _, verdicts = judged(behind, Habit("ConsumerGroupDescribe", capitals), "BAS-11 CGH-09 CGH-20", tmp_path)
    assert verdicts == {"BAS-11": "pass", "CGH-09": "pass", "CGH-20": "fail"}


def test_one_that_reports_null_for_no_quotas_fails_one_requirement(behind: tuple[Loop, Behind], tmp_path: Path) -> None:
    def omit(answer: Any, _: Exchange) -> None:
        answer.entries = answer.entries or None

    _, verdicts = judged(behind, Habit("DescribeClientQuotas", omit), "QTA-01 QTA-11 QTA-12", tmp_path)
    assert verdicts == {"QTA-01": "pass", "QTA-11": "fail", "QTA-12": "pass"}


def test_one_whose_controller_alone_takes_credentials_is_not_accused(
    behind: tuple[Loop, Behind], tmp_path: Path
) -> None:
    asked: list[Exchange] = []

    def refuse(answer: Any, exchange: Exchange) -> None:
        asked.append(exchange)
        for result in answer.results:
            result.error_code = ErrorCode.NOT_CONTROLLER if len(asked) == 1 else result.error_code

    _, verdicts = judged(behind, Habit("AlterUserScramCredentials", refuse), "SEC-18 SEC-19", tmp_path)
    assert verdicts == {"SEC-18": "pass", "SEC-19": "pass"}
    assert len(asked) > 1


def test_nothing_else_is_asked_after_a_handshake(behind: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(behind, Handshaken(), "API-05", tmp_path)
    assert verdicts == {"API-05": "pass"}


def test_one_that_heeds_a_quota_late_is_not_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def call(request: Any, version: int) -> Any:
        calls.append(request)
        return SimpleNamespace(throttle_time_ms=len(calls) // 2_500)

    monkeypatch.setattr(throttling, "client", lambda *_: SimpleNamespace(call=call))
    monkeypatch.setattr(throttling, "quota", lambda *_: nullcontext())
    served = {MetadataRequest.KEY: (0, 12), DescribeClientQuotasRequest.KEY: (0, 1)}
    judgement = judge(catalogue()["QTA-33"], Subject([("127.0.0.1", 1)], "2.8.2", api_versions=served))
    assert judgement.verdict is Verdict.PASS, judgement.reason


def test_one_that_stores_bytes_after_a_batch_fails(behind: tuple[Loop, Behind], tmp_path: Path) -> None:
    def longer(answer: Any, exchange: Exchange) -> None:
        for partition in (partition for topic in answer.responses for partition in topic.partitions):
            if partition.records:
                partition.records = bytes(partition.records) + bytes(partition.records)[:16]

    _, verdicts = judged(behind, Habit("Fetch", longer), "PRD-25", tmp_path)
    assert verdicts == {"PRD-25": "fail"}


def test_credentials_that_are_looked_at_are_well_formed(behind: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(behind, Lengths(), "SEC-18 SEC-19 SEC-41 SEC-42 SEC-43", tmp_path)
    assert {*verdicts.values()} == {"pass"}


def test_one_that_keeps_an_answer_for_the_throttle_time_is_not_accused_of_separate_quotas(
    behind: tuple[Loop, Behind], tmp_path: Path
) -> None:
    _, verdicts = judged(behind, Forgetful(), "QTA-20 QTA-23", tmp_path)
    assert verdicts == {"QTA-20": "pass", "QTA-23": "not judged"}


def test_one_that_throttles_with_records_is_accused_of_that_alone(behind: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(behind, Generous(), "QTA-30 QTA-31", tmp_path)
    assert verdicts == {"QTA-30": "fail", "QTA-31": "blocked QTA-30"}
