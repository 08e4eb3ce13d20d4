"""Requests to other nodes, whose responses are passed back to the callers.

A channel is one connection to one peer for one purpose (`quorum`, `controller`, `fetch`), so that a long poll on one channel
does not delay another. On a channel requests are answered in order. A late response, one that cannot be decoded, or one that
belongs to no open request ends the channel: all its open requests fail, and the connection is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from reference.controller.image import MetadataImage
from reference.node.effects import Effect, HangUp, Send
from reference.node.properties import Address
from reference.node.release import RELEASE, versions_of
from reference.protocol.codec import CodecError
from reference.protocol.errors import ErrorCode, name_of
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.primitives import NEVER, Buffer, NodeId, TimestampMs
from reference.protocol.schema import Message
from reference.storage.log_directory import Logger

MAX_UNANSWERED = 100
"""The most open requests of one channel; more would mean that a caller ignores failures."""

Answered = Callable[[Message | None, TimestampMs], None]
"""Takes the response, or None if there will be none."""

AskController = Callable[[str, Message, Answered, TimestampMs], None]
"""Sends a request to the active controller, which may be this node, on a channel; the answer is None if there is none."""

Translate = Callable[[Message, Answered], tuple[Message, Answered]]
"""Converts a request, and the function that takes its response, to an older inter-broker protocol."""

QUORUM_PURPOSE, QUORUM_FETCH_PURPOSE = "quorum", "quorum-fetch"
QUORUM_PURPOSES = frozenset({QUORUM_PURPOSE, QUORUM_FETCH_PURPOSE})
"""The channels between voters."""

CONTROLLER_TIMEOUT_MS = 30_000
"""The default of request.timeout.ms, in which the active controller must respond."""

NOWHERE = Address("127.0.0.1", 1)
"""The address of a broker that is not in the metadata: no process listens there, and the request fails."""

METADATA_FETCHES = frozenset({1, 59})
"""Fetch and FetchSnapshot: the leader may delay them, and other requests should not wait behind them."""


def client_id_of(node: NodeId) -> str:
    """The client id of a node's requests to other nodes."""
    return f"node-{node}"


@dataclass(slots=True)
class _Question:
    key: int
    version: int
    correlation_id: int
    deadline: TimestampMs
    answered: Answered


class Peers:
    """The open requests of this node to other nodes."""

    def __init__(self, node: NodeId, effects: Callable[[Effect], None], release: str = RELEASE) -> None:
        """`release` is that of the oldest peer."""
        self._client_id = client_id_of(node)
        self._emit = effects
        self._release = release
        self._channels: dict[tuple[NodeId, str], deque[_Question]] = {}
        self._addresses: dict[tuple[NodeId, str], Address] = {}
        """The address of each channel; a voter may get another one (KIP-853)."""
        self._next_deadline: TimestampMs | None = None
        """The deadline of the oldest open request; None until it is computed."""
        self._next_correlation_id = 0

    def ask(
        self,
        peer: NodeId,
        address: Address,
        purpose: str,
        body: Message,
        now: TimestampMs,
        timeout_ms: int,
        answered: Answered,
    ) -> None:
        """Send a request in the release's newest version; `answered` is called once, and never before this returns."""
        if self._addresses.setdefault((peer, purpose), address) != address:
            self._addresses[peer, purpose] = address
            self.hang_up(peer, purpose, now)
        questions = self._channels.get((peer, purpose))
        if questions is None:
            questions = self._channels[peer, purpose] = deque()
        assert len(questions) < MAX_UNANSWERED, f"channel {purpose} to node {peer} has too many open requests"
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        key = body.KEY
        version = versions_of(key, self._release)[1]
        questions.append(_Question(key, version, correlation_id, now + timeout_ms, answered))
        self._next_deadline = None
        frame = encode_request(key, version, correlation_id, self._client_id, body)
        self._emit(Send(peer, address.host, address.port, purpose, frame, address.listener))

    def purposes_to(self, peer: NodeId) -> list[str]:
        """The channels on which a peer has open requests."""
        return [purpose for (each, purpose), questions in self._channels.items() if each == peer and questions]

    def answered(self, peer: NodeId, purpose: str, frame: Buffer, now: TimestampMs) -> None:
        """Handle a response."""
        questions = self._channels.get((peer, purpose))
        if not questions:
            self._emit(HangUp(peer, purpose))
            return
        question = questions[0]
        try:
            correlation_id, body = decode_response(question.key, question.version, frame)
            if correlation_id != question.correlation_id:
                raise CodecError(f"a response has the correlation id {correlation_id}, not {question.correlation_id}")
        except CodecError:
            self.hang_up(peer, purpose, now)
            return
        questions.popleft()
        self._next_deadline = None
        question.answered(body, now)

    def hang_up(self, peer: NodeId, purpose: str, now: TimestampMs) -> None:
        """Close a channel's connection, if there is one, and fail its open requests."""
        self._emit(HangUp(peer, purpose))
        self.unreachable(peer, purpose, now)

    def unreachable(self, peer: NodeId, purpose: str, now: TimestampMs) -> None:
        """Fail all open requests of a lost connection."""
        self._next_deadline = None
        for question in self._channels.pop((peer, purpose), ()):
            question.answered(None, now)

    def tick(self, now: TimestampMs) -> None:
        """Close the channels with a request that timed out."""
        overdue = [name for name, questions in self._channels.items() if questions and questions[0].deadline <= now]
        for peer, purpose in overdue:
            self.hang_up(peer, purpose, now)

    def next_deadline(self) -> TimestampMs:
        """The deadline of the oldest open request."""
        if self._next_deadline is None:
            open_ = [questions[0].deadline for questions in self._channels.values() if questions]
            self._next_deadline = min(open_, default=NEVER)
        return self._next_deadline


