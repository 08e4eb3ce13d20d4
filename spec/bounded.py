"""Bounded forms of rules that take more than plain numbers: few replicas, few slots, so that all paths can be walked.

Each calls the very function that the broker calls. The general forms are searched by Hypothesis, with both of its
backends.
"""

from __future__ import annotations

from reference.controller.quorum_rules import majority_end
from reference.coordinator.assignors.range import longer_runs, run_start
from reference.coordinator.assignors.uniform import member_quota
from reference.protocol.primitives import Offset
from reference.replication.high_watermark import next_high_watermark
from reference.storage.index_search import last_slot_up_to


def high_watermark_of_three(
    current: int, leader_end: int, first: int, first_counts: bool, second: int, second_counts: bool
) -> int:
    """The high watermark of a leader and two followers; a follower counts if it is in the maximal ISR.

    pre: 0 <= current <= leader_end
    post: current <= _ <= leader_end
    post: _ == current or not first_counts or _ <= first
    post: _ == current or not second_counts or _ <= second
    post: _ in (current, leader_end) or (first_counts and _ == first) or (second_counts and _ == second)
    """
    ends = [Offset(end) for end, counts in ((first, first_counts), (second, second_counts)) if counts]
    return next_high_watermark(Offset(current), Offset(leader_end), ends)


def majority_of_three(first: int, second: int, third: int) -> int:
    """The highest offset that two of three voters have reached.

    post: (first >= __return__) + (second >= __return__) + (third >= __return__) >= 2
    post: (first > __return__) + (second > __return__) + (third > __return__) <= 1
    """
    return majority_end((Offset(first), Offset(second), Offset(third)))


def slot_among_four(count: int, target: int, first: int, second: int, third: int, fourth: int) -> int:
    """The last of `count` slots, of four, whose value is at most `target`; -1 if there is none.

    pre: 0 <= count <= 4 and first <= second <= third <= fourth
    post: -1 <= __return__ < count
    post: __return__ == -1 or (first, second, third, fourth)[__return__] <= target
    post: __return__ + 1 >= count or (first, second, third, fourth)[__return__ + 1] > target
    """
    return last_slot_up_to((first, second, third, fourth).__getitem__, count, target)


def runs_of_three(partitions: int) -> tuple[int, int, int]:
    """The number of a topic's partitions that the range assignor assigns to each of three members.

    pre: 0 <= partitions
    post: sum(__return__) == partitions
    post: max(__return__) - min(__return__) <= 1
    """
    longer, shortest = longer_runs(partitions, 3), partitions // 3
    starts = [run_start(position, shortest, longer) for position in range(4)]
    return starts[1] - starts[0], starts[2] - starts[1], starts[3] - starts[2]


def quotas_of_three(minimum: int, extras: int, first: int, second: int, third: int) -> tuple[int, int, int]:
    """The number of partitions that each of three members may own by the uniform assignor, from the numbers that they hold now.

    pre: minimum >= 0 and 0 <= extras < 3 and first >= 0 and second >= 0 and third >= 0
    post: sum(__return__) == 3 * minimum + extras
    post: max(__return__) - min(__return__) <= 1
    """
    quotas: list[int] = []
    for members_left, held in ((3, first), (2, second), (1, third)):
        quotas.append(member_quota(minimum, extras, held, members_left))
        extras -= quotas[-1] - minimum
    return quotas[0], quotas[1], quotas[2]
