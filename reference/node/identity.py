"""A node's identity, and its registration as a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from reference.controller.image import Endpoint
from reference.node.release import Features
from reference.protocol.messages.broker_registration import BrokerRegistrationRequest
from reference.protocol.primitives import BrokerEpoch, NodeId


@dataclass(frozen=True, slots=True)
class Identity:
    """A node's id, cluster, incarnation and endpoints."""

    node: NodeId
    cluster_id: str
    incarnation: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    controller_endpoints: tuple[Endpoint, ...] = ()
    """The endpoints of this node's controller; none for a broker that is not a controller."""
    bootstrap: tuple[tuple[str, int], ...] = ()
    """controller.quorum.bootstrap.servers without this node."""


def registration(
    identity: Identity, directories: Sequence[UUID], last_epoch: BrokerEpoch | None, features: Features
) -> BrokerRegistrationRequest:
    """A broker's registration request; `last_epoch` is that of its former incarnation, None after an unclean shutdown.

    `directories` are the online ones; the metadata may have others if one is offline or was replaced (KIP-858).
    """
    return BrokerRegistrationRequest(
        broker_id=identity.node,
        cluster_id=identity.cluster_id,
        incarnation_id=identity.incarnation,
        listeners=[
            BrokerRegistrationRequest.Listener(
                name=each.listener, host=each.host, port=each.port, security_protocol=each.protocol
            )
            for each in identity.endpoints
        ],
        features=[
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in features.items()
        ],
        rack=identity.rack,
        log_dirs=sorted(directories),
        previous_broker_epoch=-1 if last_epoch is None else last_epoch,
    )
