"""Receives the frames of clients, and passes each request to its handler or to the active controller."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from reference.node import metadata
from reference.node.access import ASKED_WITHOUT_AUTHORIZER, add_results
from reference.node.acls import names_unknown_kind
from reference.node.apis import API_VERSIONS, Api
from reference.node.authentication import (
    ADMITTED,
    SASL_HANDSHAKE,
    AuthenticationFailed,
    Authenticator,
    SaslSession,
    State,
    illegal_state,
)
from reference.node.configs import (
    alter_loggers,
    concerns_loggers,
    refusals,
    refused_by_broker,
    refused_by_controller,
)
from reference.node.context import Context
from reference.node.effects import Authenticated, Close, ConnectionId, Effect, Respond
from reference.node.loggers import Loggers
from reference.node.refusals import items_of, with_items
from reference.node.release import BROKER, CONTROLLER
from reference.node.requests import Client, Request
from reference.protocol.apis import APIS
from reference.protocol.codec import CodecError, decode_from
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import UnknownVersion, decode_request, encode_request
from reference.protocol.messages.api_versions import ApiVersionsResponse
from reference.protocol.messages.header import RequestHeader
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest
from reference.protocol.primitives import Buffer, TimestampMs
from reference.protocol.schema import Message

OF_ACLS = (29, 30, 31)
"""DescribeAcls, CreateAcls, DeleteAcls."""
MAX_HELD = 10_000
"""The most requests that are held while the broker has not caught up with the metadata; above it connections are closed."""


def _with_results(key: int, refused: Message, response: Message) -> Message:
    add_results(key, refused, response)
    return response


class Channel(Protocol):
    """The way to the active controller."""

    def was_forwarded(self, request: Request) -> bool: ...
    def decide_or_refuse(self, request: Request, body: Message, now: TimestampMs) -> None: ...
    def carry(self, request: Request, body: Message, frame: bytes, now: TimestampMs) -> None: ...


class Served(NamedTuple):
    """The APIs that a node serves."""

    apis: Mapping[str, Mapping[int, Api]]
    """By kind of listener."""
    controller_listeners: Container[str] = ()
    never_held: Container[int] = ()
    """Keys of the APIs that a broker answers while it holds all others."""


class Reception:
    """The connected clients, and their requests."""

    def __init__(
        self,
        context: Context,
        channel: Channel,
        loggers: Loggers,
        served: Served,
        effects: Callable[[Effect], None],
        authenticator: Authenticator,
    ) -> None:
        self._apis, self._controller_listeners, self._never_held = served
        self._authenticator = authenticator
        self.serves = False
        """Whether the replicas match the metadata, so that brokers' requests are no longer held."""
        self._context = context
        self._channel = channel
        self._loggers = loggers
        self._emit = effects
        self._clients: dict[ConnectionId, Client] = {}
        self._held: list[tuple[ConnectionId, bytes]] = []

    def connected(self, connection: ConnectionId, host: str, listener: str, principal: str) -> None:
        sasl = self._authenticator.begin(listener)
        self._clients[connection] = Client(connection, host, listener, principal=principal, sasl=sasl)

    def disconnected(self, connection: ConnectionId) -> None:
        self._clients.pop(connection, None)

    def receive(self, connection: ConnectionId, frame: Buffer, now: TimestampMs) -> Api | None:
        """The API of the request that was handled; None if no request was."""
        client = self._clients[connection]
        kind = self._kind_of(client)
        if kind is BROKER and not self.serves and int.from_bytes(frame[:2], "big", signed=True) not in self._never_held:
            return self._hold(connection, frame)
        if client.sasl is not None and self._is_for_authentication(client, client.sasl, frame, now):
            return None
        asked = self._read(client, self._apis[kind], frame)
        if asked is None:
            return None
        request, api, body = asked
        is_of_loggers = api.handler is None and concerns_loggers(body)
        if api.handler is not None or is_of_loggers or request.key in ASKED_WITHOUT_AUTHORIZER:
            admission = self._context.access.admit(request, body, kind)
            if admission.refusal is not None:
                self._refuse_access(request, body, admission.refusal)
                return api
            body = admission.body
            request.amend = admission.amend if admission.amendments else None
        if api.handler is not None:
            response = api.handler(request, body, now)
            if response is not None:
                self._context.responder.respond(request, response)
        elif concerns_loggers(body):
            self._context.responder.respond(request, alter_loggers(self._context.node, self._loggers, body))
        else:
            self._decide(request, body, bytes(frame), kind, now)
        return api

    def _decide(self, request: Request, body: Message, frame: bytes, kind: str, now: TimestampMs) -> None:
        """Pass a request to the active controller, without the changes of settings that are refused here."""
        context, key = self._context, request.key
        is_controller = kind is CONTROLLER
        if is_controller:
            refused = refused_by_controller(context.image, body)
        else:
            refused = [] if self._channel.was_forwarded(request) else refused_by_broker(context.configuration, body)
        if refused:
            response = refusals(body, refused)
            refused_ones = {id(each) for each, _, _ in refused}
            left = [each for each in items_of(key, body) if id(each) not in refused_ones]
            if not left:
                context.responder.respond(request, response)
                return
            body = with_items(key, body, left)
            frame = encode_request(key, request.version, request.correlation_id, request.client_id, body)[4:]
            request.amend = partial(_with_results, key, response)
        if is_controller:
            self._channel.decide_or_refuse(request, body, now)
        else:
            self._channel.carry(request, body, frame, now)

    def _kind_of(self, client: Client) -> str:
        """The kind of listener that a client is connected to."""
        return CONTROLLER if client.listener in self._controller_listeners else BROKER

    def _read(self, client: Client, apis: Mapping[int, Api], frame: Buffer) -> tuple[Request, Api, Message] | None:
        """Decode a request. An invalid one, or an unsupported API or version, closes the connection (FRM-06 to FRM-09)."""
        try:
            header, form, view, position = decode_request(frame)
            key, version = header.request_api_key, header.request_api_version
            api = apis.get(key)
            if api is None or not api.lowest <= version <= api.highest:
                self._refuse(client, header, f"API {key} version {version} is not served")
                return None
            if api.handler is None:
                # The decision may be delayed, and the frame's bytes are valid only during this call.
                view = memoryview(bytes(view))
            body, _ = decode_from(form.request, version, view, position)
        except UnknownVersion as error:
            self._refuse(client, error.header, str(error))
            return None
        except CodecError as error:
            self._emit(Close(client.connection, str(error)))
            return None
        if key in OF_ACLS and names_unknown_kind(body):
            self._refuse(client, header, f"{APIS[key].name} with an unknown kind of resource, pattern or operation")
            return None
        request = Request(client, key, version, header.correlation_id, header.client_id, len(frame))
        self._context.responder.began(request)
        return request, api, body

    def _refuse(self, client: Client, header: RequestHeader | None, reason: str) -> None:
        """Close the connection; but answer a newer version of ApiVersions in version 0 with the list, so that the client can
        retry (API-02, KIP-511)."""
        if header is None or header.request_api_key != API_VERSIONS:
            self._emit(Close(client.connection, reason))
            return
        request = Request(client, API_VERSIONS, 0, header.correlation_id, None)
        apis = self._apis[self._kind_of(client)]
        response = metadata.api_versions_response(self._context, apis, request, ErrorCode.UNSUPPORTED_VERSION)
        self._context.responder.respond(request, response)

    def _refuse_access(self, request: Request, body: Message, refusal: Message) -> None:
        """Answer with a refusal; a produce request with acks=0 closes the connection instead (ACK-03)."""
        if isinstance(body, ProduceRequest) and body.acks == 0:
            self._context.responder.close(request, "acks=0 produce is refused")
        else:
            self._context.responder.respond(request, refusal)

    # ---- authentication

    def _is_for_authentication(self, client: Client, sasl: SaslSession, frame: Buffer, now: TimestampMs) -> bool:
        """Whether the frame belongs to the client's authentication; then it was handled here, or the connection was closed."""
        key = int.from_bytes(frame[:2], "big", signed=True)
        try:
            if not sasl.takes(key, now):
                return False
        except AuthenticationFailed as over:
            self._emit(Close(client.connection, str(over)))
            return True
        if sasl.state is State.TOKENS and sasl.sends_raw_tokens:
            self._take_raw_token(client, sasl, frame, now)
        elif key in ADMITTED[sasl.state] or (sasl.state is State.TOKENS and key in (API_VERSIONS, SASL_HANDSHAKE)):
            self._authenticate(client, sasl, frame, now)
        elif sasl.state is State.OTHER_MECHANISM:
            self._fail(client, AuthenticationFailed("the client changes its mechanism"), None, now)
        else:
            self._emit(Close(client.connection, f"API {key} was asked before authentication"))
        if sasl.state is State.AUTHENTICATED and sasl.principal is not None:
            client.principal, client.by_token = sasl.principal, sasl.by_token
            self._emit(Authenticated(client.connection))
        return True

    def _authenticate(self, client: Client, sasl: SaslSession, frame: Buffer, now: TimestampMs) -> None:
        asked = self._read(client, self._apis[self._kind_of(client)], frame)
        if asked is None:
            return
        request, api, body = asked
        try:
            if request.key not in ADMITTED[sasl.state]:
                raise AuthenticationFailed("the SASL exchange is not complete", illegal_state(request.key))
            if isinstance(body, SaslHandshakeRequest):
                response = sasl.handshake(body, request.version)
            elif isinstance(body, SaslAuthenticateRequest):
                response = sasl.authenticate(body, now)
            else:
                response = self._versions(request, sasl, api, body, now)
        except AuthenticationFailed as failed:
            self._fail(client, failed, request, now)
        else:
            self._context.responder.respond(request, response)

    def _versions(self, request: Request, sasl: SaslSession, api: Api, body: Message, now: TimestampMs) -> Message:
        """The response to ApiVersions during the authentication, which allows it once."""
        assert api.handler is not None
        response = api.handler(request, body, now)
        assert isinstance(response, ApiVersionsResponse)
        if response.error_code == ErrorCode.NONE:
            sasl.versions_answered()
        return response

    def _take_raw_token(self, client: Client, sasl: SaslSession, frame: Buffer, now: TimestampMs) -> None:
        """Handle a mechanism's message without a request around it (KIP-43)."""
        try:
            answer, _ = sasl.token(frame, now)
        except AuthenticationFailed as failed:
            self._fail(client, failed, None, now)
        else:
            self._emit(Respond(client.connection, [len(answer).to_bytes(4, "big") + answer]))

    def _fail(self, client: Client, failed: AuthenticationFailed, request: Request | None, now: TimestampMs) -> None:
        """Answer a client that failed to authenticate, and close its connection, after a delay."""

        def answer() -> None:
            if client.connection not in self._clients:
                return
            if request is not None and failed.response is not None:
                self._context.responder.respond(request, failed.response)
            self._emit(Close(client.connection, f"authentication failed: {failed}"))

        self._authenticator.delay(answer, now)

    def _hold(self, connection: ConnectionId, frame: Buffer) -> None:
        """Hold a request until the replicas follow the replayed metadata: an earlier response could be wrong."""
        if len(self._held) < MAX_HELD:
            self._held.append((connection, bytes(frame)))
        else:
            self._emit(Close(connection, "too many requests before the broker has caught up"))

    def take_held(self) -> Iterator[tuple[ConnectionId, bytes]]:
        """The held requests of clients that are still connected."""
        held, self._held = self._held, []
        for connection, frame in held:
            if connection in self._clients:
                yield connection, frame
