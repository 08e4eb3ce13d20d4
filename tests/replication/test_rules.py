"""The scalar rules of replication, by examples; CrossHair confirms them over all paths (`tests/spec/test_pure_rules.py`)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import LONG_AGO, NEVER, BrokerEpoch, LeaderEpoch, Offset, TimestampMs
from reference.replication.fencing import check_leader_epoch
from reference.replication.high_watermark import follower_high_watermark, next_high_watermark
from reference.replication.isr import caught_up_at, effective_min_isr, is_admissible, is_lagging, may_join

offsets = st.integers(0, 1 << 40).map(Offset)


@given(offsets, offsets, st.lists(offsets, max_size=5))
def test_the_high_watermark_is_the_least_end_and_never_goes_back(
    current: Offset, more: int, followers: list[Offset]
) -> None:
    leader_end = current + more
    found = next_high_watermark(current, leader_end, followers)
    assert current <= found <= leader_end
    assert found == max(current, min([leader_end, *followers]))


@given(offsets, offsets)
def test_a_follower_commits_no_more_than_it_has(leader: Offset, end: Offset) -> None:
    assert follower_high_watermark(leader, end) == min(leader, end)


@pytest.mark.parametrize(
    ("asked", "current", "code"),
    [
        (-1, 5, ErrorCode.NONE),
        (5, 5, ErrorCode.NONE),
        (4, 5, ErrorCode.FENCED_LEADER_EPOCH),
        (6, 5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_epochs_are_fenced_both_ways(asked: LeaderEpoch, current: LeaderEpoch, code: ErrorCode) -> None:
    assert check_leader_epoch(asked, current) is code


@pytest.mark.parametrize(
    ("end", "high_watermark", "epoch_start", "joins"),
    [(5, 5, 5, True), (6, 5, 5, True), (4, 5, 0, False), (5, 5, 6, False), (-1, 0, 0, False)],
)
def test_a_follower_joins_with_all_that_is_or_may_be_committed(
    end: Offset, high_watermark: Offset, epoch_start: Offset, joins: bool
) -> None:
    assert may_join(end, high_watermark, epoch_start) is joins


@pytest.mark.parametrize(
    ("fetched", "registered", "fenced", "leaving", "admissible"),
    [
        (7, 7, False, False, True),
        (-1, 7, False, False, True),
        (6, 7, False, False, False),
        (8, 7, False, False, False),
        (-2, 7, False, False, False),
        (7, 7, True, False, False),
        (7, 7, False, True, False),
    ],
)
def test_a_follower_that_is_fenced_leaving_or_of_another_incarnation_stays_out(
    fetched: BrokerEpoch, registered: BrokerEpoch, fenced: bool, leaving: bool, admissible: bool
) -> None:
    assert is_admissible(fetched, registered, fenced, leaving) is admissible


def test_a_member_lags_when_it_was_behind_for_longer_than_it_may() -> None:
    end, then = Offset(5), TimestampMs(1000)
    assert not is_lagging(end - 1, end, then, then + 30, 30)
    assert is_lagging(end - 1, end, then, then + 31, 30)
    assert not is_lagging(end, end, LONG_AGO, NEVER, 30)


def test_a_follower_that_asks_for_what_the_leader_had_at_its_last_fetch_was_caught_up_then() -> None:
    now, previous_fetch, last = TimestampMs(500), TimestampMs(400), TimestampMs(300)
    for fetched, time in ((10, now), (9, previous_fetch), (7, last)):
        assert caught_up_at(Offset(fetched), Offset(10), now, Offset(8), previous_fetch, last) == time


def test_no_more_replicas_are_needed_than_there_are() -> None:
    assert (effective_min_isr(2, 3), effective_min_isr(3, 1)) == (2, 1)
