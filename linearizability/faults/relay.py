"""A bad line between two network interfaces: `python -m linearizability.faults.relay NEAR FAR DELAY_MS JITTER_MS LOSS`.

It takes every frame that arrives at one interface and sends it on at the other, late, or not at all; the order of each
direction stays. It prints `ready` when it has both ends, and runs until a signal. A frame carries the kernel's note on checksum
and segmentation with it (`PACKET_VNET_HDR`), for the interfaces leave both to each other: a burst of TCP is one frame
here, and is lost or kept as a whole. Source: packet(7); linux/if_packet.h.
"""

import heapq
import itertools
import random
import selectors
import socket
import sys
import time
from contextlib import suppress

ALL_PROTOCOLS = 0x0003
SOL_PACKET = 263
PACKET_VNET_HDR = 15
PACKET_IGNORE_OUTGOING = 23
LONGEST_FRAME_BYTES = 1 << 17
BUFFER_BYTES = 8 << 20
BURST = 64
"""Frames that are read before those are sent whose time has come."""
MILLISECONDS = 1000.0
IDLE_S = 1.0


def open_end(interface: str) -> socket.socket:
    """A socket that receives all frames of an interface, and sends there. Errors: OSError."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    end.bind((interface, ALL_PROTOCOLS))
    end.setblocking(False)
    return end


class Relay:
    """Both directions of one line."""

    def __init__(self, near: str, far: str, delay_s: float, jitter_s: float, loss: float) -> None:
        one, other = open_end(near), open_end(far)
        self.opposite = {one: other, other: one}
        self.delay_s = delay_s
        self.jitter_s = jitter_s
        self.loss = loss
        self._chance = random.Random()
        self._due: list[tuple[float, int, socket.socket, bytes]] = []
        self._last = dict.fromkeys(self.opposite, 0.0)
        self._numbers = itertools.count()

    def run(self) -> None:
        """Relay frames until a signal."""
        with selectors.DefaultSelector() as selector:
            for end in self.opposite:
                selector.register(end, selectors.EVENT_READ)
            while True:
                wait_s = self._due[0][0] - time.monotonic() if self._due else IDLE_S
                for key, _ in selector.select(max(0.0, wait_s)):
                    assert isinstance(key.fileobj, socket.socket)
                    self._take(key.fileobj)
                self._send()

    def _take(self, end: socket.socket) -> None:
        for _ in range(BURST):
            try:
                frame = end.recv(LONGEST_FRAME_BYTES)
            except BlockingIOError:
                return
            if self._chance.random() < self.loss:
                continue
            at = max(self._last[end], time.monotonic() + self.delay_s + self._chance.uniform(0, self.jitter_s))
            self._last[end] = at
            heapq.heappush(self._due, (at, next(self._numbers), self.opposite[end], frame))

    def _send(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(self._due)
            with suppress(OSError):  # a full queue loses the frame, as queues do
                end.send(frame)


def main(arguments: list[str]) -> None:
    near, far, delay_ms, jitter_ms, loss = arguments
    relay = Relay(near, far, float(delay_ms) / MILLISECONDS, float(jitter_ms) / MILLISECONDS, float(loss))
    print("ready", flush=True)
    relay.run()


if __name__ == "__main__":
    main(sys.argv[1:])
