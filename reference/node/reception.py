"""Where the frames of clients come in: each is one request, which goes to its handler or to the active controller."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping

from reference.node import metadata
from reference.node.apis import API_VERSIONS, Api
from reference.node.configs import alter_loggers
from reference.node.context import Context
from reference.node.controller_channel import ControllerChannel
from reference.node.effects import Close, ConnectionId, Effect
from reference.node.loggers import Loggers
from reference.node.release import BROKER, CONTROLLER
from reference.node.requests import Client, Request
from reference.protocol.codec import CodecError, decode_from
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import UnknownVersion, decode_request
from reference.protocol.messages.header import RequestHeader
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.primitives import Buffer, TimestampMs
from reference.protocol.schema import Message

MAX_HELD = 10_000
"""Requests that are kept while the broker has not caught up with the metadata; more connections than these are closed."""


class Reception:
    """The clients that are connected, and what they ask."""

    def __init__(
        self,
        context: Context,
        channel: ControllerChannel,
        loggers: Loggers,
        apis: Mapping[str, Mapping[int, Api]],
        controller_listeners: Container[str],
        effects: Callable[[Effect], None],
    ) -> None:
        """`apis` are by kind of listener."""
        self.serves = False
        """Whether the replicas are what the metadata say, and brokers' requests are not held any more."""
        self._context = context
        self._channel = channel
        self._loggers = loggers
        self._apis = apis
        self._controller_listeners = controller_listeners
        self._emit = effects
        self._clients: dict[ConnectionId, Client] = {}
        self._held: list[tuple[ConnectionId, bytes]] = []

    def connected(self, connection: ConnectionId, host: str, listener: str, principal: str) -> None:
        self._clients[connection] = Client(connection, host, listener, principal=principal)

    def disconnected(self, connection: ConnectionId) -> None:
        self._clients.pop(connection, None)

    def receive(self, connection: ConnectionId, frame: Buffer, now: TimestampMs) -> Api | None:
        """The API of the request that was carried out; None where there was none."""
        client = self._clients[connection]
        kind = self._kind_of(client)
        if kind is BROKER and not self.serves:
            return self._hold(connection, frame)
        asked = self._read(client, self._apis[kind], frame)
        if asked is None:
            return None
        request, api, body = asked
        if isinstance(body, IncrementalAlterConfigsRequest):
            response = alter_loggers(self._context.node, self._loggers, body)
            if response is not None:
                self._context.responder.respond(request, response)
                return api
        if api.handler is not None:
            response = api.handler(request, body, now)
            if response is not None:
                self._context.responder.respond(request, response)
        elif kind is CONTROLLER:
            self._channel.decide_or_refuse(request, body, now)
        else:
            self._channel.carry(request, body, bytes(frame), now)
        return api

    def _kind_of(self, client: Client) -> str:
        """The kind of listener that a client is connected to."""
        return CONTROLLER if client.listener in self._controller_listeners else BROKER

    def _read(self, client: Client, apis: Mapping[int, Api], frame: Buffer) -> tuple[Request, Api, Message] | None:
        """A frame that is no request, or one that is not served, closes its connection (FRM-06 to FRM-09)."""
        try:
            header, form, view, position = decode_request(frame)
            key, version = header.request_api_key, header.request_api_version
            api = apis.get(key)
            if api is None or not api.lowest <= version <= api.highest:
                self._refuse(client, header, f"API {key} version {version} is not served")
                return None
            body, _ = decode_from(form.request, version, view, position)
        except UnknownVersion as error:
            self._refuse(client, error.header, str(error))
            return None
        except CodecError as error:
            self._emit(Close(client.connection, str(error)))
            return None
        return Request(client, key, version, header.correlation_id, header.client_id), api, body

    def _refuse(self, client: Client, header: RequestHeader | None, reason: str) -> None:
        """A version of ApiVersions too new is answered in version 0 with the list, so that the client can ask again (API-02,
        KIP-511); any other closes the connection."""
        if header is None or header.request_api_key != API_VERSIONS:
            self._emit(Close(client.connection, reason))
            return
        request = Request(client, API_VERSIONS, 0, header.correlation_id, None)
        apis = self._apis[self._kind_of(client)]
        response = metadata.api_versions_response(self._context.image, apis, request, ErrorCode.UNSUPPORTED_VERSION)
        self._context.responder.respond(request, response)

    def _hold(self, connection: ConnectionId, frame: Buffer) -> None:
        """Hold a request until the metadata is replayed: no earlier response would be right."""
        if len(self._held) < MAX_HELD:
            self._held.append((connection, bytes(frame)))
        else:
            self._emit(Close(connection, "too many requests before the broker has caught up"))

    def take_held(self) -> Iterator[tuple[ConnectionId, bytes]]:
        """The requests that were held, of clients that are still there."""
        held, self._held = self._held, []
        for connection, frame in held:
            if connection in self._clients:
                yield connection, frame
