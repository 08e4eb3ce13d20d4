"""One client's socket: frames in, responses out, one request at a time.

Kafka answers the requests of a connection in their order and takes the next one when the answer before it is written
(FRM-02). So a connection here is in one of three states: *reading* (it handles frames as they arrive), *asking* (the node has
one of its requests, perhaps delayed), *writing* (the socket accepts less than there is to send). It receives only in *reading*,
which bounds the memory of a client that sends much and reads nothing. It unregisters from the event loop only when bytes arrive
in another state: a client that waits for its response costs no such call. Responses to requests that arrived together are sent
together.

Bytes are received into one buffer that all connections share; a frame that is whole in there is handled in place. A
larger frame moves into a buffer of its own that grows with what really arrives, never to more than four times of it (eight,
where one is at hand): a size field alone costs nothing. Slices of files go out by `sendfile`, but those of a small answer are
read, and it goes out in one piece: a call and a packet for each part cost more.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable
from typing import Protocol

from reference.protocol.buffers import copy_into
from reference.protocol.schema import FileSlice
from reference.runtime.frame_buffers import FrameBuffers

LEAST_FRAME_BUFFER = 16 * 1024
"""The least buffer of a frame that has arrived in part."""

MAX_GATHERED_BYTES = 64 * 1024
"""Bytes of responses that may wait while requests that arrived with theirs are handled; above it they are sent."""

SMALL_ANSWER_BYTES = 32 * 1024
"""The largest response whose slices are read, to send it in one piece."""

MAX_SENDMSG_PARTS = 64
"""Buffers handed to one `sendmsg`; the system allows 1,024, short lists are cheaper to cut after a partial send."""


TLS_HANDSHAKE = 0x1603
"""A frame size with these first bytes is a TLS handshake, sent to a listener without TLS."""

MSG_MORE = getattr(socket, "MSG_MORE", 0x8000)
"""Linux's number, which PyPy has no name for."""

_SIZE = struct.Struct(">i")


class SendableSlice(FileSlice, Protocol):
    """A slice of a file that the runtime can send and must release."""

    position: int

    def read(self) -> bytes: ...
    def fileno(self) -> int: ...
    def release(self) -> None: ...


BUFFERS = (bytes, bytearray, memoryview)
OutPart = bytes | bytearray | memoryview | SendableSlice


class Loop(Protocol):
    """The part of asyncio's event loop that a connection needs."""

    def add_reader(self, fd: int, callback: Callable[[], None], /) -> None: ...
    def remove_reader(self, fd: int, /) -> bool: ...
    def add_writer(self, fd: int, callback: Callable[[], None], /) -> None: ...
    def remove_writer(self, fd: int, /) -> bool: ...
    def call_soon(self, callback: Callable[[], None], /) -> object: ...


class Server(Protocol):
    """The interface by which a connection reports to its server."""

    frame_buffers: FrameBuffers
    max_request_bytes: int

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """A complete request has arrived; its bytes are valid during the call only."""
        ...

    def on_closed(self, connection: Connection, reason: str) -> None: ...

    def monotonic_ms(self) -> int: ...


