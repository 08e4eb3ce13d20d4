"""Effects: a node's only outputs besides its disk."""

from __future__ import annotations

from dataclasses import dataclass

from reference.protocol.codec import Part
from reference.protocol.primitives import NodeId
from reference.zookeeper.operations import ZooKeeperEffect

ConnectionId = int
"""The driver's id of a client's connection."""


@dataclass(slots=True)
class Respond:
    """Send a frame (its size first) as the response to the connection's request; None for an acks=0 request, which has no
    response.

    The driver releases file slices among the parts when they were sent, or will not be.
    """

    connection: ConnectionId
    parts: list[Part] | None
    muted_ms: int = 0
    """How long the driver must not read from the connection: the client has exceeded its quota (KIP-219)."""


@dataclass(slots=True)
class Close:
    """Close the connection without an answer."""

    connection: ConnectionId
    reason: str


@dataclass(slots=True)
class Authenticated:
    """The client of a connection has authenticated: its frames may be as large as any other's."""

    connection: ConnectionId


@dataclass(slots=True)
class WantKeys:
    """A token on this listener has an unknown key: the driver may fetch a newer key set (`Node.take_keys`)."""

    listener: str


@dataclass(slots=True)
class Send:
    """Send a request frame (its size first) to another node.

    The connection is that of this peer and purpose; the driver opens it on demand. Requests on one connection arrive in order,
    and their responses are passed to `Node.answered`. If the connection cannot be opened or is lost, the driver calls
    `Node.unreachable` once, and the next `Send` opens another.
    """

    peer: NodeId
    host: str
    port: int
    purpose: str
    frame: bytes
    listener: str = ""
    """The name of the peer's listener."""


@dataclass(slots=True)
class HangUp:
    """Close the connection of this peer and purpose, if there is one; `Node.unreachable` is not called for it."""

    peer: NodeId
    purpose: str


Effect = ZooKeeperEffect | Respond | Close | Authenticated | WantKeys | Send | HangUp
