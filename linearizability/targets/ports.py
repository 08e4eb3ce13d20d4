"""Free ports that stay ours while a broker is down.

Not those that the operating system gives for port 0: they are of the range from which it also takes the near ends of
outgoing connections. While a broker is down and its clients try again and again, one of them would sooner or later take
the broker's own port for its near end, and even connect to itself.
"""

import random
import socket
from contextlib import closing
from pathlib import Path

LOWEST = 11_000
ATTEMPTS = 200


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Different ports on which no process listens at the moment, below the range of outgoing connections."""
    highest = _first_outgoing_port() - 1
    draw = random.Random()
    found: list[int] = []
    for _ in range(ATTEMPTS):
        port = draw.randint(LOWEST, highest)
        if port not in found and _is_free(host, port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no {count} free ports were found between {LOWEST} and {highest}")


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
