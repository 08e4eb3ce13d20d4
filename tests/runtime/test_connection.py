"""A connection's frames, whatever pieces they come in, and its answers, however slowly they are read."""

import asyncio
import os
import socket
import struct
import tempfile
from collections.abc import Callable
from typing import Any, cast

import pytest

from reference.runtime.connection import LEAST_FRAME_BUFFER, MAX_GATHERED_BYTES, Connection
from reference.runtime.frame_buffers import MAX_KEPT, MAX_KEPT_BYTES, UNIT_BYTES, FrameBuffers


class EchoServer:
    """Answers each frame with its own bytes; `hold` keeps frames unanswered until `release` is called."""

    def __init__(self, max_request_bytes: int = 10_000_000) -> None:
        self.frame_buffers = FrameBuffers(4096)
        self.max_request_bytes = max_request_bytes
        self.frames: list[bytes] = []
        self.closed: list[str] = []
        self.hold = False
        self.hold_from = 1_000_000
        """How many frames are answered at most."""

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        if not self.hold and len(self.frames) <= self.hold_from:
            connection.respond([framed(bytes(frame))])

    def on_closed(self, connection: Connection, reason: str) -> None:
        self.closed.append(reason)

    def monotonic_ms(self) -> int:
        return 0


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.001)


def run(
    test: Callable[[EchoServer, Connection, socket.socket], object], server: EchoServer | None = None
) -> EchoServer:
    """Run an async test with a connection and the client's end of it."""
    server = server or EchoServer()

    async def body() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        connection = Connection(asyncio.get_running_loop(), server, ours, 1, "PLAINTEXT", "test")
        try:
            await test(server, connection, theirs)  # type: ignore[misc]
        finally:
            connection.close("the test is over")
            theirs.close()

    asyncio.run(body())
    return server


async def receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    async with asyncio.timeout(20):
        while len(data) < size:
            piece = await asyncio.get_running_loop().sock_recv(sock, size - len(data))
            if not piece:
                break
            data += piece
    return data


def test_one_byte_at_a_time() -> None:
    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        for byte in framed(b"hello"):
            await asyncio.get_running_loop().sock_sendall(client, bytes([byte]))
            await asyncio.sleep(0)
        assert await receive(client, 9) == framed(b"hello")

    run(test)


@pytest.mark.parametrize("size", [0, 1, 4091, 4092, 4093, 5000, LEAST_FRAME_BUFFER, LEAST_FRAME_BUFFER * 90 + 3])
def test_frames_of_every_size(size: int) -> None:
    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        data = os.urandom(size)
        sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(client, framed(data) + framed(b"next")))
        assert await receive(client, size + 12) == framed(data) + framed(b"next")
        await sending

    run(test)


def test_the_next_large_frame_gets_the_buffer_of_the_last() -> None:
    buffers = set[int]()

    class Noting(EchoServer):
        def on_frame(self, connection: Connection, frame: memoryview) -> None:
            buffers.add(id(frame.obj))
            super().on_frame(connection, frame)

    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        for size in (200_000, 200_001, 199_000, 200_002):
            data = os.urandom(size)
            sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(client, framed(data)))
            assert await receive(client, size + 4) == framed(data)
            await sending

    run(test, Noting())
    assert len(buffers) == 1


def test_few_buffers_of_a_bounded_size_are_kept() -> None:
    buffers = FrameBuffers()
    small, large, huge = buffers.take(UNIT_BYTES - 1), buffers.take(UNIT_BYTES + 1), buffers.take(MAX_KEPT_BYTES + 1)
    assert (len(small), len(large)) == (UNIT_BYTES - 1, 2 * UNIT_BYTES)
    for buffer in (small, huge, large[7:9]):
        buffers.give(buffer)
    assert buffers.take(UNIT_BYTES - 1).obj is not small.obj and buffers.take(MAX_KEPT_BYTES + 1).obj is not huge.obj
    assert buffers.take(2 * UNIT_BYTES - 1).obj is large.obj
    assert buffers.take(UNIT_BYTES + 1).obj is not large.obj
    kept = [buffers.take(UNIT_BYTES) for _ in range(MAX_KEPT + 1)]
    for buffer in kept:
        buffers.give(buffer)
    again = [buffers.take(UNIT_BYTES).obj for _ in range(MAX_KEPT + 1)]
    assert sum(any(each is buffer.obj for buffer in kept) for each in again) == MAX_KEPT


