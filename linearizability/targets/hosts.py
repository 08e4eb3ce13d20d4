"""Where nodes and clients live: an address, and the words before a command that make it run there."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """A place for a node. On plain processes all nodes share 127.0.0.1; in network namespaces each has its own address."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    """Goes before the command: it must become the command (exec), so that signals reach it."""


def plain_hosts(count: int) -> Sequence[Host]:
    """Hosts without any network between them: no network fault is possible."""
    return [Host()] * count
