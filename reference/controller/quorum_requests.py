"""Open requests to other members: one at a time for each member, and a pause after a failure.

Source: org.apache.kafka.raft.RequestManager.
"""

from __future__ import annotations

from reference.protocol.primitives import NodeId, TimestampMs
from reference.protocol.schema import Message


class OpenRequests:
    """The open questions of one member."""

    def __init__(self, timeout_ms: int, backoff_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._open: dict[NodeId, tuple[Message, TimestampMs]] = {}
        self._pauses: dict[NodeId, TimestampMs] = {}

    @property
    def any_open(self) -> bool:
        return bool(self._open)

    def may_ask(self, peer: NodeId) -> bool:
        """Whether nothing is open with a member and no pause holds. `tick` has been called for now."""
        return peer not in self._open and peer not in self._pauses

    def is_pausing(self, peer: NodeId) -> bool:
        return peer in self._pauses

    def asked(self, peer: NodeId, request: Message, now: TimestampMs) -> None:
        self._open[peer] = (request, now + self._timeout_ms)

    def close(self, peer: NodeId, request: Message) -> bool:
        """An answer has come, or will not come; False when this very request is not open any more, or never was."""
        found = self._open.get(peer)
        if found is None or found[0] is not request:
            return False
        del self._open[peer]
        return True

    def pause(self, peer: NodeId, now: TimestampMs) -> None:
        self._pauses[peer] = now + self._backoff_ms

    def reset(self) -> None:
        """A new role: answers to requests of the old one are ignored."""
        self._open.clear()
        self._pauses.clear()

    def tick(self, now: TimestampMs) -> None:
        """Give up requests that timed out; end pauses."""
        for peer in [peer for peer, (_, deadline) in self._open.items() if deadline <= now]:
            del self._open[peer]
            self.pause(peer, now)
        for peer in [peer for peer, until in self._pauses.items() if until <= now]:
            del self._pauses[peer]

    def next_deadline(self) -> TimestampMs | None:
        """When `tick` changes something next."""
        times = [deadline for _, deadline in self._open.values()] + list(self._pauses.values())
        return min(times, default=None)
