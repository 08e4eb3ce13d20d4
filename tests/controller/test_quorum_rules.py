"""Property tests of the quorum's rules over lists; `tests/spec/test_pure_rules.py` confirms those over plain numbers."""

from hypothesis import given
from hypothesis import strategies as st

from reference.controller.quorum_rules import majority_end, successor_delay_ms
from reference.protocol.primitives import Offset


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7))
def test_a_majority_has_it_and_no_majority_has_more(ends: list[int]) -> None:
    reached = majority_end([*map(Offset, ends)])
    assert 2 * sum(end >= reached for end in ends) > len(ends)
    assert 2 * sum(end > reached for end in ends) <= len(ends)


@given(st.integers(1, 9), st.integers(0, 10_000))
def test_better_successors_stand_no_later(successors: int, max_ms: int) -> None:
    delays = [successor_delay_ms(position, successors, max_ms) for position in range(successors)]
    assert delays == sorted(delays)
    assert delays[0] == 0
    assert max(delays) <= successor_delay_ms(-1, successors, max_ms) == max_ms
