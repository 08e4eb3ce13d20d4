"""kraft.version is raised from 0 to 1: the configured voters are written to the log (KIP-853)."""

from __future__ import annotations

from typing import Any

import pytest

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.schema import Message
from tests.controller.quorum_members import Members, topic
from tests.controller.test_quorum_changing import addition, change, removal

REPORTED_WITHIN_MS = 3000
"""A follower reports when its first fetch timeout is over."""


def a_quorum(**settings: bool) -> Members:
    members = Members(3, 1, reporting=True, **settings)
    members.start(0, 1, 2, 3)
    members.elect(0)
    return members


@pytest.fixture
def three() -> Members:
    """Member 0 leads 1 and 2, which have reported; 3 observes."""
    members = a_quorum()
    members.pass_time(REPORTED_WITHIN_MS)
    return members


def refused(members: Members, level: int = 1) -> str:
    end = members[0].log_end_offset
    with pytest.raises(KafkaError) as error:
        members[0].raise_kraft_version(level, members.now)
    assert error.value.code == ErrorCode.INVALID_UPDATE_VERSION
    assert members[0].log_end_offset == end
    return error.value.message or ""


def raise_level(members: Members) -> None:
    members[0].raise_kraft_version(1, members.now)
    members.pass_time(500)


def test_all_nodes_have_the_voters_and_their_directories(three: Members) -> None:
    assert [three[id].kraft_version for id in range(4)] == [0] * 4
    raise_level(three)
    assert [three[id].kraft_version for id in range(4)] == [1] * 4
    assert [[*three[id].voters] for id in range(4)] == [[three.voter(id) for id in range(3)]] * 4
    assert three[0].high_watermark == three[0].log_end_offset


def test_afterwards_voters_come_and_go(three: Members) -> None:
    raise_level(three)
    assert change(three, 0, removal(three, 2)) == ErrorCode.NONE
    assert change(three, 0, addition(three, 2)) == ErrorCode.NONE
    assert [three[id].voters.ids for id in range(3)] == [(0, 1, 2)] * 3


def test_it_survives_a_power_loss_and_another_leader(three: Members) -> None:
    raise_level(three)
    three[0].append([topic(1)], three.now)
    three.pass_time(500)
    three.lose_power(0, 1, 2)
    three.start(1, 2)
    three.pass_time(8000)
    assert [id for id in (1, 2) if three[id].is_leader]
    assert three.names(1) == three.names(2) == ["t1"]
    assert [three[id].kraft_version for id in (1, 2)] == [1, 1]


def test_it_is_raised_once(three: Members) -> None:
    raise_level(three)
    end = three[0].log_end_offset
    raise_level(three)
    assert three[0].log_end_offset == end


def test_only_checked_it_changes_nothing(three: Members) -> None:
    end = three[0].log_end_offset
    three[0].raise_kraft_version(1, three.now, validate_only=True)
    assert (three[0].log_end_offset, three[0].kraft_version) == (end, 0)


def test_a_voter_that_has_not_reported_is_not_known_to_support_it() -> None:
    members = a_quorum()
    assert "because not all of the voters support it" in refused(members)
    members.lose_power(2)
    members.pass_time(REPORTED_WITHIN_MS)
    assert "because not all of the voters support it" in refused(members)


def test_a_level_that_no_voter_supports_is_refused(three: Members) -> None:
    assert "KRAFT_VERSION_2" in refused(three, 2)


def test_what_was_reported_to_a_former_leader_is_not_known(three: Members) -> None:
    three[0].resign(three.now)
    three.pass_time(200)
    leader = next(id for id in (1, 2) if three[id].is_leader)
    with pytest.raises(KafkaError, match="because not all of the voters support it"):
        three[leader].raise_kraft_version(1, three.now)
    three.pass_time(REPORTED_WITHIN_MS)
    three[leader].raise_kraft_version(1, three.now)
    three.pass_time(500)
    assert [three[id].kraft_version for id in range(4)] == [1] * 4


def test_voters_report_once_to_a_leader(three: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    right = three.ask

    def count(id: int, request: Message, token: object = None) -> Any:
        asked.append(type(request).__name__)
        return right(id, request, token)

    monkeypatch.setattr(three, "ask", count)
    three.pass_time(2 * REPORTED_WITHIN_MS)
    assert "FetchRequest" in asked and "UpdateRaftVoterRequest" not in asked


def test_beside_releases_without_it_no_voter_reports() -> None:
    members = a_quorum(pre_vote=False)
    members.pass_time(REPORTED_WITHIN_MS)
    assert "because not all of the voters support it" in refused(members)


def test_it_is_committed_by_fetches_that_name_directories(three: Members) -> None:
    """Before it the leader counted the progress of voters by their ids alone."""
    before = three[0].high_watermark
    three[0].raise_kraft_version(1, three.now)
    assert three[0].high_watermark == before
    three.pass_time(1000)
    assert three[0].high_watermark == three[0].log_end_offset > before
