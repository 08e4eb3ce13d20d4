"""Where a follower cuts its log."""

from reference.storage.truncation_point import Truncation, truncation_point


def test_same_epoch_cuts_at_the_lower_end() -> None:
    assert truncation_point(3, 50, 3, 80, 80, 10) == Truncation(50, True)
    assert truncation_point(3, 90, 3, 80, 80, 10) == Truncation(80, True)


def test_an_older_epoch_of_the_follower_asks_again() -> None:
    """KIP-279: the leader's epoch is one that the follower never had; it cuts to the end of its own last common one."""
    assert truncation_point(4, 50, 2, 30, 80, 10) == Truncation(30, False)


def test_a_leader_that_knows_nothing_sends_back_to_the_high_watermark() -> None:
    assert truncation_point(-1, -1, 3, 80, 80, 10) == Truncation(10, True)


def test_a_leader_without_epochs_gives_its_end() -> None:
    assert truncation_point(-1, 60, -1, -1, 80, 10) == Truncation(60, True)


def test_a_follower_that_knows_no_epoch_so_old_cuts_at_the_leaders_end() -> None:
    assert truncation_point(2, 60, -1, -1, 80, 10) == Truncation(60, True)
