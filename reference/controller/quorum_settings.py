"""The settings of the metadata quorum: its voters and its times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from reference.controller.image import Endpoint
from reference.protocol.primitives import NodeId

FETCH_MAX_WAIT_MS = 500
"""The longest delay of a fetch for which a leader has no records (KafkaRaftClient.MAX_FETCH_WAIT_MS)."""


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Defaults are Apache Kafka 4.3's."""

    voters: tuple[NodeId, ...]
    """controller.quorum.voters: the ids, in the order of the property; voters in the log replace them (KIP-853)."""
    election_timeout_ms: int = 1000
    """controller.quorum.election.timeout.ms; each election timeout is random, between this and twice this."""
    fetch_timeout_ms: int = 2000
    """controller.quorum.fetch.timeout.ms: after this time without the leader's response a voter begins an election."""
    request_timeout_ms: int = 2000
    """controller.quorum.request.timeout.ms: after this time a request expires."""
    retry_backoff_ms: int = 20
    """controller.quorum.retry.backoff.ms: the pause before the next request to a peer after a failure."""
    election_backoff_max_ms: int = 1000
    """controller.quorum.election.backoff.max.ms: the longest wait of a resigned leader's successors."""
    fetch_max_wait_ms: int = FETCH_MAX_WAIT_MS
    fetch_max_bytes: int = 1024 * 1024
    """controller.quorum.fetch.max.bytes: the most bytes of the log in one response, but at least one batch."""
    snapshot_chunk_bytes: int = 1024 * 1024
    """controller.quorum.fetch.snapshot.max.bytes: the most bytes of a snapshot in one response."""
    retention_bytes: int = 100 * 1024 * 1024
    """metadata.max.retention.bytes, for log and snapshots together; -1 for no limit."""
    retention_ms: int = 7 * 24 * 3_600_000
    """metadata.max.retention.ms, for snapshots, by the timestamp of their last record; -1 for no limit."""
    pre_vote: bool = True
    """Whether the voters support pre-votes (KIP-996, Apache Kafka 4.0); without them an election begins with a new epoch."""
    listener: str = "CONTROLLER"
    """The first of controller.listener.names, on which the voters connect to each other."""
    endpoints: tuple[Endpoint, ...] = ()
    """The endpoints of this node's controller; empty for a broker that is not a controller."""
    bootstrap: tuple[tuple[str, int], ...] = ()
    """controller.quorum.bootstrap.servers without this node: the servers to ask for the leader if no voter is known."""
    auto_join: bool = False
    """controller.quorum.auto.join.enable: a controller that is no voter requests to become one."""

    def __post_init__(self) -> None:
        """Errors: ValueError for invalid voters."""
        if not self.voters and not self.bootstrap:
            raise ValueError("controller.quorum.voters names no voter")
        if len(set(self.voters)) != len(self.voters):
            raise ValueError("controller.quorum.voters names a node twice")
        if min(self.voters, default=0) < 0:
            raise ValueError(f"controller.quorum.voters: {min(self.voters)} is no node id")

    def configured(self, integer: Callable[[str], int]) -> QuorumSettings:
        """The settings with a configuration's times and sizes; `integer` returns a property's value."""
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
        """How long a leader leads without a majority's fetches: 1.5 times the followers' fetch timeout."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_ms(self) -> int:
        """The interval at which a leader reports its epoch to voters that do not fetch from it."""
        return self.fetch_timeout_ms // 2
