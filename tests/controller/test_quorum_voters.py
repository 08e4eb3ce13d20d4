"""Voter sets and their history in the log."""

from __future__ import annotations

from uuid import UUID

import pytest

from reference.controller.quorum_voters import Voter, VoterHistory, VoterSet
from reference.protocol.messages.k_raft_version_record import KRaftVersionRecord
from reference.protocol.primitives import FIRST_OFFSET, NO_OFFSET, NodeId, Offset


def voters(*ids: int, directory: int = 0) -> VoterSet:
    return VoterSet(Voter(NodeId(id), UUID(int=directory + id)) for id in ids)


def test_a_voter_set_is_read_back_from_its_record() -> None:
    found = VoterSet.of_record(voters(1, 2, 3).record())
    assert [*found] == [*voters(1, 2, 3)]
    assert found.majority == 2


@pytest.mark.parametrize(
    ("one", "other", "overlaps"),
    [
        (voters(1, 2, 3), voters(1, 2, 3), True),
        (voters(1, 2), voters(1, 2, 3), True),
        (voters(1, 2, 3), voters(1, 2), True),
        (voters(1, 2, 3), voters(1, 2, 4), True),
        (voters(1), voters(1, 2, 3), False),
        (voters(1, 2, 3), voters(1, 4, 5), False),
        (voters(1, 2), voters(1, 2, directory=10), False),
    ],
)
def test_sets_that_differ_by_one_overlap(one: VoterSet, other: VoterSet, overlaps: bool) -> None:
    assert one.overlaps(other) is overlaps
    assert other.overlaps(one) is overlaps


def test_a_voter_of_the_configuration_has_any_directory() -> None:
    configured = VoterSet([Voter(NodeId(1))])
    assert configured.is_voter(NodeId(1), UUID(int=5))
    assert not voters(1).is_voter(NodeId(1), UUID(int=5))


def history() -> VoterHistory:
    found = VoterHistory([NodeId(7)])
    found.take(NO_OFFSET, KRaftVersionRecord(k_raft_version=1))
    found.take(NO_OFFSET, voters(1).record())
    found.take(Offset(5), voters(1, 2).record())
    found.take(Offset(9), voters(2).record())
    return found


def test_the_latest_voters_count_and_a_truncation_takes_them_back() -> None:
    found = history()
    assert (found.voters.ids, found.offset, found.level) == ((2,), 9, 1)
    found.truncate(Offset(9))
    assert (found.voters.ids, found.offset) == ((1, 2), 5)
    found.truncate(FIRST_OFFSET)
    assert (found.voters.ids, found.offset, found.level) == ((1,), -1, 1)
    found.clear()
    assert (found.voters.ids, found.level) == ((7,), 0)


def test_the_voters_in_force_at_an_offset_are_known() -> None:
    found = history()
    expected = {-1: (1,), 4: (1,), 5: (1, 2), 8: (1, 2), 9: (2,), 99: (2,)}
    assert {offset: found.at(Offset(offset)).voters.ids for offset in expected} == expected
    found.forget_before(Offset(6))
    assert [found.at(offset).voters.ids for offset in map(Offset, (6, 8, 9))] == [(1, 2), (1, 2), (2,)]
    found.forget_before(Offset(20))
    assert found.voters.ids == found.at(Offset(20)).voters.ids == (2,)


def test_the_log_does_not_jump_from_set_to_set() -> None:
    found = history()
    with pytest.raises(ValueError, match="differ by more than one"):
        found.take(Offset(12), voters(2, 3, 4).record())
    assert found.voters.ids == (2,)
