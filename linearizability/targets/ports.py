"""Free ports that remain ours while a broker is down.

Not ports that the operating system assigns for port 0: it takes the local ports of outgoing connections from the same range.
While a broker is down, a client that reconnects would sooner or later get the broker's port as its local port, and even
connect to itself.
"""

import fcntl
import os
import random
import socket
import tempfile
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

LOWEST = 11_000
BLOCK = 256
"""The number of ports that one process reserves: parallel processes use different blocks."""
ATTEMPTS = 200


class _Block:
    """Ports that this process has locked against others of the same user. They are used in turn, so that the port of a broker
    that is down is reused only after all others."""

    def __init__(self, first: int, lock: BinaryIO) -> None:
        self._first, self._lock = first, lock
        self.owner = os.getpid()
        self._given = 0

    def next(self) -> int:
        self._given += 1
        return self._first + (self._given - 1) % BLOCK


_block: _Block | None = None


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Different ports that are free at present, below the range of outgoing connections. Errors: OSError where too few are
    found."""
    highest = _first_outgoing_port() - 1
    block = _own_block(highest)
    draw = random.Random()
    found: list[int] = []
    for attempt in range(ATTEMPTS + count):
        port = block.next() if block is not None and attempt < BLOCK else draw.randint(LOWEST, highest)
        if port not in found and _is_free(host, port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no {count} free ports were found between {LOWEST} and {highest}")


def _own_block(highest: int) -> _Block | None:
    """The block of this process, which a child does not share; None where all are locked, or no lock file can be created."""
    global _block
    if _block is None or _block.owner != os.getpid():
        _block = _lock_block(highest)
    return _block


def _lock_block(highest: int) -> _Block | None:
    firsts = [*range(LOWEST, highest - BLOCK + 2, BLOCK)]
    random.Random().shuffle(firsts)
    folder = Path(tempfile.gettempdir()) / f"tidegauge-ports-{os.getuid()}"
    for first in firsts:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                return None  # another user created it
            lock = (folder / str(first)).open("ab")
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        return _Block(first, lock)
    return None


def _is_free(host: str, port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def _first_outgoing_port() -> int:
    try:
        return max(int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]), LOWEST + 1000)
    except (OSError, ValueError, IndexError):
        return 32_768
