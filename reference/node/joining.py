"""A node's membership in its cluster, as the rest of the node uses it: by a metadata quorum, or by ZooKeeper."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from reference.node.membership import State
from reference.node.peers import Answered
from reference.node.requests import Request
from reference.protocol.primitives import BrokerEpoch, TimestampMs
from reference.protocol.schema import Message


class ClusterMember(Protocol):
    """This broker as a member of the cluster."""

    @property
    def state(self) -> State: ...

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """The broker epoch; -1 before the registration."""
        ...

    @property
    def has_caught_up(self) -> bool:
        """Whether this broker has replayed its own registration."""
        ...

    @property
    def failure(self) -> str | None:
        """The reason why the node must shut down; None if there is none."""
        ...

    def tick(self, now: TimestampMs) -> None: ...

    def next_deadline(self) -> TimestampMs | None: ...

    def leave(self, now: TimestampMs, timeout_ms: int) -> None:
        """Request a controlled shutdown."""

    def lose_directory(self, directory: UUID, now: TimestampMs) -> None:
        """Report a failed log directory; another one is still online."""


class ControllerPath(Protocol):
    """The interface for requests to the active controller."""

    def ask(self, purpose: str, body: Message, answered: Answered, now: TimestampMs) -> None:
        """Send it a request; the answer is None if there is no controller."""

    def was_forwarded(self, request: Request) -> bool: ...
    def decide_or_refuse(self, request: Request, body: Message, now: TimestampMs) -> None: ...

    def carry(self, request: Request, body: Message, frame: bytes, now: TimestampMs) -> None: ...

    def follow(self, now: TimestampMs) -> None:
        """Send the open requests again after another node became the controller."""

    def tick(self, now: TimestampMs) -> None: ...

    def next_deadline(self) -> TimestampMs | None: ...
