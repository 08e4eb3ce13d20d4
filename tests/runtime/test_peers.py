"""Connections to other nodes over real sockets."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable

from reference.node.effects import Send
from reference.protocol.primitives import NodeId
from reference.runtime.peers import Channel, PeerConnections

WITHIN_S = 30
PEER = NodeId(2)


class Receiver:
    """Receives answers and failures."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[tuple[Channel, bytes | str]] = asyncio.Queue()

    def on_answer(self, channel: Channel, frame: bytes | bytearray | memoryview) -> None:
        self.received.put_nowait((channel, bytes(frame)))

    def on_unreachable(self, channel: Channel, reason: str) -> None:
        self.received.put_nowait((channel, reason))

    def on_refused(self, channel: Channel, reason: str) -> None:
        raise AssertionError(reason)

    async def next(self) -> tuple[Channel, bytes | str]:
        return await asyncio.wait_for(self.received.get(), WITHIN_S)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def listening(serve: Serve) -> tuple[asyncio.Server, int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def send(port: int, data: bytes, purpose: str = "quorum") -> Send:
    return Send(PEER, "127.0.0.1", port, purpose, framed(data))


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while head := await reader.read(7):
        writer.write(head)
        await writer.drain()
    writer.close()


def test_frames_go_out_in_order_and_answers_come_back_whole() -> None:
    async def story() -> None:
        receiver = Receiver()
        peers = PeerConnections(receiver, {}, lambda level, text: None)
        server, port = await listening(echo)
        large = bytes(range(256)) * 4096
        for data in (b"one", large, b"three"):
            peers.send(send(port, data))
        assert [await receiver.next() for _ in range(3)] == [
            ((2, "quorum"), each) for each in (b"one", large, b"three")
        ]
        peers.close()
        server.close()

    asyncio.run(story())


def test_an_unreachable_peer_is_reported_once_and_the_next_frame_tries_again() -> None:
    async def story() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            receiver = Receiver()
            peers = PeerConnections(receiver, {}, lambda level, text: None)
            peers.send(send(port, b"one"))
            peers.send(send(port, b"two"))
            channel, reason = await receiver.next()
            assert channel == (2, "quorum") and str(port) in str(reason)
            assert receiver.received.empty()
            peers.send(send(port, b"three"))
            assert (await receiver.next())[0] == (2, "quorum")

    asyncio.run(story())


def test_a_peer_that_hangs_up_or_sends_nonsense_is_reported_as_unreachable() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.close()

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(b"\xff\xff\xff\xff")
        await writer.drain()

    async def story(serve: Serve) -> None:
        receiver = Receiver()
        peers = PeerConnections(receiver, {}, lambda level, text: None)
        server, port = await listening(serve)
        peers.send(send(port, b"one"))
        channel, reason = await receiver.next()
        assert channel == (2, "quorum") and isinstance(reason, str)
        await asyncio.sleep(0)
        assert receiver.received.empty()
        server.close()

    for serve in (hang_up, nonsense):
        asyncio.run(story(serve))


def test_hanging_up_is_silent_and_each_purpose_has_a_connection() -> None:
    async def story() -> None:
        receiver = Receiver()
        peers = PeerConnections(receiver, {}, lambda level, text: None)
        server, port = await listening(echo)
        peers.send(send(port, b"one", purpose="fetch"))
        assert await receiver.next() == ((2, "fetch"), b"one")
        peers.hang_up((PEER, "fetch"))
        peers.hang_up((PEER, "never opened"))
        peers.send(send(port, b"two", purpose="quorum"))
        assert await receiver.next() == ((2, "quorum"), b"two")
        peers.close()
        server.close()

    asyncio.run(story())


def test_answers_in_pieces_of_any_size_do_not_mix_between_connections() -> None:
    """All connections receive into one buffer: what has come in part must be kept apart from what others receive."""
    chance = random.Random(18)
    purposes = ("fetch", "quorum", "controller")
    sizes = (0, 1, 3, 200, 16 * 1024, 70_000, 1 << 20, 1_300_000)
    answers = {each: [chance.randbytes(chance.choice(sizes)) for _ in range(25)] for each in purposes}

    async def in_pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = (await reader.readexactly(4 + 10))[4:].strip().decode()
        data = b"".join(map(framed, answers[asked]))
        position = 0
        while position < len(data):
            size = chance.choice((1, 3, 5, 1000, 61_000, 400_000))
            writer.write(data[position : position + size])
            position += size
            await writer.drain()
            await asyncio.sleep(0)

    async def story() -> None:
        receiver = Receiver()
        peers = PeerConnections(receiver, {}, lambda level, text: None)
        server, port = await listening(in_pieces)
        for each in purposes:
            peers.send(send(port, each.encode().ljust(10), purpose=each))
        received: dict[str, list[bytes | str]] = {each: [] for each in purposes}
        for _ in range(sum(map(len, answers.values()))):
            (_, purpose), answer = await receiver.next()
            received[purpose].append(answer)
        assert received == answers
        peers.close()
        server.close()

    asyncio.run(story())
