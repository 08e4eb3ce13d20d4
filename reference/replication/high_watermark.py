"""The high watermark, as a rule over plain numbers."""

from __future__ import annotations

from collections.abc import Iterable

from reference.protocol.primitives import Offset


def next_high_watermark(current: Offset, leader_end: Offset, follower_ends: Iterable[Offset]) -> Offset:
    """The leader's new high watermark: the lowest log end offset of the in-sync replicas, never lower than before
    (REP-01).

    `follower_ends` are the ends of the followers in the maximal ISR, current and proposed.

    pre: 0 <= current <= leader_end
    post: current <= __return__ <= leader_end
    """
    least = leader_end
    for end in follower_ends:
        least = min(least, end)
    return max(current, least)


def follower_high_watermark(leader_high_watermark: Offset, log_end: Offset) -> Offset:
    """A follower's high watermark: the leader's, at most its own log end offset.

    post: __return__ <= log_end
    """
    return min(leader_high_watermark, log_end)
