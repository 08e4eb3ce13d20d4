"""The quorum's decisions as rules over plain numbers: granting votes, and advancing the high watermark.

Source: KIP-595, KIP-996; org.apache.kafka.raft.UnattachedState, LeaderState, KafkaRaftClient.
"""

from __future__ import annotations

from collections.abc import Sequence

from reference.protocol.primitives import NO_NODE, LeaderEpoch, NodeId, Offset


def is_up_to_date(epoch: LeaderEpoch, end: Offset, own_epoch: LeaderEpoch, own_end: Offset) -> bool:
    """Whether a log that ends at `end` with a record of `epoch` has all records that the own log may have committed.

    post: epoch >= own_epoch or not __return__
    post: epoch != own_epoch or __return__ == (end >= own_end)
    post: epoch <= own_epoch or __return__
    """
    return epoch > own_epoch or (epoch == own_epoch and end >= own_end)


def grants_vote(candidate: NodeId, voted: NodeId, leader: NodeId, up_to_date: bool) -> bool:
    """Whether a voter that neither leads nor follows grants its vote of this epoch (`voted`, `leader`: -1 for none).

    One vote per epoch: a repeated request of the same node is granted, no other. A known leader has already won the epoch.

    pre: candidate >= 0 and voted >= -1 and leader >= -1
    post: voted in (-1, candidate) or not __return__
    post: voted != candidate or __return__
    post: voted != -1 or __return__ == (leader == -1 and up_to_date)
    """
    if voted != NO_NODE:
        return voted == candidate
    return leader == NO_NODE and up_to_date


def majority_end(ends: Sequence[Offset]) -> Offset:
    """The highest offset that a majority has reached; `ends` has one durable log end per voter."""
    return sorted(ends, reverse=True)[len(ends) // 2]


def next_commit(current: Offset, reached: Offset, epoch_start: Offset) -> Offset:
    """The leader's new high watermark after a majority has `reached` an offset.

    Records of earlier epochs are committed only together with one of the leader's own epoch, which begins at `epoch_start`. A
    majority alone does not prevent a later leader from replacing them (Raft, section 5.4.2).

    pre: current >= 0
    post: __return__ >= current
    post: reached > epoch_start or __return__ == current
    post: reached <= epoch_start or __return__ == max(current, reached)
    """
    return max(current, reached) if reached > epoch_start else current


def truncation_offset(epoch: LeaderEpoch, end: Offset, own_epoch: LeaderEpoch, own_end: Offset) -> Offset:
    """The offset at which a follower truncates its log if the leader's `epoch` ended at `end`.

    `own_epoch` is the follower's largest epoch not above that one, and `own_end` its end offset.

    pre: own_epoch <= epoch and end >= 0 and own_end >= 0
    post: __return__ <= own_end
    post: own_epoch != epoch or __return__ <= end
    """
    return min(end, own_end) if own_epoch == epoch else own_end


def successor_delay_ms(position: int, successors: int, max_ms: int) -> int:
    """How long the voter at a position of the resigned leader's list waits before it becomes a candidate; the first does not
    wait.

    The waits of the others double, so that the voter with the best log comes first; one that is not listed (-1) waits longest.

    pre: -1 <= position < successors and 0 <= successors <= 7 and 0 <= max_ms <= 1000
    post: 0 <= __return__ <= max_ms
    post: position != 0 or __return__ == 0
    """
    if position == 0:
        return 0
    if position < 0:
        return max_ms
    return min(max_ms, (max_ms >> (successors - 1)) << (position - 1))
