"""Open requests to other members: at most one per member, and a pause after a failure.

Source: org.apache.kafka.raft.RequestManager.
"""

from __future__ import annotations

from reference.protocol.primitives import NodeId, TimestampMs
from reference.protocol.schema import Message


class OpenRequests:
    """The open requests of one member."""

    def __init__(self, timeout_ms: int, backoff_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._open: dict[NodeId, tuple[Message, TimestampMs]] = {}
        self._pauses: dict[NodeId, TimestampMs] = {}

    @property
    def any_open(self) -> bool:
        return bool(self._open)

    def may_ask(self, peer: NodeId) -> bool:
        """Whether no request to a member is open, and no pause runs. The caller has called `tick` for the present time."""
        return peer not in self._open and peer not in self._pauses

    def is_pausing(self, peer: NodeId) -> bool:
        return peer in self._pauses

    def asked(self, peer: NodeId, request: Message, now: TimestampMs) -> None:
        self._open[peer] = (request, now + self._timeout_ms)

    def close(self, peer: NodeId, request: Message) -> bool:
        """Close a request that has its response, or will get none; False if this request object is not open."""
        found = self._open.get(peer)
        if found is None or found[0] is not request:
            return False
        del self._open[peer]
        return True

    def pause(self, peer: NodeId, now: TimestampMs) -> None:
        self._pauses[peer] = now + self._backoff_ms

    def reset(self) -> None:
        """Drop all open requests when a new role begins: their responses are ignored."""
        self._open.clear()
        self._pauses.clear()

    def tick(self, now: TimestampMs) -> None:
        """Drop requests that timed out, and end pauses."""
        for peer in [peer for peer, (_, deadline) in self._open.items() if deadline <= now]:
            del self._open[peer]
            self.pause(peer, now)
        for peer in [peer for peer, until in self._pauses.items() if until <= now]:
            del self._pauses[peer]

    def next_deadline(self) -> TimestampMs | None:
        """The time of the next change by `tick`; None if there is none."""
        times = [deadline for _, deadline in self._open.values()] + list(self._pauses.values())
        return min(times, default=None)
