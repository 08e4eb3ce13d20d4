"""Sends requests to the active controller, on this node or another.

The active controller decides them (`active_controller`); on another node it is the quorum's leader. A broker's own requests go
to it directly, on a channel for their purpose. Clients send to any broker. A request that only the active controller can
answer is forwarded unchanged in an Envelope (KIP-590), and retried until a controller accepts it or it times out. Both ends of
the envelope are here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reference.controller.quorum import Quorum
from reference.node.active_controller import ActiveController, Asked
from reference.node.context import Context
from reference.node.decisions import Abandon, Answer
from reference.node.peers import CONTROLLER_TIMEOUT_MS, QUORUM_PURPOSES, Answered, Peers
from reference.node.principals import decode_host, decode_principal, encode_host, encode_principal
from reference.node.properties import Address
from reference.node.quotas import STRICT_SINCE, THROTTLED, Quotas
from reference.node.refusals import refusal
from reference.node.release import BROKER, is_served_on, versions_of
from reference.node.replication import FETCH_PURPOSE
from reference.node.requests import Client, Request
from reference.protocol.codec import CodecError, decode_from
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_request, decode_response, encode_response
from reference.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from reference.protocol.primitives import AT_ONCE, NO_EPOCH, NO_NODE, Buffer, LeaderEpoch, NodeId, TimestampMs
from reference.protocol.schema import Message

HEARTBEAT_PURPOSE, FORWARD_PURPOSE = "heartbeat", "forward"
RETRY_MS = 50
"""The delay before a request that no controller accepted is retried."""

TIMEOUT_MS = 30_000
"""The clients' default of request.timeout.ms."""

FORWARDED = ""
"""The listener of a forwarded request's client: it is the forwarding broker's, and unknown here."""


@dataclass(slots=True)
class _Carried:
    """A client's request that is being forwarded."""

    request: Request
    body: Message
    frame: bytes
    """The request's bytes without the size."""
    deadline: TimestampMs
    next_try: TimestampMs = field(default=AT_ONCE)


