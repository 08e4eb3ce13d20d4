"""Addresses that a broker advertises, and where they can be reached from here."""

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from linearizability.targets.errors import WrongTarget

REACHED_WITHIN_S = 5.0

UNREACHABLE = (OSError, OverflowError, UnicodeError)
"""What connecting raises; the last two where no such port or host can be, as a label of 70 letters."""


@dataclass(frozen=True, slots=True)
class AddressMap:
    """Advertised address -> reachable one: `HOST:PORT` of one listener, or `HOST` for all its ports."""

    pairs: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Of `HOST:PORT=HOST:PORT` and `HOST=HOST`. Errors: WrongTarget."""
        pairs: dict[str, str] = {}
        for text in texts:
            advertised, _, reachable = (part.strip() for part in text.partition("="))
            if not advertised or not reachable or _has_port(advertised) != _has_port(reachable):
                raise WrongTarget(f"{text!r} is no mapping: HOST:PORT=HOST:PORT or HOST=HOST is needed")
            if _has_port(reachable):
                parse_address(reachable)
            pairs[advertised] = reachable
        return cls(pairs)

    def reach(self, host: str, port: int) -> tuple[str, int]:
        """Where to connect for an advertised address: a listener's own entry, else its host's, else the address itself."""
        if mapped := self.pairs.get(f"{host}:{port}"):
            return parse_address(mapped)
        return self.pairs.get(host, host).strip("[]"), port

    def __or__(self, other: Self) -> Self:
        return type(self)({**self.pairs, **other.pairs})


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, `[host]:port` for IPv6. Errors: WrongTarget."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise WrongTarget(f"{text!r} is no address: HOST:PORT is needed")
    return host.strip("[]"), int(port)


def address_text(host: str, port: int) -> str:
    """What `parse_address` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def diagnosis(node: int, host: str, port: int, addresses: AddressMap) -> str:
    """Why the address that a node advertises cannot be reached from here, and what to do; empty where it can."""
    tried = addresses.reach(host, port)
    try:
        with socket.create_connection(tried, timeout=REACHED_WITHIN_S):
            return ""
    except UNREACHABLE as error:
        mapped = "" if tried == (host, port) else f" (mapped to {tried[0]}:{tried[1]})"
        return (
            f"node {node} advertises {host}:{port}{mapped}, which cannot be reached from here: "
            f"{getattr(error, 'strerror', None) or error}; use --map {host}:{port}=HOST:PORT, or change its advertised.listeners"
        )


def _has_port(text: str) -> bool:
    _, colon, port = text.rpartition(":")
    return bool(colon) and port.isdigit() and (text.startswith("[") or text.count(":") == 1)
