"""The last stable offset: up to where a consumer with isolation.level=read_committed may read. (KIP-98, TXV-*)"""

from __future__ import annotations

from reference.protocol.primitives import NO_OFFSET, Offset

NOTHING_OPEN = NO_OFFSET
"""The first offset of a transaction where there is none."""


def first_unstable_offset(oldest_open: Offset, oldest_undecided: Offset) -> Offset:
    """The first offset of the oldest transaction without a committed marker; -1 where there is none.

    `oldest_open` is that of a transaction without a marker, `oldest_undecided` that of one with an uncommitted marker.

    pre: oldest_open >= -1 and oldest_undecided >= -1
    post: _ in (oldest_open, oldest_undecided)
    post: oldest_open == -1 or (-1 < _ <= oldest_open)
    post: oldest_undecided == -1 or (-1 < _ <= oldest_undecided)
    """
    if oldest_open == NOTHING_OPEN or oldest_undecided == NOTHING_OPEN:
        return max(oldest_open, oldest_undecided)
    return min(oldest_open, oldest_undecided)


def last_stable_offset(first_unstable: Offset, log_start: Offset, high_watermark: Offset) -> Offset:
    """The first unstable offset, else the high watermark; between log start and high watermark in either case.

    Deleted records of a transaction do not hold it back. A known deviation: where the log's start was moved into a batch
    Apache Kafka 4.3.1 reports the batch's beginning, from which no consumer can read; 3.9 reported the start.

    pre: first_unstable >= -1 and 0 <= log_start <= high_watermark
    post: log_start <= _ <= high_watermark
    post: first_unstable == -1 or _ <= max(first_unstable, log_start)
    post: first_unstable != -1 or _ == high_watermark
    post: _ == high_watermark or _ == max(first_unstable, log_start)
    """
    if first_unstable == NOTHING_OPEN:
        return high_watermark
    return min(max(first_unstable, log_start), high_watermark)