class Connection:
    """One accepted socket."""

    __slots__ = (
        "_asking", "_filled", "_gathered", "_gathering", "_loop", "_muted", "_out", "_pending", "_reading", "_server",
        "_slice_sent", "_socket", "_writing", "closed", "id", "last_active_ms", "listener", "max_request_bytes", "peer",
    )  # fmt: skip

    def __init__(self, loop: Loop, server: Server, sock: socket.socket, id: int, listener: str, peer: str) -> None:
        self._loop = loop
        self._server = server
        self._socket = sock
        self.id = id
        self.listener = listener
        self.peer = peer
        self.max_request_bytes = server.max_request_bytes
        self.closed = False
        self.last_active_ms = server.monotonic_ms()
        self._pending: memoryview | None = None
        """Bytes received and not yet handled: the beginning of a frame, or bytes that a busy connection could not handle."""
        self._filled = 0
        """Bytes of `_pending` that have been received."""
        self._out: list[OutPart] = []
        self._slice_sent = 0
        """Bytes of the slice at the head of `_out` that have been sent."""
        self._gathering = False
        """Whether another request has arrived already, so that the response can be sent with the next one."""
        self._gathered = 0
        """Bytes of the responses that wait for the next one."""
        self._asking = False
        self._muted = False
        """Whether nothing is read for a while: the client has used more than its quota."""
        self._reading = False
        self._writing = False
        self._resume()

    @property
    def busy(self) -> bool:
        """Whether a response is pending or not completely sent, or the client is muted."""
        return self._asking or bool(self._out) or self._muted

    # ---- receiving

    def _resume(self) -> None:
        if not self._reading and not self.closed:
            self._reading = True
            self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket.fileno())

    def _on_readable(self) -> None:
        if self.busy:
            return self._pause()
        pending = self._pending
        try:
            received = self._receive(self._server.frame_buffers.shared if pending is None else self._room(pending))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            return self.close(f"receive failed: {error.strerror}")
        if received == 0:
            return self.close("closed by the client")
        self.last_active_ms = self._server.monotonic_ms()
        if pending is None:
            self._take_frames(self._server.frame_buffers.shared[:received])
        else:
            self._filled += received
            self._take_pending()

    def _receive(self, buffer: memoryview) -> int:
        """Receive into the buffer; returns the number of bytes, 0 at the end. Errors: BlockingIOError for none yet, OSError."""
        return self._socket.recv_into(buffer)

    def _take_frames(self, data: memoryview) -> None:
        """Handle each whole frame in place; keep the rest."""
        position, end = 0, len(data)
        while end - position >= 4 and not (self._asking or self._writing or self._muted or self.closed):
            (size,) = _SIZE.unpack_from(data, position)
            if not self._acceptable(size):
                return
            after = position + 4 + size
            if after > end:
                break
            self._asking = True
            self._gathering = after < end
            self._server.on_frame(self, data[position + 4 : after])
            position = after
        if self._gathering:
            self._send_gathered()
        if self.closed:
            return
        if position < end:
            # The shared buffer is needed by others. A buffer of our own is kept as it is: copying the rest of it for each
            # frame that has to wait would cost a client with many small requests in flight the square of their number.
            rest = data[position:]
            self._pending = self._with_room(rest) if data.obj is self._server.frame_buffers.shared.obj else rest
            self._filled = end - position
            if self.busy:
                self._pause()

    def _acceptable(self, size: int) -> bool:
        if 0 <= size <= self.max_request_bytes:
            return True
        if size >> 16 == TLS_HANDSHAKE:
            self.close(f"the client speaks TLS, and the listener {self.listener} does not")
        else:
            self.close(f"a request of {size} bytes, where 0 to {self.max_request_bytes} are allowed")
        return False

    def _room(self, pending: memoryview) -> memoryview:
        """The buffer for the next bytes of the frame in `_pending`."""
        filled = self._filled
        if filled == len(pending):
            self._pending = self._with_room(pending)
            self._server.frame_buffers.give(pending)
            pending = self._pending
        return pending[filled : min(len(pending), _frame_end(pending[:filled]))]

    def _with_room(self, begun: memoryview) -> memoryview:
        """A copy with room for more of the frame that begins here: it grows with the received bytes, up to the frame's."""
        size = min(_frame_end(begun), max(LEAST_FRAME_BUFFER, 4 * len(begun)))
        grown = self._server.frame_buffers.take(max(size, len(begun)))
        copy_into(grown, begun)
        return grown

    def _take_pending(self) -> None:
        """Handle the frame in `_pending` when it is complete."""
        pending = self._pending
        assert pending is not None
        if self._filled < 4:
            return
        size = _SIZE.unpack_from(pending)[0]
        if self._acceptable(size) and self._filled >= 4 + size:
            self._take_own(pending[: self._filled])

    def _take_own(self, data: memoryview) -> None:
        """Handle the frames in the connection's own buffer, and give the buffer back when no frame is left in it."""
        self._pending = None
        self._take_frames(data)
        if self._pending is None or self._pending.obj is not data.obj:
            self._server.frame_buffers.give(data)

    # ---- sending

    def respond(self, parts: list[OutPart] | None) -> None:
        """Send the response to the current request (none for acks=0), and take the next request when it is written."""
        if self.closed:
            _release(parts or [])
            return
        self._asking = False
        size = sum(map(len, parts)) if parts else 0
        if parts:
            try:
                self._out += [_in_one_piece(parts, size)] if size <= SMALL_ANSWER_BYTES else parts
            except OSError as error:
                _release(parts)
                return self.close(f"an answer cannot be read: {error.strerror or error}")
        if self._gathering:
            self._gathered += size
            if self._gathered > MAX_GATHERED_BYTES:
                self._gathered = 0
                self._send()
            return
        if self._out:
            self._send()
        self._go_on_if_idle()

    def mute(self) -> None:
        """Take no request after the current one until `unmute`."""
        self._muted = True

    def unmute(self) -> None:
        self._muted = False
        self._go_on_if_idle()

    def _send_gathered(self) -> None:
        """Send the responses so far: no further whole frame has arrived, or none will be handled."""
        self._gathering, self._gathered = False, 0
        if self._out and not self._writing:
            self._send()

    def _go_on_if_idle(self) -> None:
        """Take the next request when the connection is not busy."""
        if self.busy or self.closed:
            return
        if self._pending is None:
            self._resume()
        else:
            self._loop.call_soon(self._continue)

    def _continue(self) -> None:
        """Handle bytes that were received and kept while the connection was busy."""
        if self.closed or self.busy or self._pending is None:
            return
        self._take_own(self._pending[: self._filled])
        if not self.busy:
            self._resume()

    def _send(self) -> None:
        """Send as much as the socket accepts now; the rest waits until the socket is writable."""
        fd = self._socket.fileno()
        out = self._out
        try:
            while out:
                head = out[0]
                if isinstance(head, BUFFERS):
                    self._send_buffers(out)
                else:
                    self._send_slice(fd, out, head)
        except (BlockingIOError, InterruptedError):
            if not self._writing:
                self._writing = True
                self._loop.add_writer(fd, self._on_writable)
            return
        except OSError as error:
            return self.close(f"send failed: {errno.errorcode.get(error.errno or 0, error)}")
        if self._writing:
            self._writing = False
            self._loop.remove_writer(fd)

    def _send_buffers(self, out: list[OutPart]) -> None:
        self.last_active_ms = self._server.monotonic_ms()
        if len(out) == 1 and isinstance(out[0], BUFFERS):
            sent = self._socket.send(out[0])
            out[:] = [] if sent == len(out[0]) else [memoryview(out[0])[sent:]]
            return
        buffers: list[bytes | bytearray | memoryview] = []
        for part in out:
            if not isinstance(part, BUFFERS) or len(buffers) == MAX_SENDMSG_PARTS:
                break
            buffers.append(part)
        more = MSG_MORE if len(buffers) < len(out) else 0
        sent = self._socket.send(buffers[0], more) if len(buffers) == 1 else self._socket.sendmsg(buffers, (), more)
        done = 0
        while done < len(buffers) and sent >= len(buffers[done]):
            sent -= len(buffers[done])
            done += 1
        del out[:done]
        if sent:
            out[0] = memoryview(buffers[done])[sent:]

    def _send_slice(self, fd: int, out: list[OutPart], piece: SendableSlice) -> None:
        size = len(piece)
        while self._slice_sent < size:
            sent = os.sendfile(fd, piece.fileno(), piece.position + self._slice_sent, size - self._slice_sent)
            if sent == 0:
                raise OSError(errno.EIO, "the file is shorter than the slice")
            self._slice_sent += sent
        self._slice_sent = 0
        piece.release()
        del out[0]
        self.last_active_ms = self._server.monotonic_ms()

    def _on_writable(self) -> None:
        self._send()
        self._go_on_if_idle()

    # ---- closing

    def close(self, reason: str) -> None:
        """Drop the connection; bytes that the socket does not accept at once are lost. Calling it twice is harmless."""
        if self._gathering:
            self._send_gathered()
        if self.closed:
            return
        self.closed = True
        self._pause()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket.fileno())
        _release(self._out)
        self._out = []
        self._pending = None
        self._close_socket()
        self._server.on_closed(self, reason)

    def _close_socket(self) -> None:
        self._socket.close()


def _frame_end(begun: memoryview) -> int:
    """Bytes up to the end of the frame that begins here; up to the end of its size where that is incomplete."""
    return 4 if len(begun) < 4 else 4 + _SIZE.unpack_from(begun)[0]


def _in_one_piece(parts: list[OutPart], size: int) -> bytes:
    """The bytes of an answer, its slices read and released. Errors: OSError."""
    whole = b"".join([part if isinstance(part, BUFFERS) else part.read() for part in parts])
    if len(whole) < size:
        raise OSError(errno.EIO, "the file is shorter than the slice")
    _release(parts)
    return whole


def _release(parts: list[OutPart]) -> None:
    for part in parts:
        if not isinstance(part, BUFFERS):
            part.release()
