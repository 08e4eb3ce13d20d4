"""One client's socket with TLS: the handshake, then a connection like any other.

OpenSSL encrypts in this process, so that slices of files are read and not sent by `sendfile`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reference.node.listeners import of_listener
from reference.node.principals import ANONYMOUS, user
from reference.runtime.connection import BUFFERS, Connection, Loop, OutPart, SendableSlice, Server
from reference.runtime.tls import RenewedContext, listener_context
from reference.security.certificate_principals import DEFAULT_RULES, Rule, distinguished_name, map_name, mapping_rules

SLICE_PIECE_BYTES = 128 * 1024
"""Bytes of one read of a file."""

UNREAD_BYTES = 64 * 1024
"""Bytes that are read from a client whose handshake failed, and discarded."""

NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")
NOT_TLS_ALERT = bytes([21, 3, 3, 0, 2, 2, 70])
"""The fatal alert protocol_version (RFC 8446): OpenSSL sends no alert to a client that does not speak TLS."""

RECORD_BYTES = 16 * 1024
"""The largest TLS record: smaller parts of an answer are sent in one."""


class TlsServer(Server, Protocol):
    """A server that is informed of the principal of a TLS connection."""

    def on_open(self, connection: Connection, principal: str) -> None:
        """The handshake has ended; `principal` is by the client's certificate."""
        ...


class TlsConnection(Connection):
    """One accepted socket with TLS."""

    __slots__ = ("_ended", "_is_open", "_retried", "_rules")

    _socket: ssl.SSLSocket
    _server: TlsServer

    def __init__(
        self,
        loop: Loop,
        server: TlsServer,
        sock: ssl.SSLSocket,
        id: int,
        listener: str,
        peer: str,
        rules: Sequence[Rule],
    ) -> None:
        self._is_open = False
        self._ended = False
        """Whether the client has closed its side."""
        self._retried = False
        """Whether a send of the head of `_out` was begun: OpenSSL requires the same bytes again."""
        self._rules = rules
        super().__init__(loop, server, sock, id, listener, peer)

    # ---- the handshake

    def _shake_hands(self) -> None:
        if self.closed:
            return
        self.last_active_ms = self._server.monotonic_ms()
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return self._await_writable(False)
        except ssl.SSLWantWriteError:
            return self._await_writable(True)
        except ssl.SSLError as error:
            if error.reason in NOT_TLS:
                with contextlib.suppress(OSError):
                    socket.socket.send(self._socket, NOT_TLS_ALERT)
            return self.close(f"the TLS handshake failed: {_reason(error)}")
        except OSError as error:
            return self.close(f"the TLS handshake failed: {error.strerror or error}")
        self._await_writable(False)
        principal = self._principal()
        if principal is None:
            return self.close("ssl.principal.mapping.rules have none for the client's certificate")
        self._is_open = True
        self._server.on_open(self, principal)
        self._read_on()

    def _await_writable(self, wanted: bool) -> None:
        if wanted and not self._writing:
            self._loop.add_writer(self._socket.fileno(), self._shake_hands)
        elif self._writing and not wanted:
            self._loop.remove_writer(self._socket.fileno())
        self._writing = wanted

    def _principal(self) -> str | None:
        """The client's principal, by its certificate; None where no rule applies to it."""
        certificate = self._socket.getpeercert(binary_form=True)
        if certificate is None or self._socket.context.verify_mode is ssl.CERT_NONE:
            return ANONYMOUS
        try:
            name = map_name(self._rules, distinguished_name(certificate))
        except ValueError:  # a certificate that OpenSSL takes and the stricter library does not
            return None
        return None if name is None else user(name)

    # ---- receiving

    def _on_readable(self) -> None:
        if self.closed or not self._reading:
            return
        if not self._is_open:
            return self._shake_hands()
        super()._on_readable()
        self._read_on()

    def _resume(self) -> None:
        super()._resume()
        self._read_on()

    def _read_on(self) -> None:
        """Schedule a read of bytes that OpenSSL has decrypted already: they do not make the socket readable."""
        if not self.closed and self._reading and self._is_open and (self._socket.pending() or self._ended):
            self._loop.call_soon(self._on_readable)

    def _receive(self, buffer: memoryview) -> int:
        """Receive all available TLS records, up to the buffer's size: each read returns one."""
        filled = 0
        while filled < len(buffer):
            try:
                received = self._socket.recv_into(buffer[filled:])
            except ssl.SSLWantReadError:
                if filled == 0:
                    raise BlockingIOError from None
                break
            if received == 0:
                self._ended = True
                break
            filled += received
        return filled

    # ---- sending

    def _send_buffers(self, out: list[OutPart]) -> None:
        if not self._retried:
            _join_small(out)
        head = out[0]
        assert isinstance(head, BUFFERS)
        try:
            sent = self._socket.send(head)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._retried = True
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise OSError(errno.EPIPE, str(error)) from error
        self._retried = False
        if sent == len(head):
            del out[0]
        else:
            out[0] = memoryview(head)[sent:]
        self.last_active_ms = self._server.monotonic_ms()

    def _send_slice(self, fd: int, out: list[OutPart], piece: SendableSlice) -> None:
        """Read a piece of the slice, which is then sent as a buffer before the rest."""
        wanted = min(SLICE_PIECE_BYTES, len(piece) - self._slice_sent)
        data = os.pread(piece.fileno(), wanted, piece.position + self._slice_sent)
        if len(data) < wanted:
            raise OSError(errno.EIO, "the file is shorter than the slice")
        self._slice_sent += wanted
        if self._slice_sent == len(piece):
            self._slice_sent = 0
            piece.release()
            out[0] = data
        else:
            out.insert(0, data)

    # ---- closing

    def _close_socket(self) -> None:
        if self._is_open:
            with contextlib.suppress(OSError, ValueError):
                self._socket.unwrap()  # sends close_notify, without waiting for the client's
        else:
            with contextlib.suppress(OSError):
                # Unread bytes of the client would make the system drop the alert that reports the error.
                self._socket.shutdown(socket.SHUT_WR)
                socket.socket.recv_into(self._socket, bytearray(UNREAD_BYTES))
        self._socket.close()


