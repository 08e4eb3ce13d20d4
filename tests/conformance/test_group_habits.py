"""Habits of coordinators that others wrote, by which most requirements of groups were blamed."""

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
from linearizability.mutants.wire.proxy import Exchange, sized
from linearizability.targets import open_target
from linearizability.targets.loop import Loop
from reference.protocol.codec import encode
from reference.protocol.errors import ErrorCode
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


def test_what_leaders_assign_can_be_read(coordinator: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(coordinator, Reading(), "BAS-07 GRP-08 GRP-14 GRP-16 GRP-20 GRP-33", tmp_path)
    assert {*verdicts.values()} == {"pass"}


def test_followers_that_are_not_held_are_blamed_once(coordinator: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(coordinator, Impatient(), "BAS-07 GRP-10 GRP-11 GRP-33 GRP-43", tmp_path)
    assert verdicts.pop("GRP-11") == "fail"
    assert {*verdicts.values()} <= {"pass", "blocked GRP-11"} and "blocked GRP-11" in verdicts.values()


def test_a_member_commits_in_no_version_that_cannot_say_who_it_is() -> None:
    def skip(reason: str, lacks: Lack) -> NoReturn:
        raise Skipped(reason, lacks)

    broker: Any = SimpleNamespace(version_for=lambda request, version: version or 0, skip=skip)
    with pytest.raises(Skipped, match="needs OffsetCommit v1"):
        commit_one(broker, "group", Topic("topic", NO_UUID, 1), 1, generation=1, member_id="member")
