"""The end offset of a leader epoch: the rule behind OffsetForLeaderEpoch (KIP-101, KIP-279; requirements EPO-04 to -06)."""

from reference.protocol.primitives import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset


def end_of_epoch(
    asked: LeaderEpoch, latest: LeaderEpoch, floor: LeaderEpoch, next_start: Offset, log_end: Offset
) -> tuple[LeaderEpoch, Offset]:
    """The largest known epoch up to the one asked for, and where it ended; (-1, -1) when that cannot be known.

    `latest` is the newest epoch of the log, `floor` the largest up to `asked` (-1 if none), `next_start` where the
    smallest one above `asked` starts (-1 if none).

    pre: asked >= -1 and -1 <= floor <= asked and floor <= latest and -1 <= next_start <= log_end and log_end >= 0
    pre: (next_start == -1) == (asked >= latest)
    pre: floor == asked or asked != latest
    post: (_[0] == -1) == (_[1] == -1)
    post: _[0] <= asked and _[1] <= log_end
    post: asked <= latest or _ == (-1, -1)
    post: asked != latest or asked == -1 or _ == (latest, log_end)
    """
    if asked == NO_EPOCH or asked > latest:
        return NO_EPOCH, NO_OFFSET
    if asked == latest:
        return latest, log_end
    return (asked if floor == NO_EPOCH else floor), next_start
