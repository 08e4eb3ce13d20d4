"""Where a follower truncates its log, by its leader's OffsetForLeaderEpoch response (KIP-101, KIP-279)."""

from typing import NamedTuple

from reference.protocol.primitives import LeaderEpoch, Offset

NONE = -1


class Truncation(NamedTuple):
    """Where to truncate, and whether the logs agree below it; if not, the follower asks again for an earlier epoch."""

    offset: Offset
    is_final: bool


def truncation_point(
    leader_epoch: LeaderEpoch,
    leader_end: Offset,
    own_epoch: LeaderEpoch,
    own_end: Offset,
    log_end: Offset,
    high_watermark: Offset,
) -> Truncation:
    """The truncation that follows from the leader's (epoch, end offset).

    `own_epoch` and `own_end` are the follower's own epoch and end for the leader's epoch (-1, -1 when it has none).

    pre: 0 <= high_watermark <= log_end and leader_epoch >= -1 and leader_end >= -1
    pre: -1 <= own_epoch <= leader_epoch and -1 <= own_end <= log_end
    post: 0 <= _.offset <= log_end
    post: leader_end < 0 or not _.is_final or _.offset <= leader_end
    post: leader_end >= 0 or _.offset == high_watermark
    """
    if leader_end == NONE:
        return Truncation(high_watermark, True)
    if leader_epoch == NONE or own_end == NONE:
        return Truncation(min(leader_end, log_end), True)
    if own_epoch != leader_epoch:
        return Truncation(min(own_end, log_end), False)
    return Truncation(min(own_end, leader_end, log_end), True)
