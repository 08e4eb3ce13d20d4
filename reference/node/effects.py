"""Effects: a node's only way to act on the world outside of its disk."""

from __future__ import annotations

from dataclasses import dataclass

from reference.protocol.codec import Part
from reference.protocol.primitives import NodeId
from reference.zookeeper.operations import ZooKeeperEffect

ConnectionId = int
"""The driver's name for a client's connection."""


@dataclass(slots=True)
class Respond:
    """Send a frame (its size first) as the answer to the connection's request; None ends an acks=0 request in silence.

    Slices of files among the parts are to be released when they were sent, or will not be.
    """

    connection: ConnectionId
    parts: list[Part] | None
    muted_ms: int = 0
    """For how long nothing is to be read of the connection then: the client has used more than its quota (KIP-219)."""


@dataclass(slots=True)
class Close:
    """Close the connection without an answer."""

    connection: ConnectionId
    reason: str


@dataclass(slots=True)
class Authenticated:
    """The client of a connection has authenticated: its frames may be as large as those of any other."""

    connection: ConnectionId


@dataclass(slots=True)
class WantKeys:
    """A token has come on this listener whose key is not known: there may be a newer set (`Node.take_keys`)."""

    listener: str


@dataclass(slots=True)
class Send:
    """Send a request frame (its size first) to another node.

    The connection is the one of this peer and purpose; the driver opens it when it is needed. Requests on one connection
    arrive in order, and their answers come back by `Node.answered`. When the connection cannot be made or is lost, the driver
    calls `Node.unreachable` once, and the next `Send` opens another.
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
