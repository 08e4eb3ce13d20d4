"""Bounded forms of rules that take more than numbers, for CrossHair to confirm."""

from reference.storage.index_search import last_slot_up_to


def last_of_four(count: int, target: int, first: int, second: int, third: int, fourth: int) -> int:
    """The search over four slots.

    pre: 0 <= count <= 4 and first <= second <= third <= fourth
    post: -1 <= _ < count
    post: _ == -1 or (first, second, third, fourth)[_] <= target
    post: _ + 1 >= count or (first, second, third, fourth)[_ + 1] > target
    """
    keys = (first, second, third, fourth)
    return last_slot_up_to(keys.__getitem__, count, target)
