"""Fencing by leader epoch: the check that guards every request to a partition (KIP-320)."""

from __future__ import annotations

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import NO_EPOCH, LeaderEpoch


def check_leader_epoch(asked: LeaderEpoch, current: LeaderEpoch) -> ErrorCode:
    """Compare a request's leader epoch with the partition's (EPO-01 to EPO-03); -1 requests no check.

    post: (__return__ == ErrorCode.NONE) == (asked == -1 or asked == current) or asked < -1
    """
    if asked in (NO_EPOCH, current):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if asked < current else ErrorCode.UNKNOWN_LEADER_EPOCH
