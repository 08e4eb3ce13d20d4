"""Who a node is, and what it says of itself when it registers as a broker."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from reference.controller.image import Endpoint
from reference.node.controller import SUPPORTED_FEATURES
from reference.protocol.messages.broker_registration import BrokerRegistrationRequest
from reference.protocol.primitives import NodeId


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a node is and where its clients find it."""

    node: NodeId
    cluster_id: str
    incarnation: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    directory: UUID | None = None
    """The id of the data folder; without one, one that follows from the node's."""

    @property
    def directory_id(self) -> UUID:
        return self.directory or UUID(int=(1 << 64) + self.node)


def registration(identity: Identity, last_epoch: int | None) -> BrokerRegistrationRequest:
    """What a broker says of itself; `last_epoch` is that of the life before, None where that did not end cleanly."""
    return BrokerRegistrationRequest(
        broker_id=identity.node,
        cluster_id=identity.cluster_id,
        incarnation_id=identity.incarnation,
        listeners=[
            BrokerRegistrationRequest.Listener(name=each.listener, host=each.host, port=each.port, security_protocol=0)
            for each in identity.endpoints
        ],
        features=[
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=identity.rack,
        log_dirs=[identity.directory_id],
        previous_broker_epoch=-1 if last_epoch is None else last_epoch,
    )
