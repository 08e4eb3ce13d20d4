"""A small blocking client that sends one request after another, with a time limit: to check and inspect nodes.

    with Wire.connect("127.0.0.1", 9092, timeout_s=5) as wire:
        metadata = wire.call(MetadataRequest(topics=None))

By default it uses the highest version of each API that both sides support.
"""

import itertools
import socket
import struct
import time
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from linearizability.targets.addresses import UNREACHABLE
from reference.protocol.apis import APIS
from reference.protocol.codec import CodecError
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.schema import Message

CLIENT_ID = "tidegauge"
MAX_RESPONSE_BYTES = 256 << 20
FIRST_FLEXIBLE = 3
NEWER = range(FIRST_FLEXIBLE, ApiVersionsRequest.VERSIONS.highest + 1)
"""The versions of ApiVersions to try where v0 has no readable response."""
NAMED = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
"""The ApiVersions request from its first flexible version on, which must name the client (KIP-511)."""


BEFORE_VERSIONS = {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0), 8: (0, 1), 9: (0, 1), 10: (0, 0)}
"""The versions of a Kafka that closes the connection on ApiVersions (0.8.2; KIP-35 came with 0.10)."""


class WireError(Exception):
    """No connection, no response in time, or a response that cannot be decoded."""


class WireClosed(WireError):
    """The other side closed the connection."""


class Wire:
    """One connection to a broker."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self._socket = connection
        self._peer = connection.getpeername()[:2]
        self._timeout_s = timeout_s
        self._numbers = itertools.count(1)
        self._versions: dict[int, tuple[int, int]] | None = None
        self.reports_versions = True
        """False once the broker has proved to be older than ApiVersions."""

    @classmethod
    def connect(cls, host: str, port: int, *, timeout_s: float = 10.0) -> Self:
        """Connect to a broker. Errors: WireError."""
        try:
            connection = socket.create_connection((host, port), timeout=timeout_s)
        except UNREACHABLE as error:
            raise WireError(f"{host}:{port}: {error}") from error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if connection.getsockname() == connection.getpeername():
            connection.close()
            raise WireError(f"{host}:{port}: no node listens there (the connection connected to itself)")
        return cls(connection, timeout_s)

    def call(self, request: Message, version: int | None = None, *, timeout_s: float | None = None) -> Any:
        """Send a request and return its response. Errors: WireError; ValueError when both sides have no version in common."""
        key = request.KEY
        chosen = self.version_of(type(request)) if version is None else version
        number = next(self._numbers)
        until = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        try:
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            self._socket.sendall(encode_request(key, chosen, number, CLIENT_ID, request))
            (size,) = struct.unpack(">i", self._take(4, until))
            if not 0 <= size <= MAX_RESPONSE_BYTES:
                raise WireError(f"{APIS[key].name}: {announced(size)}")
            correlation, answer = decode_response(key, chosen, self._take(size, until))
        except (OSError, CodecError) as error:
            kind = WireClosed if isinstance(error, ConnectionResetError) else WireError
            raise kind(f"{APIS[key].name}: {str(error) or type(error).__name__}") from error
        if correlation != number:
            raise WireError(f"{APIS[key].name}: the answer belongs to request {correlation}, not {number}")
        return answer

    def version_of(self, request: type[Message]) -> int:
        """The highest version that both sides support. Errors: ValueError where there is none; WireError."""
        lowest, highest = self.versions().get(request.KEY, (0, -1))
        chosen = min(highest, request.VERSIONS.highest)
        if chosen < max(lowest, request.VERSIONS.lowest):
            raise ValueError(
                f"the broker serves {APIS[request.KEY].name} {lowest} to {highest}: none that is known here"
            )
        return chosen

    def versions(self) -> dict[int, tuple[int, int]]:
        """The broker's advertised versions: API key -> lowest and highest. Errors: WireError."""
        if self._versions is None:
            try:
                self._versions = self._advertised(0)
            except WireError as error:
                if isinstance(error.__cause__, TimeoutError):
                    raise
                self._versions = self._versions_otherwise(error)
        return self._versions

    def _advertised(self, version: int) -> dict[int, tuple[int, int]]:
        answer = self.call(NAMED if version >= FIRST_FLEXIBLE else ApiVersionsRequest(), version)
        if answer.error_code != ErrorCode.NONE:
            raise WireError(f"ApiVersions: error {answer.error_code}")
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _versions_otherwise(self, error: WireError) -> dict[int, tuple[int, int]]:
        """The versions of a broker without a readable response to v0, over new connections. Errors: the given one.

        Some brokers support only newer versions of ApiVersions. One that closes the connection may be older than ApiVersions.
        """
        ways = [self._versions_of_old] if isinstance(error, WireClosed) else []
        for way in [*ways, *(partial(self._advertised, version) for version in NEWER)]:
            with suppress(WireError):
                self._connect_again()
                return way()
        raise error

    def _connect_again(self) -> None:
        host, port = self._peer
        with self._socket:
            self._socket = Wire.connect(host, port, timeout_s=self._timeout_s)._socket

    def _versions_of_old(self) -> dict[int, tuple[int, int]]:
        """The versions of a broker that closes the connection on ApiVersions, but answers Metadata v0. Errors: WireError."""
        self.call(MetadataRequest(topics=[]), 0)
        self.reports_versions = False
        return BEFORE_VERSIONS

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, count: int, until: float) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("no answer in time")
            self._socket.settimeout(left_s)
            part = self._socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise ConnectionResetError("the connection was closed")
            parts += part
        return bytes(parts)


