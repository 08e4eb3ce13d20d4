"""Which replicas are in sync, and which may join the ISR: rules over plain numbers.

Source: Kafka's `Partition` and `Replica` (maybeExpandIsr, getOutOfSyncReplicas, updateFetchStateOrThrow); KIP-497, KIP-841
(fenced brokers and brokers in shutdown stay out) and KIP-903 (so do brokers of another incarnation).
"""

from __future__ import annotations

from reference.protocol.primitives import BrokerEpoch, Offset, TimestampMs

NEVER_FETCHED = BrokerEpoch(-2)
"""The broker epoch of a follower that has not fetched in this leader epoch."""

NO_BROKER_EPOCH = BrokerEpoch(-1)
"""The broker epoch of a fetch that carries none: it is not compared."""


def may_join(end: Offset, high_watermark: Offset, epoch_start: Offset) -> bool:
    """Whether a follower has all committed records, and reaches the start of the leader's epoch.

    The second condition keeps records that an earlier leader may have committed: a new leader's high watermark may be
    lower.

    post: not _ or (end >= high_watermark and end >= epoch_start)
    post: _ or end < high_watermark or end < epoch_start
    """
    return end >= high_watermark and end >= epoch_start


def is_admissible(
    fetched_epoch: BrokerEpoch, registered_epoch: BrokerEpoch, is_fenced: bool, is_shutting_down: bool
) -> bool:
    """Whether a broker may be in the ISR, by the incarnation in which it has fetched, and the registered one.

    post: not _ or (not is_fenced and not is_shutting_down)
    post: not _ or fetched_epoch == registered_epoch or fetched_epoch == -1
    post: not _ or fetched_epoch != -2
    """
    if is_fenced or is_shutting_down or fetched_epoch == NEVER_FETCHED:
        return False
    return fetched_epoch in (NO_BROKER_EPOCH, registered_epoch)


def is_lagging(end: Offset, leader_end: Offset, last_caught_up: TimestampMs, now: TimestampMs, lag_max_ms: int) -> bool:
    """Whether a follower has lagged for longer than replica.lag.time.max.ms.

    post: not _ or end != leader_end
    post: not _ or now - last_caught_up > lag_max_ms
    post: _ or end == leader_end or now - last_caught_up <= lag_max_ms
    """
    return end != leader_end and now - last_caught_up > lag_max_ms


def caught_up_at(
    fetch_offset: Offset,
    leader_end: Offset,
    now: TimestampMs,
    previous_leader_end: Offset,
    previous_fetch: TimestampMs,
    last_caught_up: TimestampMs,
) -> TimestampMs:
    """The last time at which a follower that now fetches from `fetch_offset` had the leader's whole log.

    A follower that always is a little behind a busy leader counts as caught up at the time of its previous fetch, if it now
    fetches from the leader's log end offset of that time (`previous_leader_end`) or above.

    pre: last_caught_up <= now and previous_fetch <= now
    post: last_caught_up <= _ <= now
    post: fetch_offset < leader_end or _ == now
    post: fetch_offset >= leader_end or fetch_offset >= previous_leader_end or _ == last_caught_up
    """
    if fetch_offset >= leader_end:
        return max(last_caught_up, now)
    if fetch_offset >= previous_leader_end:
        return max(last_caught_up, previous_fetch)
    return last_caught_up


def effective_min_isr(min_isr: int, replicas: int) -> int:
    """min.insync.replicas, at most the number of replicas.

    post: _ <= min_isr and _ <= replicas
    post: _ == min_isr or _ == replicas
    """
    return min(min_isr, replicas)
