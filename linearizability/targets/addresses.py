"""Addresses that a broker advertises, and the addresses under which this machine reaches them."""

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from linearizability.targets.errors import WrongTarget

REACHED_WITHIN_S = 5.0

UNREACHABLE = (OSError, OverflowError, UnicodeError)
"""The exceptions of a connection attempt; the last two for an impossible port or host, such as a label of 70 letters."""


@dataclass(frozen=True, slots=True)
class AddressMap:
    """Advertised address -> reachable one: `HOST:PORT` of one listener, or `HOST` for all its ports."""

    pairs: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Parse `HOST:PORT=HOST:PORT` and `HOST=HOST`. Errors: WrongTarget."""
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
        """The address to connect to for an advertised one: a listener's own entry, else its host's, else the address itself."""
        if mapped := self.pairs.get(f"{host}:{port}"):
            return parse_address(mapped)
        return self.pairs.get(host, host).strip("[]"), port

    def __or__(self, other: Self) -> Self:
        return type(self)({**self.pairs, **other.pairs})


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port`, or `[host]:port` for IPv6. Errors: WrongTarget."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise WrongTarget(f"{text!r} is no address: HOST:PORT is needed")
    return host.strip("[]"), int(port)


def address_text(host: str, port: int) -> str:
    """The text of an address, which `parse_address` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def diagnosis(node: int, host: str, port: int, addresses: AddressMap) -> str:
    """Why this machine cannot reach a node's advertised address, and the remedy; empty where it can."""
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
