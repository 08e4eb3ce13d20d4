"""The base of simulated clients: find the nodes, send encoded requests, wait with timeouts, and retry as a correct client does.

A client knows the addresses of all nodes. One of them is its *home*, which gets metadata requests and all others that any
node can serve. When the home fails, the client chooses another one. Requests about a partition go to its leader.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import UUID

from linearizability.client.errors import STALE, error_name
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS, REQUEST_TIMEOUT_MS, Line
from linearizability.simulation.world import MICROSECONDS_A_MS, Violation, World
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from reference.protocol.primitives import NodeId
from reference.protocol.schema import Message

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 1, 2, 3, 19, 22
METADATA_VERSION = 12

Key = tuple[str, int]
"""Topic and partition."""

GROUNDLESS = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP,
    }
)  # fmt: skip
"""Errors that a broker may never return to a correct client, under any fault."""


class SimulatedClient(ABC):
    """A client with a connection to each node that it needs. Subclasses define its requests."""

    def __init__(self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder) -> None:
        self.cluster = cluster
        self.world: World = cluster.world
        self.number = number
        self.name = f"client {number}"
        self.recorder = recorder
        self.chance = self.world.chance(f"client/{number}")
        self.finished = False
        self.leaders: dict[Key, int] = {}
        """Partition -> its leader in the client's metadata; -1 for none."""
        self.leader_epochs: dict[Key, int] = {}
        self.replicas: dict[Key, list[NodeId]] = {}
        self.topic_ids: dict[str, UUID] = {}
        self._lines = {machine.number: Line(self, cluster.network, machine) for machine in cluster.machines}
        self._home = cluster.machines[number % len(cluster.machines)].number
        self._correlation_id = 0
        self._refreshing = False

    # ---- for subclasses

    @abstractmethod
    def on_ready(self) -> None:
        """Called when the home is connected and has no pending request."""

    def on_lost(self, line: Line) -> None:
        """Called when a connection is lost, with the responses to its pending requests."""

    def on_leader_ready(self, line: Line) -> None:
        """Called when a connection to another node than the home is established."""

    def topic_names(self) -> list[str]:
        """The topics of the client's metadata requests."""
        return [topic.name for topic in self.cluster.schedule.topics]

    def start(self) -> None:
        self._connect()

    # ---- connections

    @property
    def home(self) -> Line:
        return self._lines[self._home]

    def _connect(self) -> None:
        if not self.finished and not self.home.is_open:
            self.home.open()

    def on_line_up(self, line: Line) -> None:
        if line is self.home:
            self.on_ready()
        else:
            self.on_leader_ready(line)

    def on_line_down(self, line: Line, reason: str) -> None:
        self.log_event(f"lost its connection to {line.machine.name}: {reason}")
        is_home = line is self.home
        if is_home:
            self._refreshing = False
            nodes = [*self._lines]
            self._home = nodes[(nodes.index(self._home) + 1) % len(nodes)]
        self.on_lost(line)
        if self.finished:
            return
        if is_home:
            self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self._go_home)
        else:
            self.refresh_soon()

    def _go_home(self) -> None:
        """Connect to the next home; one that is already connected is ready at once."""
        if self.finished:
            return
        if self.home.is_up:
            self.on_ready()
            self._look_for_leaders()  # the metadata request may have been lost with the former home
        else:
            self._connect()

    def line_to(self, node: int) -> Line | None:
        """The connection to a node if it is up. Otherwise None: the connection is opened, and `on_leader_ready` follows."""
        line = self._lines.get(node)
        if line is None or line.is_up:
            return line
        if not line.is_open and line is not self.home and self.world.now_us >= line.not_before_us:
            line.open()
        return None

    def hang_up(self, reason: str) -> None:
        """Close the connection to the home; another node becomes the home."""
        self.home.hang_up(reason)

    def finish(self) -> None:
        """End the client: close all connections."""
        self.finished = True
        for line in self._lines.values():
            line.close()

    def next_correlation_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    @property
    def is_ready(self) -> bool:
        return self.home.is_up

    @property
    def in_flight(self) -> int:
        """The number of pending requests at all nodes."""
        return sum(line.in_flight for line in self._lines.values())

    def ask(
        self,
        key: int,
        version: int,
        body: Message,
        on_answer: Callable[..., None] | None,
        context: Any = None,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        line: Line | None = None,
    ) -> None:
        """Send a request, by default to the home. Without `on_answer` (acks=0) it awaits no response."""
        (line or self.home).ask(key, version, body, on_answer, context, timeout_ms)

    # ---- metadata

    def ask_metadata(self) -> None:
        """Send a Metadata request; `on_metadata` follows."""
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in self.topic_names()]
        body = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        self._refreshing = True
        self.ask(METADATA, METADATA_VERSION, body, self._on_metadata)

    def refresh_soon(self) -> None:
        """Send a Metadata request after a moment, unless one is pending."""
        if not self._refreshing:
            self._refreshing = True
            self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self._refresh)

    def _refresh(self) -> None:
        if self._refreshing and self.is_ready and not self.finished:
            self.ask_metadata()
        else:
            self._refreshing = False

    def _on_metadata(self, body: MetadataResponse, _: Any) -> None:
        self._refreshing = False
        incomplete = False
        for topic in body.topics:
            if topic.error_code != ErrorCode.NONE:
                if self.cluster.is_alone or topic.error_code not in STALE:
                    text = f"{topic.name}, which was created, is answered with error {topic.error_code}"
                    raise Violation("topic-lost", text)
                incomplete = True
            self.topic_ids[str(topic.name)] = topic.topic_id
            for partition in topic.partitions:
                self._learn((str(topic.name), partition.partition_index), partition)
        self.on_metadata()
        if incomplete:
            self.refresh_soon()
        self._look_for_leaders()

    def _look_for_leaders(self) -> None:
        if any(leader < 0 for leader in self.leaders.values()):
            self.refresh_soon()

    def _learn(self, key: Key, answer: MetadataResponse.MetadataResponsePartition) -> None:
        """Adopt a partition's leader, unless its leader epoch is older than the known one: a node's metadata may lag."""
        known = self.leader_epochs.get(key, -1)
        if answer.leader_epoch < known:
            if self.cluster.is_alone:
                raise Violation("leader-epoch-back", f"{key}: epoch {answer.leader_epoch} after {known}")
            self.refresh_soon()
            return
        self.leader_epochs[key] = answer.leader_epoch
        self.leaders[key] = answer.leader_id
        self.replicas[key] = answer.replica_nodes

    def on_metadata(self) -> None:
        """Called after each Metadata response."""

    # ---- responses

    def count(self, api: str, code: int) -> None:
        """Count a response's error code. Errors: Violation for one that a correct client may never get."""
        self.world.counts[_answer_name(api, code)] += 1
        if code in GROUNDLESS:
            raise self.groundless(api, code)

    def groundless(self, api: str, code: int) -> Violation:
        """The violation where a correct client gets this error."""
        return Violation("groundless-refusal", f"{self.name}: {api} was refused with {error_name(code)}")

    def log_event(self, text: str) -> None:
        trace = self.world.trace
        if trace.keep:
            trace.log_event(self.name, self.name, text)


@cache
def _answer_name(api: str, code: int) -> str:
    """The name of a response in the counts of a run."""
    return f"answer {api} {error_name(code)}"
