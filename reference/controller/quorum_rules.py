"""The quorum's decisions as rules over plain numbers: granting votes, and how far the log is committed.

Source: KIP-595, KIP-996; org.apache.kafka.raft.UnattachedState, LeaderState, KafkaRaftClient.
"""

from __future__ import annotations

from collections.abc import Sequence

from reference.protocol.primitives import NO_NODE, LeaderEpoch, NodeId, Offset


def is_up_to_date(epoch: LeaderEpoch, end: Offset, own_epoch: LeaderEpoch, own_end: Offset) -> bool:
    """Whether a log that ends with a record of `epoch` before `end` has all that a majority may have committed.

    post: epoch >= own_epoch or not __return__
    post: epoch != own_epoch or __return__ == (end >= own_end)
    post: epoch <= own_epoch or __return__
    """
    return epoch > own_epoch or (epoch == own_epoch and end >= own_end)


def grants_vote(candidate: NodeId, voted: NodeId, leader: NodeId, up_to_date: bool) -> bool:
    """Whether a voter that neither leads nor follows gives its vote of this epoch (`voted`, `leader`: -1 for none).

    One vote an epoch: the node that had it gets it again, no other node does. A known leader has won the epoch already.

    pre: candidate >= 0 and voted >= -1 and leader >= -1
    post: voted in (-1, candidate) or not __return__
    post: voted != candidate or __return__
    post: voted != -1 or __return__ == (leader == -1 and up_to_date)
    """
    if voted != NO_NODE:
        return voted == candidate
    return leader == NO_NODE and up_to_date


def majority_end(ends: Sequence[Offset]) -> Offset:
    """The greatest offset that a majority has reached; `ends` holds one durable log end for each voter."""
    return sorted(ends, reverse=True)[len(ends) // 2]


def next_commit(current: Offset, reached: Offset, epoch_start: Offset) -> Offset:
    """The leader's new high watermark when a majority has `reached` an offset.

    Records of earlier epochs commit only together with one of the leader's own, which begins at `epoch_start`: a majority
    alone does not keep them from being replaced by a later leader (Raft, section 5.4.2).

    pre: current >= 0
    post: __return__ >= current
    post: reached > epoch_start or __return__ == current
    post: reached <= epoch_start or __return__ == max(current, reached)
    """
    return max(current, reached) if reached > epoch_start else current


def truncation_offset(epoch: LeaderEpoch, end: Offset, own_epoch: LeaderEpoch, own_end: Offset) -> Offset:
    """Where a follower cuts its log when the leader's `epoch` ended at `end`.

    `own_epoch` is the follower's largest epoch up to that one, and `own_end` where it ended.

    pre: own_epoch <= epoch and end >= 0 and own_end >= 0
    post: __return__ <= own_end
    post: own_epoch != epoch or __return__ <= end
    """
    return min(end, own_end) if own_epoch == epoch else own_end


def successor_delay_ms(position: int, successors: int, max_ms: int) -> int:
    """How long the voter at a position of the resigned leader's list waits before it is a candidate: the first not at all.

    The others wait in steps that double, so that the best log is first; a voter that is not listed (-1) waits longest.

    pre: -1 <= position < successors and 0 <= successors <= 7 and 0 <= max_ms <= 1000
    post: 0 <= __return__ <= max_ms
    post: position != 0 or __return__ == 0
    """
    if position == 0:
        return 0
    if position < 0:
        return max_ms
    return min(max_ms, (max_ms >> (successors - 1)) << (position - 1))
