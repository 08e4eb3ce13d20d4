"""Which replica a consumer should read: one in its own rack, where the leader is in another (KIP-392, FET-17)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reference.controller.image import BrokerImage
    from reference.protocol.primitives import NodeId, Offset, TimestampMs
    from reference.replication.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SELECTORS = ("", "org.apache.kafka.common.replica.LeaderSelector", RACK_AWARE)
"""The values of replica.selector.class that are served: Kafka's own classes. Without one a consumer reads from the leader."""


def preferred_replica(
    partition: Partition, rack: str, offset: Offset, brokers: Mapping[NodeId, BrokerImage], now: TimestampMs
) -> NodeId | None:
    """The follower in `rack` that a consumer at `offset` should read; None where that is the leader, or no replica is there.

    Only a leader names one. A follower must hold the offset, as far as the leader knows, and need not be in sync. Of several
    the one with the highest log end offset is chosen, then the one that was caught up last, then the highest id.
    """
    leading = partition.leading
    if leading is None or _rack_of(brokers.get(partition.node)) == rack:
        return None
    found = [
        (progress.end, progress.last_caught_up - now, follower)
        for follower, progress in leading.followers.items()
        if progress.log_start <= offset <= progress.end and _rack_of(brokers.get(follower)) == rack
    ]
    return max(found)[-1] if found else None


def _rack_of(broker: BrokerImage | None) -> str | None:
    """None for a broker that is not registered, or fenced: it has no address for clients."""
    return None if broker is None or broker.fenced else broker.rack
