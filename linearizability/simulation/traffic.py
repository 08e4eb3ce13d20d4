"""What passes between brokers, by what it is about: for those who hold a message up, or let it through.

A message is seen when it is sent, so that its sender may be gone when it arrives.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from reference.protocol.codec import CodecError, decode_from
from reference.protocol.frames import decode_request, decode_response

QUESTIONS = {
    ("fetch", "FetchRequest"): "fetch",
    ("isr", "AlterPartitionRequest"): "proposal",
    ("heartbeat", "BrokerRegistrationRequest"): "registration",
    ("heartbeat", "BrokerHeartbeatRequest"): "heartbeat",
    ("quorum-fetch", "FetchRequest"): "metadata-fetch",
}
"""A broker's lane and the request on it -> the kind of the message."""

ANSWERS = {"fetch": "fetch-answer", "proposal": "proposal-answer", "metadata-fetch": "metadata"}
"""Kind of a question -> kind of its answer; other answers are no messages of their own."""

KINDS = ("fetch", "fetch-answer", "metadata", "proposal", "proposal-answer", "registration", "heartbeat")


@dataclass(slots=True, eq=False)
class Message:
    """One request of a broker to another, or the answer to it."""

    kind: str
    asker: int
    """The broker that asks, or had asked."""
    asked: int
    body: Any
    question: Any = None
    """Of an answer: what was asked."""
    since_us: int = 0
    """When it was sent."""


class Reader:
    """Reads what passes on one connection that a broker has opened for one lane."""

    def __init__(self, lane: str, asker: int, asked: int) -> None:
        self._lane = lane
        self._asker = asker
        self._asked = asked
        self._open: deque[tuple[str, int, int, Any]] = deque()
        """Kind, key, version and body of the questions that wait for their answers."""

    def question(self, frame: bytes, now_us: int) -> Message | None:
        """A request leaves; `frame` begins with its size. None for what has no kind."""
        try:
            header, form, view, position = decode_request(frame[4:])
            body, _ = decode_from(form.request, header.request_api_version, view, position)
        except CodecError:
            self._open.append(("", 0, 0, None))
            return None
        kind = QUESTIONS.get((self._lane, type(body).__name__), "")
        self._open.append((kind, header.request_api_key, header.request_api_version, body))
        return Message(kind, self._asker, self._asked, body, since_us=now_us) if kind else None

    def answer(self, frame: bytes, now_us: int) -> Message | None:
        """An answer leaves, in the order of the questions. None for what has no kind."""
        if not self._open:
            return None
        kind, key, version, question = self._open.popleft()
        if kind not in ANSWERS:
            return None
        try:
            _, body = decode_response(key, version, frame[4:])
        except CodecError:
            return None
        return Message(ANSWERS[kind], self._asker, self._asked, body, question, now_us)
