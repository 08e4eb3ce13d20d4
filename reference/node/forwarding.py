"""Requests that only the active controller can answer: carried to it in an envelope, and its answer carried back.

Clients talk to any broker. What changes the metadata goes on to the active controller as it came, inside of an Envelope
(KIP-590). While there is no controller, or while nobody knows it, the request is tried again until its time is over.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from reference.node.refusals import refusal
from reference.node.requests import Request
from reference.protocol.codec import Part, encode
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.default_principal_data import DefaultPrincipalData
from reference.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message

LANE = "forward"
RETRY_MS = 50
"""A request that no controller took is tried again after this time."""

TIMEOUT_MS = 30_000
"""request.timeout.ms' default of the clients: nobody waits longer for an answer."""


class Controller(Protocol):
    """The way to the active controller, wherever it is."""

    def ask(
        self, lane: str, body: Message, answered: Callable[[Message | None, TimestampMs], None], now: TimestampMs
    ) -> None: ...

    def decide_here(
        self, request: Request, body: Message, answered: Callable[[Message | None, TimestampMs], None], now: TimestampMs
    ) -> bool:
        """Decide on a request if this node is the active controller; the answer is None when it ceases to be."""
        ...


@dataclass(slots=True)
class _Carried:
    request: Request
    body: Message
    envelope: EnvelopeRequest
    deadline: TimestampMs
    next_try: TimestampMs


class Forwarding:
    """The requests that are on their way to the active controller."""

    def __init__(
        self,
        controller: Controller,
        respond: Callable[[Request, Message], None],
        respond_raw: Callable[[Request, list[Part]], None],
    ) -> None:
        self._controller = controller
        self._respond = respond
        self._respond_raw = respond_raw
        self._waiting: list[_Carried] = []

    def forward(self, request: Request, body: Message, frame: bytes, now: TimestampMs) -> None:
        """Carry a request on; `frame` is all of it without its size."""
        envelope = EnvelopeRequest(
            request_data=frame,
            request_principal=_anonymous(),
            client_host_address=_address(request.client.host),
        )
        self._send(_Carried(request, body, envelope, now + TIMEOUT_MS, now), now)

    def tick(self, now: TimestampMs) -> None:
        """Try again what is due, and give up what has waited too long."""
        due = [carried for carried in self._waiting if carried.next_try <= now]
        if due:
            self._waiting = [carried for carried in self._waiting if carried.next_try > now]
            for carried in due:
                self._send(carried, now)

    def next_deadline(self) -> TimestampMs | None:
        return min((carried.next_try for carried in self._waiting), default=None)

    def _send(self, carried: _Carried, now: TimestampMs) -> None:
        if now >= carried.deadline:
            request = carried.request
            self._respond(request, refusal(request.key, request.version, carried.body, ErrorCode.REQUEST_TIMED_OUT))
            return
        if self._controller.decide_here(
            carried.request, carried.body, lambda answer, then: self._decided(carried, answer, then), now
        ):
            return
        self._controller.ask(LANE, carried.envelope, lambda answer, then: self._answered(carried, answer, then), now)

    def _decided(self, carried: _Carried, answer: Message | None, now: TimestampMs) -> None:
        if answer is None:
            self._wait(carried, now)
        else:
            self._respond(carried.request, answer)

    def _wait(self, carried: _Carried, now: TimestampMs) -> None:
        carried.next_try = now + RETRY_MS
        self._waiting.append(carried)

    def _answered(self, carried: _Carried, answer: Message | None, now: TimestampMs) -> None:
        if isinstance(answer, EnvelopeResponse) and answer.error_code == ErrorCode.NONE and answer.response_data:
            data = bytes(answer.response_data)
            correlation = carried.request.correlation_id.to_bytes(4, "big", signed=True)
            self._respond_raw(carried.request, [len(data).to_bytes(4, "big"), correlation, data[4:]])
            return
        if isinstance(answer, EnvelopeResponse) and answer.error_code not in (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER):
            request = carried.request
            self._respond(request, refusal(request.key, request.version, carried.body, ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._wait(carried, now)


def _anonymous() -> bytes:
    """The principal of a client that did not say who it is (org.apache.kafka.common.security.auth.KafkaPrincipal)."""
    return b"\x00\x00" + encode(DefaultPrincipalData(type="User", name="ANONYMOUS"), 0)


def _address(host: str) -> bytes:
    """An address in network order, as Java's InetAddress gives it; loopback where the host is a name."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return bytes([127, 0, 0, 1])
