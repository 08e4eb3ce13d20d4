"""What every simulated client does: connect, ask in real bytes, wait with patience, and try again as a correct client does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from linearizability.simulation.network import Connection
from linearizability.simulation.notebook import Notebook
from linearizability.simulation.world import MICROSECONDS_A_MS, Violation, World
from reference.protocol.codec import CodecError
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from reference.protocol.schema import Message

if TYPE_CHECKING:
    from linearizability.simulation.life import Cluster

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 1, 2, 3, 19, 22
API_NAMES = {0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 19: "CreateTopics", 22: "InitProducerId"}
METADATA_VERSION = 12

REQUEST_TIMEOUT_MS = 1_500
BACKOFF_MS = 30

GROUNDLESS = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP,
    }
)  # fmt: skip
"""Errors that a correct client is never owed, whatever happens to the broker."""


class Asked:
    """A request that waits for its answer."""

    __slots__ = ("context", "correlation_id", "key", "on_answer", "version")

    def __init__(
        self, correlation_id: int, key: int, version: int, on_answer: Callable[..., None], context: Any
    ) -> None:
        self.correlation_id = correlation_id
        self.key = key
        self.version = version
        self.on_answer = on_answer
        self.context = context


class SimulatedClient:
    """A client with one connection. Subclasses say what they do with it."""

    def __init__(self, cluster: Cluster, number: int, notebook: Notebook) -> None:
        self.cluster = cluster
        self.world: World = cluster.world
        self.number = number
        self.name = f"client {number}"
        self.notebook = notebook
        self.chance = self.world.chance(f"client/{number}")
        self.finished = False
        self.leader_epochs: dict[tuple[str, int], int] = {}
        self._connection: Connection | None = None
        self._established = False
        self._buffer = bytearray()
        self._asked: deque[Asked] = deque()
        self._next_correlation_id = 1

    # ---- for subclasses

    def on_ready(self) -> None:
        """The connection stands, nothing is under way."""
        raise NotImplementedError

    def on_lost(self) -> None:
        """The connection is gone, and with it the answers to what was asked."""

    def start(self) -> None:
        self._connect()

    # ---- connecting

    def _connect(self) -> None:
        if self.finished or self._connection is not None:
            return
        self._connection = self.cluster.network.connect(self, self.cluster.machines[0])
        self.world.after(REQUEST_TIMEOUT_MS * MICROSECONDS_A_MS, self._connect_timed_out, self._connection)

    def _connect_timed_out(self, connection: Connection) -> None:
        if self._connection is connection and not self._established:
            self.hang_up("no connection")

    def on_connected(self, connection: Connection) -> None:
        if connection is self._connection:
            self._established = True
            self.on_ready()

    def on_closed(self, connection: Connection, reason: str) -> None:
        if connection is self._connection:
            self._lost(reason)

    def hang_up(self, reason: str) -> None:
        """Close the connection and open another one soon."""
        if self._connection is not None:
            self._connection.close_by_client()
            self._lost(reason)

    def _lost(self, reason: str) -> None:
        self._connection = None
        self._established = False
        self._buffer.clear()
        self._asked.clear()
        self.tell(f"lost its connection: {reason}")
        self.on_lost()
        if not self.finished:
            self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self._connect)

    def finish(self) -> None:
        """Nothing more is to be done."""
        self.finished = True
        self._established = False
        if self._connection is not None:
            self._connection.close_by_client()
            self._connection = None

    @property
    def is_ready(self) -> bool:
        return self._established

    # ---- asking

    def ask(
        self, key: int, version: int, body: Message, on_answer: Callable[..., None] | None, context: Any = None,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:  # fmt: skip
        """Send a request. Without `on_answer` (acks=0) none is awaited."""
        connection = self._connection
        assert connection is not None and self._established
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        frame = encode_request(key, version, correlation_id, self.name, body)
        if self.world.trace.keep:
            self.world.trace.tell(self.name, connection.machine.name, f"{API_NAMES[key]} v{version} {outline(body)}")
        if on_answer is not None:
            asked = Asked(correlation_id, key, version, on_answer, context)
            self._asked.append(asked)
            self.world.after(timeout_ms * MICROSECONDS_A_MS, self._timed_out, connection, asked)
        connection.send(frame)

    def _timed_out(self, connection: Connection, asked: Asked) -> None:
        if connection is self._connection and asked in self._asked:
            self.hang_up(f"no answer to {API_NAMES[asked.key]}")

    def on_bytes(self, connection: Connection, data: bytes) -> None:
        if connection is not self._connection:
            return
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4 and self._connection is connection:
            end = 4 + int.from_bytes(buffer[:4], "big")
            if len(buffer) < end:
                return
            frame = bytes(buffer[4:end])
            del buffer[:end]
            self._answered(connection, frame)

    def _answered(self, connection: Connection, frame: bytes) -> None:
        """Answers come in the order of the questions, each with its question's number."""
        if not self._asked:
            raise Violation("answer-to-nothing", f"{self.name} got {len(frame)} bytes that it had not asked for")
        asked = self._asked.popleft()
        try:
            correlation_id, body = decode_response(asked.key, asked.version, frame)
        except CodecError as error:
            raise Violation("unreadable-answer", f"{API_NAMES[asked.key]} v{asked.version}: {error}") from error
        if correlation_id != asked.correlation_id:
            text = (
                f"{self.name} asked {API_NAMES[asked.key]} as {asked.correlation_id}, the answer says {correlation_id}"
            )
            raise Violation("wrong-correlation-id", text)
        if self.world.trace.keep:
            self.world.trace.tell(connection.machine.name, self.name, f"{API_NAMES[asked.key]} {outline(body)}")
        asked.on_answer(body, asked.context)

    @property
    def in_flight(self) -> int:
        return len(self._asked)

    # ---- metadata

    def ask_metadata(self) -> None:
        """Learn where the partitions are; `on_metadata` follows."""
        topics = [MetadataRequest.MetadataRequestTopic(name=topic.name) for topic in self.cluster.schedule.topics]
        body = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        self.ask(METADATA, METADATA_VERSION, body, self._on_metadata)

    def _on_metadata(self, body: MetadataResponse, _: Any) -> None:
        for topic in body.topics:
            if topic.error_code != ErrorCode.NONE:
                text = f"{topic.name}, which was created, is answered with error {topic.error_code}"
                raise Violation("topic-lost", text)
            for partition in topic.partitions:
                key = (str(topic.name), partition.partition_index)
                if partition.leader_epoch < self.leader_epochs.get(key, -1):
                    text = f"{key}: epoch {partition.leader_epoch} after {self.leader_epochs[key]}"
                    raise Violation("leader-epoch-back", text)
                self.leader_epochs[key] = partition.leader_epoch
        self.on_metadata()

    def on_metadata(self) -> None:
        """Metadata are fresh."""

    # ---- what is heard

    def count(self, api: str, code: int) -> None:
        """Note an answer's error; refuse one that a correct client cannot be owed."""
        self.world.counts[f"answer {api} {error_name(code)}"] += 1
        if code in GROUNDLESS:
            raise Violation("groundless-refusal", f"{self.name}: {api} was refused with {error_name(code)}")

    def tell(self, text: str) -> None:
        trace = self.world.trace
        if trace.keep:
            trace.tell(self.name, self.name, text)


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


MAX_OUTLINE = 160


def outline(body: Message) -> str:
    """A message in one short line, for the story: what differs from the defaults, bytes as their number."""
    text = _outline(body)
    return text if len(text) <= MAX_OUTLINE else text[:MAX_OUTLINE] + " …"


def _outline(value: Any) -> str:
    if isinstance(value, Message):
        told = [(field.name, getattr(value, field.name)) for field in value.FIELDS]
        blank = type(value)()
        return " ".join(f"{name}={_outline(each)}" for name, each in told if each != getattr(blank, name))
    if isinstance(value, list):
        return "[" + "; ".join(_outline(each) for each in value) + "]"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    return str(value)
