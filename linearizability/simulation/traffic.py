"""Classifies messages between brokers and from producers, for those who hold some of them up.

A message is seen when it is sent, so that its sender may be gone when it arrives. Its first bytes show its kind; what
it says is read only for those who ask.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import Any

from reference.protocol.codec import CodecError, decode_from
from reference.protocol.frames import decode_request, decode_response, form_of

QUESTIONS = {
    ("fetch", "FetchRequest"): "fetch",
    ("isr", "AlterPartitionRequest"): "proposal",
    ("heartbeat", "BrokerRegistrationRequest"): "registration",
    ("heartbeat", "BrokerHeartbeatRequest"): "heartbeat",
    ("controller", "LeaderAndIsrRequest"): "leader-and-isr",
    ("controller", "StopReplicaRequest"): "stop-replica",
    ("controller", "UpdateMetadataRequest"): "update-metadata",
    ("quorum-fetch", "FetchRequest"): "metadata-fetch",
    ("quorum", "VoteRequest"): "vote",
    ("quorum", "BeginQuorumEpochRequest"): "begin-epoch",
    ("quorum", "EndQuorumEpochRequest"): "end-epoch",
    ("verification", "AddPartitionsToTxnRequest"): "verification",
    ("markers", "WriteTxnMarkersRequest"): "markers",
    ("", "ProduceRequest"): "produce",
}
"""A broker's channel (a client has none) and the request on it -> the kind of the message."""

ANSWERS = {
    "fetch": "fetch-answer",
    "proposal": "proposal-answer",
    "metadata-fetch": "metadata",
    "vote": "vote-answer",
    "begin-epoch": "begin-epoch-answer",
    "end-epoch": "end-epoch-answer",
    "verification": "verification-answer",
    "markers": "markers-answer",
}
"""Kind of a question -> kind of its answer; other answers are no messages of their own."""

KINDS = ("fetch", "fetch-answer", "metadata", "proposal", "proposal-answer", "registration", "heartbeat")
"""Messages between brokers that a fault may hold up or lose, besides `produce`, and the `leader-and-isr`, `stop-replica` and
`update-metadata` of a controller with ZooKeeper (`schedule.py`); a schedule's driver also filters the quorum's elections."""

_KEY_AND_VERSION = struct.Struct(">hh")
_SIZE_BYTES = 4


class Message:
    """One request of a broker or a client to a broker, or the answer to it."""

    def __init__(self, kind: str, asker: int, asked: int, read: Callable[[], Any], since_us: int) -> None:
        self.kind = kind
        self.asker = asker
        """The place that sent the request."""
        self.asked = asked
        self.since_us = since_us
        """When it was sent."""
        self._read = read

    @cached_property
    def body(self) -> Any:
        """Return the decoded body. Errors: CodecError."""
        return self._read()


class Reader:
    """Classifies the messages on one connection that a client, or a broker for one channel, has opened."""

    def __init__(self, channel: str, asker: int, asked: int) -> None:
        self._channel = channel
        self._asker = asker
        self._asked = asked
        self._open: deque[tuple[str, int, int]] = deque()
        """Kind, key and version of the questions that wait for their answers."""

    def question(self, frame: bytes, now_us: int) -> Message | None:
        """A request leaves; `frame` begins with its size. None for what has no kind."""
        key, version = _KEY_AND_VERSION.unpack_from(frame, _SIZE_BYTES)
        kind = QUESTIONS.get((self._channel, _name_of(key, version)), "")
        self._open.append((kind, key, version))
        return Message(kind, self._asker, self._asked, lambda: _request_in(frame), now_us) if kind else None

    def answer(self, frame: bytes, now_us: int) -> Message | None:
        """An answer leaves, in the order of the questions. None for what has no kind."""
        if not self._open:
            return None
        asked, key, version = self._open.popleft()
        kind = ANSWERS.get(asked)
        if kind is None:
            return None
        return Message(kind, self._asker, self._asked, lambda: _response_in(key, version, frame), now_us)


def _name_of(key: int, version: int) -> str:
    """The name of a request; empty for an unknown one."""
    try:
        return form_of(key, version).request.__name__
    except CodecError:
        return ""


def _request_in(frame: bytes) -> Any:
    header, form, view, position = decode_request(frame[_SIZE_BYTES:])
    return decode_from(form.request, header.request_api_version, view, position)[0]


def _response_in(key: int, version: int, frame: bytes) -> Any:
    return decode_response(key, version, frame[_SIZE_BYTES:])[1]