class Brokers:
    """Sends requests to other brokers, at their addresses in the metadata."""

    def __init__(self, peers: Peers, image: MetadataImage, listener: str) -> None:
        """`listener` is the one on which brokers connect to each other; empty for the first one of each broker."""
        self._peers = peers
        self._image = image
        self._listener = listener.upper()
        self.translate: Translate = lambda body, answered: (body, answered)

    def ask(
        self, broker: NodeId, purpose: str, body: Message, timeout_ms: int, answered: Answered, now: TimestampMs
    ) -> None:
        body, answered = self.translate(body, answered)
        self._peers.ask(broker, self._address_of(broker), purpose, body, now, timeout_ms, answered)

    def has_sent(self, client_id: str | None) -> bool:
        """Whether a request with this client id comes from a registered broker of the reference."""
        return any(client_id == client_id_of(broker) for broker in self._image.brokers)

    def _address_of(self, broker: NodeId) -> Address:
        found = self._image.brokers.get(broker)
        for endpoint in found.endpoints if found is not None else ():
            if self._listener in ("", endpoint.listener):
                return Address(endpoint.host, endpoint.port, endpoint.listener)
        return NOWHERE


SENTENCES: dict[int, str] = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "it belongs to another cluster",
    ErrorCode.INCONSISTENT_VOTER_SET: "its controller.quorum.voters are others than this node's",
}
"""Error -> the reason why the peer refuses this node."""


class PeerRefusals:
    """Logs the errors that other voters answer: once per change, not for every request.

    A node of another cluster, or a voter that is not in the others' set, is refused forever. Kafka's nodes log it too; without
    a message the reason would be invisible. Source: KIP-595, errors of its requests.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._said: dict[NodeId, int] = {}

    def take(self, peer: NodeId, answer: Message) -> None:
        """Note a response, and log its error if this peer has not answered with it before."""
        error = _refusal(answer)
        if error != self._said.get(peer, ErrorCode.NONE):
            self._said[peer] = error
            if error in SENTENCES:
                self._log("error", f"node {peer} refuses this node with {name_of(error)}: {SENTENCES[error]}")


def _refusal(answer: Message) -> int:
    """The response's error, or that of its one partition."""
    error: int = getattr(answer, "error_code", ErrorCode.NONE)
    for topic in getattr(answer, "topics", ()) if error == ErrorCode.NONE else ():
        for partition in topic.partitions:
            return partition.error_code
    return error


def quorum_purpose(body: Message) -> str:
    """The channel for a message of the quorum to another voter."""
    return QUORUM_FETCH_PURPOSE if body.KEY in METADATA_FETCHES else QUORUM_PURPOSE
