"""How the metadata quorum is set up: its voters and its times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from reference.controller.image import Endpoint
from reference.protocol.primitives import NodeId

FETCH_MAX_WAIT_MS = 500
"""How long a leader holds a fetch that it has nothing for (KafkaRaftClient.MAX_FETCH_WAIT_MS)."""


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Defaults are Apache Kafka 4.3's."""

    voters: tuple[NodeId, ...]
    """controller.quorum.voters: the ids, in the order in which they are written; the log's take their place (KIP-853)."""
    election_timeout_ms: int = 1000
    """controller.quorum.election.timeout.ms; each wait for a vote lasts between this and twice this."""
    fetch_timeout_ms: int = 2000
    """controller.quorum.fetch.timeout.ms: without a leader's answer for so long a voter wants another one."""
    request_timeout_ms: int = 2000
    """controller.quorum.request.timeout.ms: after this an answer is not waited for any more."""
    retry_backoff_ms: int = 20
    """controller.quorum.retry.backoff.ms: the pause before a peer that did not answer well is asked again."""
    election_backoff_max_ms: int = 1000
    """controller.quorum.election.backoff.max.ms: the longest wait of a resigned leader's successors."""
    fetch_max_wait_ms: int = FETCH_MAX_WAIT_MS
    fetch_max_bytes: int = 1024 * 1024
    """controller.quorum.fetch.max.bytes: how much of the log one answer carries; one batch at the least."""
    snapshot_chunk_bytes: int = 1024 * 1024
    """controller.quorum.fetch.snapshot.max.bytes: how much of a snapshot one answer carries."""
    retention_bytes: int = 100 * 1024 * 1024
    """metadata.max.retention.bytes: of log and snapshots together; -1 for no limit."""
    retention_ms: int = 7 * 24 * 3_600_000
    """metadata.max.retention.ms: of snapshots, by their last record's time; -1 for no limit."""
    pre_vote: bool = True
    """Whether the voters know pre-votes (KIP-996, Apache Kafka 4.0); without, an election begins with a new epoch."""
    listener: str = "CONTROLLER"
    """The first of controller.listener.names: on it the voters reach each other."""
    endpoints: tuple[Endpoint, ...] = ()
    """Where this node's controller is reached; none for a broker that is no controller."""
    bootstrap: tuple[tuple[str, int], ...] = ()
    """controller.quorum.bootstrap.servers without this node: where the leader is asked for when no voter is known."""
    auto_join: bool = False
    """controller.quorum.auto.join.enable: a controller that is no voter asks to be one."""

    def __post_init__(self) -> None:
        """Errors: ValueError for voters that cannot be."""
        if not self.voters and not self.bootstrap:
            raise ValueError("controller.quorum.voters names no voter")
        if len(set(self.voters)) != len(self.voters):
            raise ValueError("controller.quorum.voters names a node twice")
        if min(self.voters, default=0) < 0:
            raise ValueError(f"controller.quorum.voters: {min(self.voters)} is no node id")

    def configured(self, integer: Callable[[str], int]) -> QuorumSettings:
        """With the times and sizes that a configuration says; `integer` gives a property's value."""
        return replace(
            self,
            election_timeout_ms=integer("controller.quorum.election.timeout.ms"),
            fetch_timeout_ms=integer("controller.quorum.fetch.timeout.ms"),
            request_timeout_ms=integer("controller.quorum.request.timeout.ms"),
            retry_backoff_ms=integer("controller.quorum.retry.backoff.ms"),
            election_backoff_max_ms=integer("controller.quorum.election.backoff.max.ms"),
            fetch_max_bytes=integer("controller.quorum.fetch.max.bytes"),
            snapshot_chunk_bytes=integer("controller.quorum.fetch.snapshot.max.bytes"),
            retention_bytes=integer("metadata.max.retention.bytes"),
            retention_ms=integer("metadata.max.retention.ms"),
        )

    @property
    def check_quorum_ms(self) -> int:
        """How long a leader leads without a majority's fetches: half as long again as followers wait for it."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_ms(self) -> int:
        """How often a leader reports voters of its epoch that do not fetch from it."""
        return self.fetch_timeout_ms // 2
