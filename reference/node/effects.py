"""What a node wants done: the only way in which it acts on the world outside of its disk."""

from __future__ import annotations

from dataclasses import dataclass

from reference.protocol.codec import Part

ConnectionId = int
"""The driver's name for a client's connection."""


@dataclass(slots=True)
class Respond:
    """Send a frame (its size first) as the answer to the connection's request; None ends an acks=0 request in silence.

    Slices of files among the parts are to be released when they were sent, or will not be.
    """

    connection: ConnectionId
    parts: list[Part] | None


@dataclass(slots=True)
class Close:
    """Close the connection without an answer."""

    connection: ConnectionId
    reason: str


Effect = Respond | Close