class ControllerChannel:
    """The connection to the active controller."""

    def __init__(
        self,
        quorum: Quorum,
        controller: ActiveController,
        peers: Peers,
        address_of: Callable[[NodeId], Address],
        context: Context,
        quotas: Quotas,
    ) -> None:
        self._quorum = quorum
        self.controller = controller
        self._peers = peers
        self._address_of = address_of
        self._responder = context.responder
        self._access = context.access
        self._quotas = quotas
        self._session_timeout_ms = context.configuration.integer("broker.session.timeout.ms")
        self._waiting: list[_Carried] = []
        self._followed: tuple[LeaderEpoch, NodeId] = (NO_EPOCH, NO_NODE)
        """The quorum's epoch and leader when the channels to the controller were opened."""

    # ---- for this node itself

    def ask(self, purpose: str, body: Message, answered: Answered, now: TimestampMs) -> None:
        """Send a request of this node to the active controller; the answer is None if there is none."""
        leader = self._quorum.leader
        if self.controller.is_active:
            version = versions_of(body.KEY)[1]
            self.controller.decide(Asked(body.KEY, version, body), answered, lambda then: answered(None, then), now)
        elif leader >= 0 and leader != self._quorum.node:
            timeout_ms = self._session_timeout_ms // 2 if purpose == HEARTBEAT_PURPOSE else CONTROLLER_TIMEOUT_MS
            self._peers.ask(leader, self._address_of(leader), purpose, body, now, timeout_ms, answered)
        else:
            answered(None, now)

    def follow(self, now: TimestampMs) -> None:
        """After a change of the quorum's epoch or leader, fail the open requests to the former leader, also if it is the same
        node."""
        followed = self._quorum.epoch, self._quorum.leader
        if followed == self._followed:
            return
        (_, former), self._followed = self._followed, followed
        if former >= 0:
            for purpose in self._peers.purposes_to(former):
                if purpose not in QUORUM_PURPOSES and purpose != FETCH_PURPOSE:
                    self._peers.hang_up(former, purpose, now)

    # ---- for clients

    def was_forwarded(self, request: Request) -> bool:
        """Never on a broker's listener: brokers forward in envelopes, to a controller's listener."""
        return False

    def decide_or_refuse(self, request: Request, body: Message, now: TimestampMs) -> None:
        """Answer a request on a controller's listener, with NOT_CONTROLLER if another node is active."""

        def refuse(then: TimestampMs) -> None:
            self._refuse(request, body, ErrorCode.NOT_CONTROLLER)

        self._decide(request, body, refuse, now) if self.controller.is_active else refuse(now)

    def carry(self, request: Request, body: Message, frame: bytes, now: TimestampMs) -> None:
        """Answer a request on a broker's listener, by this node or the active controller."""
        self._send(_Carried(request, body, frame, now + TIMEOUT_MS), now)

    def tick(self, now: TimestampMs) -> None:
        """Retry the requests that are due, and refuse those that timed out."""
        due = [carried for carried in self._waiting if carried.next_try <= now]
        if due:
            self._waiting = [carried for carried in self._waiting if carried.next_try > now]
            for carried in due:
                self._send(carried, now)

    def next_deadline(self) -> TimestampMs | None:
        return min((carried.next_try for carried in self._waiting), default=None)

    def _send(self, carried: _Carried, now: TimestampMs) -> None:
        if now >= carried.deadline:
            self._refuse(carried.request, carried.body, ErrorCode.REQUEST_TIMED_OUT)
        elif self.controller.is_active:
            self._decide(carried.request, carried.body, lambda then: self._abandoned(carried, then), now)
        else:
            client = carried.request.client
            envelope = EnvelopeRequest(
                request_data=carried.frame,
                request_principal=encode_principal(client.principal, client.by_token),
                client_host_address=encode_host(client.host),
            )
            self.ask(FORWARD_PURPOSE, envelope, lambda answer, then: self._answered(carried, answer, then), now)

    def _abandoned(self, carried: _Carried, now: TimestampMs) -> None:
        """Forward a decision that this node abandoned: at once if it was deposed, or later if too many decisions are pending
        here."""
        self._wait(carried, now) if self.controller.is_active else self._send(carried, now)

    def _wait(self, carried: _Carried, now: TimestampMs) -> None:
        carried.next_try = now + RETRY_MS
        self._waiting.append(carried)

    def _answered(self, carried: _Carried, answer: Message | None, now: TimestampMs) -> None:
        code = answer.error_code if isinstance(answer, EnvelopeResponse) else ErrorCode.NOT_CONTROLLER
        data = answer.response_data if isinstance(answer, EnvelopeResponse) else None
        if code == ErrorCode.NONE and data and carried.request.amend is not None:
            _, response = decode_response(carried.request.key, carried.request.version, data)
            self._responder.respond(carried.request, response)
        elif code == ErrorCode.NONE and data:
            correlation = carried.request.correlation_id.to_bytes(4, "big", signed=True)
            parts = [len(data).to_bytes(4, "big"), correlation, bytes(data[4:])]
            self._responder.respond_raw(carried.request, [*parts], _muted_ms(carried.request, data))
        elif code in (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER):
            self._wait(carried, now)
        else:
            self._refuse(carried.request, carried.body, ErrorCode.UNKNOWN_SERVER_ERROR)

    # ---- the controller's end of the envelope

    def open_envelope(self, request: Request, body: EnvelopeRequest, now: TimestampMs) -> EnvelopeResponse | None:
        """Handle a client's request that a broker forwarded; the response is in an envelope too (KIP-590)."""
        if not self.controller.is_active:
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        try:
            principal, by_token = decode_principal(body.request_principal or b"")
        except CodecError:
            return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
        try:
            host = decode_host(body.client_host_address)
            client = Client(request.client.connection, host, FORWARDED, principal=principal, by_token=by_token)
            forwarded, inner = self._read_forwarded(client, body)
        except CodecError:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)

        def answer(response: Message | None, then: TimestampMs) -> None:
            assert response is not None
            parts = encode_response(forwarded.key, forwarded.version, forwarded.correlation_id, response)
            data = b"".join(bytes(part) for part in parts)[4:]  # type: ignore[arg-type]  # no slices of files
            self._responder.respond(request, EnvelopeResponse(response_data=data))

        def abandon(then: TimestampMs) -> None:
            self._responder.respond(request, EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))

        self._decide_for(forwarded, inner, answer, abandon, now)
        return None

    def _read_forwarded(self, client: Client, body: EnvelopeRequest) -> tuple[Request, Message]:
        """The request in an envelope. Errors: CodecError for an invalid one, or one that the controller does not answer."""
        header, form, view, position = decode_request(bytes(body.request_data))
        key, version = header.request_api_key, header.request_api_version
        if not self.controller.decides(key) or not is_served_on(key, BROKER):
            raise CodecError(f"API {key} is not the controller's")
        lowest, highest = versions_of(key)
        if not lowest <= version <= highest:
            raise CodecError(f"API {key} version {version} is not served")
        inner, _ = decode_from(form.request, version, view, position)
        return Request(client, key, version, header.correlation_id, header.client_id), inner

    # ---- both

    def _decide(
        self, request: Request, body: Message, abandon: Callable[[TimestampMs], None], now: TimestampMs
    ) -> None:
        def answer(response: Message | None, then: TimestampMs) -> None:
            if response is not None:
                self._responder.respond(request, response)

        self._decide_for(request, body, answer, abandon, now)

    def _decide_for(self, request: Request, body: Message, answer: Answer, abandon: Abandon, now: TimestampMs) -> None:
        """Decide the admitted part of a request. Kafka too checks access before the decision's turn comes."""
        admission = self._access.admit(request, body)
        if admission.refusal is not None:
            return answer(admission.refusal, now)

        mutations = self._quotas.mutations(request, now)

        def amended(response: Message | None, then: TimestampMs) -> None:
            if response is not None:
                response = admission.amend(response)
                if mutations is not None:
                    mutations.throttle(response, then)
            answer(response, then)

        asked = Asked(request.key, request.version, admission.body, mutations, request.client.principal)
        return self.controller.decide(asked, amended, abandon, now)

    def _refuse(self, request: Request, body: Message, code: ErrorCode) -> None:
        self._responder.respond(request, refusal(request.key, request.version, body, code))


def _muted_ms(request: Request, data: Buffer) -> int:
    """How long the client is throttled according to the controller's response: this broker mutes its connection."""
    if request.key not in STRICT_SINCE:
        return 0
    _, response = decode_response(request.key, request.version, data)
    return getattr(response, THROTTLED)
