"""The search in an index, on lists; over all inputs of four slots it is confirmed in test_contracts."""

from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from reference.storage.index_search import last_slot_up_to


@given(st.lists(st.integers(-5, 20)).map(sorted), st.integers(-6, 21))
def test_is_bisection(keys: list[int], target: int) -> None:
    assert last_slot_up_to(keys.__getitem__, len(keys), target) == bisect_right(keys, target) - 1


def test_looks_at_few_slots() -> None:
    looked: list[int] = []

    def key_at(slot: int) -> int:
        looked.append(slot)
        return slot * 10

    assert last_slot_up_to(key_at, 1_000_000, 123_456) == 12_345
    assert len(looked) <= 20
