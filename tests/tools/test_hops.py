"""The cost of an acknowledged record in Python, counted hop by hop, is independent of the machine's load."""

from tests.tools.hops import hops_of

NAMES = [
    "node 1 receives Produce",
    "node 3 takes node 1's answer: fetch",
    "node 2 takes node 1's answer: fetch",
    "node 1 receives Fetch",
    "node 1 receives Fetch",
]


def test_two_counts_of_a_record_are_equal_and_name_its_five_hops() -> None:
    first, second = hops_of("produce"), hops_of("produce")
    assert [hop.name for hop in first] == NAMES
    assert [hop.row() for hop in first] == [hop.row() for hop in second]
    for calls, codec, bytecodes in (hop.row() for hop in first):
        assert calls > 50 and codec > 5 and bytecodes > 10 * (calls + codec)
