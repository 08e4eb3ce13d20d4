"""The part of the metadata, about a partition and the brokers, that a replica uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from reference.protocol.primitives import NO_EPOCH, NO_NODE, BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch

NO_BROKER = NO_NODE
"""The leader of a partition without a leader."""

TruncationRule: TypeAlias = Literal["leader-epoch", "high-watermark"]
"""How a follower truncates a diverging log: by leader epochs (KIP-101 and later), or to its high watermark, as before."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's leader, epochs, ISR and assignment, from the controller's records."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    adding: tuple[NodeId, ...] = ()
    """Replicas that an ongoing reassignment adds; part of `replicas`."""
    removing: tuple[NodeId, ...] = ()
    """Replicas that the reassignment removes; part of `replicas` until it is complete."""


NO_PARTITION_EPOCH = PartitionEpoch(-1)

NO_STATE = PartitionState(NO_BROKER, NO_EPOCH, NO_PARTITION_EPOCH, (), ())
"""The state of a replica that has replayed nothing yet."""


class Peer(NamedTuple):
    """A broker's registration."""

    broker_epoch: BrokerEpoch | None
    """None if brokers do not know each other's broker epochs (ZooKeeper): then only the controller compares them."""
    is_fenced: bool = False
    is_shutting_down: bool = False
    """In controlled shutdown."""


Brokers: TypeAlias = Callable[[NodeId], Peer | None]
"""Finds a broker's registration in the metadata; for this node its own present one."""


def no_brokers(node: NodeId) -> Peer | None:
    """The default of `Brokers`, which knows no broker: so no follower may join an ISR."""
    return None