def answers(host: str, port: int, *, timeout_s: float = 2.0) -> bool:
    """Whether a broker at the address reports its versions, or proves to be older than ApiVersions."""
    return not silence(host, port, timeout_s=timeout_s)


def silence(host: str, port: int, *, timeout_s: float = 2.0) -> str:
    """Why no broker answers at the address; empty where one does."""
    try:
        with Wire.connect(host, port, timeout_s=timeout_s) as wire:
            return "" if wire.versions() else "ApiVersions: no API is served"
    except WireError as error:
        return str(error)


def known_brokers(host: str, port: int, *, timeout_s: float = 2.0) -> set[int]:
    """The ids of the brokers that this one lists in Metadata; empty where it does not answer."""
    try:
        return {broker.node_id for broker in listed_brokers(host, port, timeout_s=timeout_s)}
    except (WireError, ValueError):
        return set()


def listed_brokers(host: str, port: int, *, timeout_s: float = 10.0) -> list[Any]:
    """The brokers that this one lists in Metadata. Errors: WireError; ValueError where both sides have no version in common.

    Uses the lowest version that can request no topics, because some other brokers fail in newer ones.
    """
    with Wire.connect(host, port, timeout_s=timeout_s) as wire:
        lowest, highest = wire.versions().get(MetadataRequest.KEY, (0, -1))
        version = max(lowest, min(highest, 1))
        if version > min(highest, MetadataRequest.VERSIONS.highest):
            raise ValueError(f"the broker serves Metadata {lowest} to {highest}: none that is known here")
        try:
            return wire.call(MetadataRequest(topics=[]), version).brokers
        except WireClosed as error:
            if not wire.reports_versions:
                raise
            raise WireError(
                f"{error}, after it answered ApiVersions: does this listener want SASL (--client-config)?"
            ) from error


def announced(size: int) -> str:
    """An explanation of four bytes that should be a response's size, and cannot be."""
    first = size.to_bytes(4, "big", signed=True)
    if first == b"HTTP":
        return "an HTTP server answers, and no broker"
    if first[:2] in (b"\x15\x03", b"\x16\x03"):
        return "the listener speaks TLS: --client-config says how to reach a secured broker"
    return f"an answer that announces {size} bytes"
