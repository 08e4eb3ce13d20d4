"""The target while it is open: what all requirements share."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from conformance.target_profile import TargetProfile
from conformance.wire import CLIENT_ID

LEADER_AND_ISR = 4
"""The API by which a controller names leaders to brokers: with KRaft they read them in the metadata log, and do not serve it."""


class View(Protocol):
    """A requirement under way."""

    ends_s: float
    """When it should be over, by the monotonic clock."""

    def abandon(self) -> None:
        """From another thread: end it now."""


@dataclass
class Subject:
    """The target while it is open: what all requirements share."""

    bootstrap: list[tuple[str, int]]
    kafka_version: str
    """The Kafka version whose behaviour is asked of it."""
    api_versions: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    target: Any = None
    """The open target of `linearizability.targets`, for its hooks; None for a plain address."""
    nodes: int = 1
    profile: TargetProfile = field(default_factory=TargetProfile)
    cluster_id: str = ""
    honoured: frozenset[str] = frozenset()
    """The configurations with which the suite started the target, and which the target heeds."""
    topics: list[str] = field(default_factory=list[str])
    """All that was made, to be cleaned away."""
    topic_ids: dict[UUID, str] = field(default_factory=dict[UUID, str])
    """Whose each id is."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Guards what requirements that run side by side share."""
    views: list[View] = field(default_factory=list[View])
    """The requirements under way."""
    folder: Path = Path()
    """Where evidence goes that is more than exchanges."""
    resembles_only: bool = False
    """Whether the Kafka version is a guess about a broker that may be no Apache Kafka."""
    never_gathered: float = math.inf
    """So many partitions, or more, were never led by one broker, however many topics were made."""
    ignorant: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])
    """Brokers that did not report the last topic that was made, and how long the next one is waited for there, in seconds."""
    incomplete: str = ""
    """Why not all nodes are there, although nothing is done to them any more; empty where they are, as far as is known."""
    hunt: Any = None
    """The short hunt on this start of the target, once it was made, or why none could be (`conformance.hunting`)."""

    def has_ended(self, node: int) -> bool:
        """Whether the process that was started for a node has ended: its exit status is known."""
        target = self.target
        return hasattr(target, "exit_status") and not target.running(node) and target.exit_status(node) is not None

    @property
    def by_zookeeper(self) -> bool:
        """Whether a ZooKeeper coordinates the brokers: they serve what its controller, one of them, asks the others."""
        return LEADER_AND_ISR in self.api_versions

    @property
    def authenticates_clients(self) -> bool:
        """Whether the connections of requirements are authenticated: over SASL, by the tunnels that lead to the listeners."""
        security = getattr(self.target, "security", None)
        return security is not None and bool(security.mechanism)

    @property
    def client_id(self) -> str:
        """What requests name as their client, unless a requirement is about that: `client.id` of --client-config."""
        security = getattr(self.target, "security", None)
        return security.client_id if security is not None else CLIENT_ID

    def abandon(self) -> None:
        """Break off all requirements under way."""
        with self.lock:
            for view in list(self.views):
                view.abandon()

    def abandon_overdue(self, overrun_s: float) -> None:
        """Break off the requirements whose deadline passed so long ago."""
        with self.lock:
            for view in list(self.views):
                if time.monotonic() > view.ends_s + overrun_s:
                    view.abandon()
