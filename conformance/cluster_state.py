"""What is known of a partition that several nodes have: its state, and what a client wrote to it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class State:
    """One partition, as a node's Metadata reports it."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]


@dataclass
class Writes:
    """What a client wrote with acks=-1, one record after the other, and what it received."""

    sent: list[bytes] = field(default_factory=list[bytes])
    acknowledged: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """Value -> its offset."""
    errors: list[int | str] = field(default_factory=list[int | str])

    def value(self) -> bytes:
        """Another value to write."""
        self.sent.append(b"%d" % len(self.sent))
        return self.sent[-1]