def _join_small(out: list[OutPart]) -> None:
    """Put the first small buffers together, so that each is not a record of its own."""
    small: list[bytes | bytearray | memoryview] = []
    size = 0
    for part in out:
        if not isinstance(part, BUFFERS) or size + len(part) > RECORD_BYTES:
            break
        small.append(part)
        size += len(part)
    if len(small) > 1:
        out[: len(small)] = [b"".join(small)]


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """The common part of a TLS listener's connections."""

    name: str
    context: RenewedContext
    rules: Sequence[Rule]

    @classmethod
    def of(cls, properties: Mapping[str, str], listener: str, log: Callable[[str, str], None]) -> ListenerTls | None:
        """None for a listener without TLS. Errors: WrongSecurity."""
        context = listener_context(properties, listener, log)
        rules = of_listener(properties, listener).get("ssl.principal.mapping.rules", DEFAULT_RULES)
        return None if context is None else cls(listener, context, mapping_rules(rules))

    def connect(self, loop: Loop, server: TlsServer, sock: socket.socket, id: int, host: str) -> TlsConnection:
        """Begin the server's side of TLS on a socket that does not block."""
        secured = self.context.get().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return TlsConnection(loop, server, secured, id, self.name, host, self.rules)


REASONS = {
    "HTTP_REQUEST": "the client speaks HTTP",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "the client's versions of TLS are not allowed",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has shown no certificate, and ssl.client.auth=required",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is not trusted",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept this broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept this broker's certificate",
}
"""OpenSSL's reason -> what an operator needs to know."""


def _reason(error: ssl.SSLError) -> str:
    known = REASONS.get(error.reason or "")
    return f"{known} ({error.reason})" if known else str(error.reason or error)
