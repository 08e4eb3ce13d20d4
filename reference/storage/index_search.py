"""The search in an index: its rule, small enough to be proven (tests/storage/test_index_search.py)."""

from collections.abc import Callable


def last_slot_up_to(key_at: Callable[[int], int], count: int, target: int) -> int:
    """The last of `count` slots whose key is at most `target`; -1 when there is none. Keys never decrease.

    post: the key at the answer is at most the target, and the key behind it is greater.
    """
    low, high = -1, count - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if key_at(middle) <= target:
            low = middle
        else:
            high = middle - 1
    return low
