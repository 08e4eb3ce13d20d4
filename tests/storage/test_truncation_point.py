"""Where a follower cuts its log."""

from reference.protocol.primitives import LeaderEpoch, Offset
from reference.storage.truncation_point import Truncation, truncation_point


def point(leader_epoch: int, leader_end: int, own_epoch: int, own_end: int) -> Truncation:
    """Of a log that ends at 80, with the high watermark 10."""
    leaders, own = (LeaderEpoch(leader_epoch), Offset(leader_end)), (LeaderEpoch(own_epoch), Offset(own_end))
    return truncation_point(*leaders, *own, Offset(80), Offset(10))


def test_same_epoch_cuts_at_the_lower_end() -> None:
    assert point(3, 50, 3, 80) == (50, True)
    assert point(3, 90, 3, 80) == (80, True)


def test_an_older_epoch_of_the_follower_asks_again() -> None:
    """KIP-279: the leader's epoch is one that the follower never had; it cuts to the end of its own last common one."""
    assert point(4, 50, 2, 30) == (30, False)


def test_a_leader_that_knows_nothing_sends_back_to_the_high_watermark() -> None:
    assert point(-1, -1, 3, 80) == (10, True)


def test_a_leader_without_epochs_gives_its_end() -> None:
    assert point(-1, 60, -1, -1) == (60, True)


def test_a_follower_that_knows_no_epoch_so_old_cuts_at_the_leaders_end() -> None:
    assert point(2, 60, -1, -1) == (60, True)