def test_many_frames_in_one_piece_are_answered_in_order() -> None:
    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        frames = b"".join(framed(b"%d" % number) for number in range(500))
        await asyncio.get_running_loop().sock_sendall(client, frames)
        assert await receive(client, len(frames)) == frames

    run(test)


class CountingSocket(socket.socket):
    """Counts the calls of `send`."""

    sends = 0

    def send(self, *arguments: Any) -> int:  # type: ignore[override]
        self.sends += 1
        return super().send(*arguments)

    def sendmsg(self, *arguments: Any) -> int:  # type: ignore[override]
        self.sends += 1
        return super().sendmsg(*arguments)


def counted(connection: Connection) -> CountingSocket:
    """The connection's socket, from now on with counting."""
    before = connection._socket
    connection._socket = CountingSocket(before.family, before.type, 0, before.detach())
    return connection._socket


def test_requests_that_come_in_one_piece_are_answered_in_one_piece() -> None:
    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        sock = counted(connection)
        frames = b"".join(framed(b"%d" % number) for number in range(20))
        await asyncio.get_running_loop().sock_sendall(client, frames + framed(b"half")[:5])
        assert await receive(client, len(frames)) == frames
        assert sock.sends == 1 and len(server.frames) == 20

    run(test)


def test_answers_that_are_gathered_have_a_limit() -> None:
    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        sock = counted(connection)
        frame = framed(bytes(MAX_GATHERED_BYTES // 2))
        server.frame_buffers = FrameBuffers(1 << 20)
        await asyncio.get_running_loop().sock_sendall(client, frame * 3)
        assert await receive(client, 3 * len(frame)) == frame * 3
        assert sock.sends >= 2

    run(test)


def test_what_was_answered_is_sent_before_a_bad_request_closes_the_connection() -> None:
    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        good = framed(b"one") + framed(b"two")
        await asyncio.get_running_loop().sock_sendall(client, good + struct.pack(">i", -5) + b"more")
        assert await receive(client, len(good) + 1) == good
        assert connection.closed

    run(test)


def test_gathered_answers_do_not_wait_for_a_parked_one() -> None:
    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        server.hold_from = 2
        await asyncio.get_running_loop().sock_sendall(client, b"".join(framed(b"%d" % number) for number in range(5)))
        assert await receive(client, 10) == framed(b"0") + framed(b"1")
        assert server.frames == [b"0", b"1", b"2"] and connection.busy
        server.hold_from = 1000
        connection.respond([framed(b"2")])
        assert await receive(client, 15) == framed(b"2") + framed(b"3") + framed(b"4")
        assert not connection.busy

    run(test)


def test_the_next_request_waits_for_the_answer_before() -> None:
    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        server.hold = True
        await asyncio.get_running_loop().sock_sendall(client, framed(b"a") + framed(b"b") + framed(b"c"))
        await eventually(lambda: server.frames == [b"a"])
        await asyncio.sleep(0.01)
        assert server.frames == [b"a"]
        connection.respond([framed(b"A")])
        await eventually(lambda: server.frames == [b"a", b"b"])
        connection.respond(None)
        await eventually(lambda: server.frames == [b"a", b"b", b"c"])
        server.hold = False
        connection.respond([framed(b"C")])
        assert await receive(client, 10) == framed(b"A") + framed(b"C")
        await asyncio.get_running_loop().sock_sendall(client, framed(b"d"))
        assert await receive(client, 5) == framed(b"d")

    run(test)


def test_frames_that_wait_are_not_copied_again_for_each_answer() -> None:
    """A thousand small requests in flight would otherwise cost a thousand copies of what is left of them."""

    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        server.hold = True
        await asyncio.get_running_loop().sock_sendall(client, b"".join(framed(b"%d" % number) for number in range(300)))
        await eventually(lambda: len(server.frames) == 1)
        buffers: dict[int, object] = {}
        for number in range(300):
            await eventually(lambda number=number: len(server.frames) == number + 1)
            assert server.frames[-1] == b"%d" % number
            if connection._pending is not None:
                buffers[id(connection._pending.obj)] = connection._pending.obj
            connection.respond(None)
        assert len(buffers) <= 3

    run(test)


@pytest.mark.parametrize("size", [-1, -(1 << 31), 1001, (1 << 31) - 1])
def test_impossible_sizes_close_the_connection(size: int) -> None:
    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(client, struct.pack(">i", size) + b"x" * 10)
        assert await receive(client, 1) == b""

    server = run(test, EchoServer(max_request_bytes=1000))
    assert server.frames == []
    assert server.closed == [f"a request of {size} bytes, where 0 to 1000 are allowed"]


def test_an_announced_size_alone_costs_no_memory() -> None:
    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(client, struct.pack(">i", 9_000_000) + b"x" * 100)
        await eventually(lambda: connection._pending is not None and connection._filled == 104)
        await asyncio.get_running_loop().sock_sendall(client, b"y")
        await eventually(lambda: connection._filled == 105)
        assert connection._pending is not None
        assert len(connection._pending) <= LEAST_FRAME_BUFFER

    run(test)


class Slice:
    """A slice of a temporary file."""

    def __init__(self, data: bytes) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 -- open until nothing refers to it, as a slice's file is
        self._file.write(b"before" + data)
        self._file.flush()
        self.position = 6
        self.length = len(data)
        self.released = 0

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return os.pread(self.fileno(), self.length, self.position)

    def fileno(self) -> int:
        return self._file.fileno()

    def release(self) -> None:
        self.released += 1


def test_slices_of_files_reach_a_slow_reader_whole_and_are_released() -> None:
    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        server.hold = True
        data = os.urandom(3_000_000)
        pieces = [Slice(data), Slice(b"small"), Slice(b"")]
        await asyncio.get_running_loop().sock_sendall(client, framed(b"a"))
        await eventually(lambda: server.frames == [b"a"])
        connection.respond([b"head", pieces[0], b"between", pieces[1], pieces[2], b"tail"])
        wanted = b"head" + data + b"between" + b"small" + b"tail"
        assert await receive(client, len(wanted)) == wanted
        assert [piece.released for piece in pieces] == [1, 1, 1]

    run(test)


def test_a_small_answer_goes_out_in_one_piece_with_its_slices() -> None:
    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        server.hold = True
        sock = counted(connection)
        await asyncio.get_running_loop().sock_sendall(client, framed(b"a"))
        await eventually(lambda: server.frames == [b"a"])
        pieces = [Slice(b"one"), Slice(b"two")]
        connection.respond([b"head", pieces[0], b"between", pieces[1], b"tail"])
        assert await receive(client, 21) == b"headonebetweentwotail"
        assert sock.sends == 1 and [piece.released for piece in pieces] == [1, 1]

    run(test)


def test_a_slice_of_a_file_that_has_become_shorter_closes_the_connection() -> None:
    piece = Slice(b"short")
    piece.length += 1

    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        server.hold = True
        await asyncio.get_running_loop().sock_sendall(client, framed(b"a"))
        await eventually(lambda: server.frames == [b"a"])
        connection.respond([b"head", piece])
        assert await receive(client, 1) == b"" and connection.closed

    run(test)
    assert piece.released == 1


class CountingLoop:
    """Counts how often the event loop is asked to look at a socket, or not to."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        self.calls += name in ("add_reader", "remove_reader")
        return getattr(self.loop, name)


def test_a_client_that_waits_for_its_answer_costs_no_call_of_the_event_loop() -> None:
    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        server.hold = True
        loop = CountingLoop()
        connection._loop = cast(Any, loop)
        for number in range(10):
            await asyncio.get_running_loop().sock_sendall(client, framed(b"%d" % number))
            await eventually(lambda: connection.busy)
            connection.respond([framed(b"%d" % number)])
            assert await receive(client, 5) == framed(b"%d" % number)
        assert loop.calls == 0

    run(test)


def test_slices_are_released_when_the_client_goes() -> None:
    pieces = [Slice(os.urandom(3_000_000)), Slice(b"small")]

    async def test(server: EchoServer, connection: Connection, client: socket.socket) -> None:
        server.hold = True
        await asyncio.get_running_loop().sock_sendall(client, framed(b"a"))
        await eventually(lambda: server.frames == [b"a"])
        connection.respond([*pieces])
        client.close()
        await eventually(lambda: connection.closed)

    run(test)
    assert [piece.released for piece in pieces] == [1, 1]
