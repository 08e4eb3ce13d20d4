"""A replicated partition as its clients see it: its state, and the outcomes of their writes."""

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
    """The records that a client wrote with acks=-1, one after the other, and their outcomes."""

    sent: list[bytes] = field(default_factory=list[bytes])
    acknowledged: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """Value -> the offset of its acknowledgement."""
    errors: list[int | str] = field(default_factory=list[int | str])

    def value(self) -> bytes:
        """The next value to write; recorded as sent."""
        self.sent.append(b"%d" % len(self.sent))
        return self.sent[-1]
