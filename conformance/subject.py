"""The open target: the state that all requirements share."""

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
"""The API by which ZooKeeper's controller sends leaders to brokers. KRaft brokers read them from the metadata log, and do not
serve it."""


class View(Protocol):
    """A running requirement."""

    ends_s: float
    """The end of its deadline, by the monotonic clock."""

    def abandon(self) -> None:
        """End it at once. Called from another thread."""


@dataclass
class Subject:
    """The open target: the state that all requirements share."""

    bootstrap: list[tuple[str, int]]
    kafka_version: str
    """The Kafka version as which the target is judged."""
    api_versions: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    target: Any = None
    """The open target of `linearizability.targets`, for its hooks; None for a plain address."""
    nodes: int = 1
    profile: TargetProfile = field(default_factory=TargetProfile)
    cluster_id: str = ""
    honoured: frozenset[str] = frozenset()
    """The configurations that the suite started the target with and the target honours."""
    topics: list[str] = field(default_factory=list[str])
    """The topics that the suite created, to be deleted at the end."""
    topic_ids: dict[UUID, str] = field(default_factory=dict[UUID, str])
    """Topic id -> topic name."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Guards the state that parallel requirements share."""
    views: list[View] = field(default_factory=list[View])
    """The running requirements."""
    folder: Path = Path()
    """The folder for evidence other than exchanges."""
    resembles_only: bool = False
    """Whether the Kafka version is a guess, for a broker that may not be Apache Kafka."""
    never_gathered: float = math.inf
    """The least number of partitions that no broker led all of, however many topics were created."""
    ignorant: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])
    """Brokers that did not report the last created topic -> how long to wait there for the next one, in seconds."""
    incomplete: str = ""
    """Why a node is missing without a fault; empty where none is known to be missing."""
    hunt: Any = None
    """The short hunt on this start of the target, or why it could not run; None before (`conformance.hunting`)."""

    def has_ended(self, node: int) -> bool:
        """Whether a node's process has ended, with a known exit status."""
        target = self.target
        return hasattr(target, "exit_status") and not target.running(node) and target.exit_status(node) is not None

    @property
    def by_zookeeper(self) -> bool:
        """Whether ZooKeeper coordinates the brokers: then they advertise LeaderAndIsr, which their controller sends."""
        return LEADER_AND_ISR in self.api_versions

    @property
    def authenticates_clients(self) -> bool:
        """Whether the suite's connections are authenticated by SASL, in the tunnels to the listeners."""
        security = getattr(self.target, "security", None)
        return security is not None and bool(security.mechanism)

    @property
    def client_id(self) -> str:
        """The default client id of requests: `client.id` of --client-config, else CLIENT_ID."""
        security = getattr(self.target, "security", None)
        return security.client_id if security is not None else CLIENT_ID

    def abandon(self) -> None:
        """Abort all running requirements."""
        with self.lock:
            for view in list(self.views):
                view.abandon()

    def abandon_overdue(self, overrun_s: float) -> None:
        """Abort the requirements whose deadline passed more than `overrun_s` seconds ago."""
        with self.lock:
            for view in list(self.views):
                if time.monotonic() > view.ends_s + overrun_s:
                    view.abandon()
