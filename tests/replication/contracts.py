"""Bounded forms of rules that take more than numbers, for CrossHair to confirm."""

from reference.replication.high_watermark import next_high_watermark


def high_watermark_of_three(
    current: int, leader_end: int, first: int, first_counts: bool, second: int, second_counts: bool
) -> int:
    """The high watermark over a leader and two followers, of which those count that are in the maximal ISR.

    pre: 0 <= current <= leader_end
    post: current <= _ <= leader_end
    post: _ == current or not first_counts or _ <= first
    post: _ == current or not second_counts or _ <= second
    post: _ == leader_end or _ == current or (first_counts and _ == first) or (second_counts and _ == second)
    """
    ends = [end for end, counts in ((first, first_counts), (second, second_counts)) if counts]
    return next_high_watermark(current, leader_end, ends)
