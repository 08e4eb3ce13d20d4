"""Habits of coordinators that others wrote. Each once made most requirements of groups fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from conformance.committed_offsets import commit_one
from conformance.liars import Behind
from conformance.observations import Skipped
from conformance.results import Lack
from linearizability.client.group_member import decode_assignment, encode_assignment
from linearizability.client.requests import Topic
from linearizability.mutants.wire.proxy import Answer, Exchange, sized
from linearizability.targets import open_target
from linearizability.targets.loop import Loop
from reference.protocol.codec import encode
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_response
from reference.protocol.messages.sync_group import SyncGroupResponse
from reference.protocol.primitives import NO_UUID
from tests.conformance.test_habits import Habit, judged


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Loop, Behind]]:
    with Loop() as loop, open_target("reference:1", folder=tmp_path_factory.mktemp("sound"), config={}) as target:
        yield loop, Behind(target)


class Reading(Habit):
    """Reads what a leader of consumers assigns, and writes it again without its user data, as SeaweedFS does."""

    def __init__(self) -> None:
        super().__init__("SyncGroup", lambda answer, exchange: None)

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.api != self.api:
            return None
        header, request = exchange.decoded()
        for one in request.assignments:
            one.assignment = encode_assignment(decode_assignment(bytes(one.assignment)))[:-4] + bytes(4)
        return [sized(header + encode(request, exchange.version))]


class Impatient(Habit):
    """Answers a follower that synchronises before its leader with REBALANCE_IN_PROGRESS, as SeaweedFS does; Kafka holds it."""

    def __init__(self) -> None:
        super().__init__("SyncGroup", lambda answer, exchange: None)
        self.led: set[tuple[str, int]] = set()

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.api != self.api:
            return None
        generation = exchange.request.group_id, exchange.request.generation_id
        if exchange.request.assignments:
            self.led.add(generation)
        if generation in self.led:
            return None
        exchange.reply(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        return []


class Assigning(Habit):
    """Lets a leader assign again in one generation, as crabka does; with `any_member` any member's first assignment counts."""

    def __init__(self, any_member: bool) -> None:
        super().__init__("SyncGroup", self.assign)
        self.any_member = any_member
        self.leaders: set[str] = set()
        self.sent: dict[tuple[str, int], dict[str, bytes]] = {}

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        if exchange.api == self.api:
            request = exchange.request
            given = {one.member_id: bytes(one.assignment) for one in request.assignments}
            known = self.sent.setdefault((request.group_id, request.generation_id), {})
            if self.any_member:
                known.update(given | known)
            elif request.member_id in self.leaders:
                known.update(given)
        return None

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        if exchange.api == "JoinGroup":
            answer: Any = decode_response(exchange.key, exchange.version, frame)[1]
            self.leaders |= {answer.leader} & {answer.member_id}
        return super().answered(exchange, frame)

    def assign(self, answer: Any, exchange: Exchange) -> None:
        if not answer.error_code:
            given = self.sent.get((exchange.request.group_id, exchange.request.generation_id), {})
            answer.assignment = given.get(exchange.request.member_id, answer.assignment)


@pytest.mark.parametrize(("any_member", "verdict"), [(False, "tolerated"), (True, "fail")])
def test_a_leader_may_assign_again_and_a_follower_may_not(
    any_member: bool, verdict: str, coordinator: tuple[Loop, Behind], tmp_path: Path
) -> None:
    _, verdicts = judged(coordinator, Assigning(any_member), "GRP-10 GRP-23", tmp_path)
    assert verdicts == {"GRP-10": "pass", "GRP-23": verdict}


@pytest.mark.parametrize(
    ("api", "error", "verdict"),
    [
        ("EndTxn", ErrorCode.INVALID_TXN_STATE, "tolerated"),
        ("EndTxn", ErrorCode.REQUEST_TIMED_OUT, "fail"),
        ("DescribeTransactions", ErrorCode.UNKNOWN_LEADER_EPOCH, "pass"),
        ("DescribeTransactions", ErrorCode.NONE, "fail"),
    ],
)
def test_an_id_that_was_never_initialised_may_be_refused_with_another_code(
    api: str, error: ErrorCode, verdict: str, coordinator: tuple[Loop, Behind], tmp_path: Path
) -> None:
    """Clients get this error only where ids are forgotten (TXN-27). After a retriable error they would ask for ever."""

    def refuse(answer: Any, _: Exchange) -> None:
        for each in getattr(answer, "transaction_states", [answer]):
            if each.error_code in (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                each.error_code = error

    _, verdicts = judged(coordinator, Habit(api, refuse), "TXN-07", tmp_path)
    assert verdicts == {"TXN-07": verdict}


def test_what_leaders_assign_can_be_read(coordinator: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(coordinator, Reading(), "BAS-07 GRP-08 GRP-14 GRP-16 GRP-20 GRP-33", tmp_path)
    assert {*verdicts.values()} == {"pass"}


def test_followers_that_are_not_held_are_blamed_once(coordinator: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(coordinator, Impatient(), "BAS-07 GRP-10 GRP-11 GRP-33 GRP-38 GRP-43", tmp_path)
    assert verdicts.pop("GRP-11") == "fail"
    assert {*verdicts.values()} <= {"pass", "blocked GRP-11"} and "blocked GRP-11" in verdicts.values()


def test_a_member_commits_in_no_version_that_cannot_say_who_it_is() -> None:
    def skip(reason: str, lacks: Lack) -> NoReturn:
        raise Skipped(reason, lacks)

    broker: Any = SimpleNamespace(version_for=lambda request, version: version or 0, skip=skip)
    with pytest.raises(Skipped, match="needs OffsetCommit v1"):
        commit_one(broker, "group", Topic("topic", NO_UUID, 1), 1, generation=1, member_id="member")


def test_where_no_member_is_removed_commits_keep_none(
    coordinator: tuple[Loop, Behind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SeaweedFS looks for silent members each half minute: GRP-36 once passed there, though commits keep no member alive."""
    monkeypatch.setattr("conformance.requirements.group_departures.LOOKED_AT_S", (1, 7))

    def keep(answer: Any, _: Exchange) -> None:
        answer.error_code = 0 if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID else answer.error_code

    _, verdicts = judged(coordinator, Habit("Heartbeat", keep), "GRP-36", tmp_path)
    assert verdicts == {"GRP-36": "not judged"}
