"""Bounded forms of the quorum's rules that take more than numbers, for CrossHair to confirm."""

from reference.controller.quorum_rules import majority_end


def majority_of_three(first: int, second: int, third: int) -> int:
    """How far two of three voters have come, and not one step less.

    post: (first >= _) + (second >= _) + (third >= _) >= 2
    post: (first > _) + (second > _) + (third > _) <= 1
    """
    return majority_end((first, second, third))
