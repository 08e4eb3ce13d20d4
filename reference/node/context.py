"""The context that a broker's parts and handlers share: identity, metadata, responses, delayed operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reference.controller.configs import Configuration
from reference.controller.image import MetadataImage
from reference.node.access import Access
from reference.node.internal_topics import CoordinatorPartitions
from reference.node.replicas import Replicas
from reference.node.requests import Purgatories, Responder
from reference.protocol.primitives import NodeId
from reference.storage.log_directory import Logger


@dataclass(frozen=True, slots=True)
class Context:
    """The parts that every handler gets; others are passed by name."""

    node: NodeId
    cluster_id: str
    image: MetadataImage
    configuration: Configuration
    replicas: Replicas
    purgatories: Purgatories
    responder: Responder
    log: Logger
    access: Access
    coordinators: CoordinatorPartitions
    kraft_version: Callable[[], int] = lambda: 0
    """The finalized kraft.version; 0 with the voters of the configuration."""
    controller: Callable[[], NodeId] | None = None
    """The controller's node id; None if clients may send to any broker, which forwards (KIP-500)."""
