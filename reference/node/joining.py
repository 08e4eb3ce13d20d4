"""What joins a node to its cluster, as the rest of the node sees it: by a metadata quorum, or by ZooKeeper."""

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
        """-1 before it is registered."""
        ...

    @property
    def has_caught_up(self) -> bool:
        """Whether what it knows of the cluster reaches its own registration."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the node must end; None while it need not."""
        ...

    def tick(self, now: TimestampMs) -> None: ...

    def next_deadline(self) -> TimestampMs | None: ...

    def leave(self, now: TimestampMs, timeout_ms: int) -> None:
        """Ask leave to stop (controlled shutdown)."""

    def lose_directory(self, directory: UUID, now: TimestampMs) -> None:
        """A log directory has failed, and there is another one."""


class ControllerPath(Protocol):
    """The way to the active controller."""

    def ask(self, purpose: str, body: Message, answered: Answered, now: TimestampMs) -> None:
        """Ask it; None is the answer where there is none."""

    def decide_or_refuse(self, request: Request, body: Message, now: TimestampMs) -> None: ...

    def carry(self, request: Request, body: Message, frame: bytes, now: TimestampMs) -> None: ...

    def follow(self, now: TimestampMs) -> None:
        """Where another node is the controller now, what was asked of the former one is asked again."""

    def tick(self, now: TimestampMs) -> None: ...

    def next_deadline(self) -> TimestampMs | None: ...
