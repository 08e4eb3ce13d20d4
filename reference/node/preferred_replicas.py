"""The preferred read replica of a consumer: one in its own rack, if the leader is in another (KIP-392, FET-17)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reference.controller.image import BrokerImage
    from reference.protocol.primitives import NodeId, Offset, TimestampMs
    from reference.replication.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SELECTORS = ("", "org.apache.kafka.common.replica.LeaderSelector", RACK_AWARE)
"""The supported values of replica.selector.class: Kafka's own classes. Without one a consumer reads from the leader."""


def preferred_replica(
    partition: Partition, rack: str, offset: Offset, brokers: Mapping[NodeId, BrokerImage], now: TimestampMs
) -> NodeId | None:
    """The follower in `rack` from which a consumer at `offset` should read; None to read from the leader.

    Only a leader selects one. The follower must have the offset, by the leader's record of it, and need not be in sync. Among
    several the one with the highest log end offset is selected, then the last one that was caught up, then the highest id.
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
    """A broker's rack; None for an unregistered or fenced one, which has no address for clients."""
    return None if broker is None or broker.fenced else broker.rack
