"""A proxy between a client and a node, on which a chosen request meets a chosen mishap: a test can show a confusion without
waiting for the network to fail.

The proxy relays whole frames, and writes its own address over the node's wherever a response names it, so that an unmodified
client keeps using it. Frames without a mishap pass unchanged.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

from linearizability.targets import Node
from reference.protocol.codec import decode_from
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_request, encode_response
from reference.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from reference.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from reference.protocol.messages.produce import ProduceRequest, ProduceResponse
from reference.protocol.schema import Message

_SIZE = struct.Struct(">i")
_PORT = struct.Struct(">i")
_CORRELATION = struct.Struct(">i")


class Mishap(Enum):
    """A fault of one request."""

    LOST = "the connection ends before the node has read the request"
    UNANSWERED = "the node does what was asked, and the connection ends before its answer is read"
    REFUSED = "the node never sees it; an error is answered"
    OVERTAKEN = "as REFUSED, but only when the next request of its kind is on the wire and reaches the node"


def refused_produce(request: ProduceRequest, error: ErrorCode) -> ProduceResponse:
    response = ProduceResponse()
    for topic in request.topic_data:
        answers = [
            ProduceResponse.PartitionProduceResponse(index=each.index, error_code=error, base_offset=-1)
            for each in topic.partition_data
        ]
        response.responses.append(
            ProduceResponse.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
    return response


def refused_commit(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    for topic in request.topics:
        answers = [
            OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ]
        response.topics.append(
            OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    return response


def refused_offset_fetch(request: OffsetFetchRequest, error: ErrorCode) -> OffsetFetchResponse:
    groups = [
        OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)
        for group in request.groups
    ]
    return OffsetFetchResponse(error_code=error, groups=groups)


REFUSALS: dict[int, Callable[[Any, ErrorCode], Message]] = {
    ProduceRequest.KEY: refused_produce,
    OffsetCommitRequest.KEY: refused_commit,
    OffsetFetchRequest.KEY: refused_offset_fetch,
}


@dataclass
class Mishandling:
    """A mishap that waits for its request. `met` is set when the request has come."""

    mishap: Mishap
    error: ErrorCode = ErrorCode.NONE
    met: threading.Event = field(default_factory=threading.Event)


class Wire:
    """A proxy that listens at the node's host; `bootstrap` is its address for clients."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._listener = socket.create_server((node.host, 0))
        self._port: int = self._listener.getsockname()[1]
        self._mishandlings: dict[int, deque[Mishandling]] = defaultdict(deque)
        self._sockets: list[socket.socket] = []
        self.bootstrap = f"{node.host}:{self._port}"
        host = node.host.encode()
        self._true_name = host + _PORT.pack(node.port)
        self._our_name = host + _PORT.pack(self._port)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        end(self._listener)
        for each in self._sockets:
            end(each)

    def befall(self, request: type[Message], mishap: Mishap, error: ErrorCode = ErrorCode.NONE) -> Mishandling:
        """Let the next request of this kind meet the mishap, after earlier mishaps of this kind have met theirs."""
        mishandling = Mishandling(mishap, error)
        self._mishandlings[request.KEY].append(mishandling)
        return mishandling

    def next_mishandling(self, key: int) -> Mishandling | None:
        waiting = self._mishandlings[key]
        return waiting.popleft() if waiting else None

    def rename(self, answer: bytes) -> bytes:
        return answer.replace(self._true_name, self._our_name)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                node = socket.create_connection((self._node.host, self._node.port))
                self._sockets += [client, node]
                relay = Relay(self, client, node)
                threading.Thread(target=relay.carry_requests, daemon=True).start()
                threading.Thread(target=relay.carry_answers, daemon=True).start()


class Relay:
    """A client's connection, and the proxy's connection to the node for it."""

    def __init__(self, wire: Wire, client: socket.socket, node: socket.socket) -> None:
        self._wire = wire
        self._client = client
        self._node = node
        self._sending = threading.Lock()
        self._unanswered: set[int] = set()
        self._held: dict[int, bytes] = {}
        """By API key: the refusal of a request that waits to be overtaken."""

    def carry_requests(self) -> None:
        while (frame := read_frame(self._client)) is not None:
            key = int.from_bytes(frame[:2], "big")
            mishandling = self._wire.next_mishandling(key)
            if mishandling is not None:
                relayed = self._meet(mishandling, key, frame)
                mishandling.met.set()
                if not relayed:
                    continue
            elif key in self._held:
                self._answer(self._held.pop(key))
            write(self._node, _SIZE.pack(len(frame)) + frame)
        self._cut()

    def carry_answers(self) -> None:
        while (frame := read_frame(self._node)) is not None:
            if _CORRELATION.unpack_from(frame)[0] in self._unanswered:
                break
            answer = self._wire.rename(frame)
            self._answer(_SIZE.pack(len(answer)) + answer)
        self._cut()

    def _meet(self, mishandling: Mishandling, key: int, frame: bytes) -> bool:
        """Whether the node gets the request all the same."""
        match mishandling.mishap:
            case Mishap.LOST:
                self._cut()
            case Mishap.UNANSWERED:
                self._unanswered.add(decode_request(frame)[0].correlation_id)
                return True
            case Mishap.REFUSED:
                self._answer(refusal(frame, mishandling.error))
            case Mishap.OVERTAKEN:
                self._held[key] = refusal(frame, mishandling.error)
        return False

    def _answer(self, data: bytes) -> None:
        with self._sending:
            write(self._client, data)

    def _cut(self) -> None:
        end(self._client)
        end(self._node)


def refusal(frame: bytes, error: ErrorCode) -> bytes:
    """The answer that refuses everything that the request asks."""
    header, form, view, position = decode_request(frame)
    key, version = header.request_api_key, header.request_api_version
    request, _ = decode_from(form.request, version, view, position)
    parts = encode_response(key, version, header.correlation_id, REFUSALS[key](request, error))
    return b"".join(bytes(part) for part in parts)  # pyright: ignore[reportArgumentType]  # no slices of files


def read_frame(connection: socket.socket) -> bytes | None:
    """A frame without its size; None where the connection has ended."""
    size = read_exactly(connection, _SIZE.size)
    return None if size is None else read_exactly(connection, _SIZE.unpack(size)[0])


def read_exactly(connection: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        try:
            part = connection.recv(count - len(data))
        except OSError:
            return None
        if not part:
            return None
        data += part
    return bytes(data)


def write(connection: socket.socket, data: bytes) -> None:
    """Send to a peer that may have closed the connection; its reader notices that."""
    with suppress(OSError):
        connection.sendall(data)


def end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
