"""Gates on the messages between brokers: messages of one kind wait, or are lost, and all others pass.

A message that waits also delays the later messages of its connection in this direction, in order, and the connection's end:
so it may arrive after its sender is gone. A gate is a fault of a schedule (`hold`, `lose`). Besides them a schedule's driver
may be the filter.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from linearizability.simulation.traffic import Message


class Gate(NamedTuple):
    """The messages that a fault holds or loses."""

    kind: str
    asker: int | None
    """The broker that sent the request; None for any."""
    asked: frozenset[int]
    """The brokers that it sent the request to; any where none is named."""
    number: int
    """Of the fault, so that two equal ones differ."""
    before_us: int | None = None
    """Only messages that were sent before this; None for all."""

    def is_about(self, message: Message) -> bool:
        return (
            message.kind == self.kind
            and self.asker in (None, message.asker)
            and (not self.asked or message.asked in self.asked)
            and (self.before_us is None or message.since_us < self.before_us)
        )


class MessageFilter(Protocol):
    """A second source of decisions to hold or lose messages."""

    def holds(self, message: Message) -> bool: ...

    def loses(self, message: Message) -> bool: ...


class Gates:
    """All gates of one network."""

    def __init__(self) -> None:
        self.holding: list[Gate] = []
        self.losing: list[Gate] = []
        self.filter: MessageFilter | None = None

    def holds(self, message: Message) -> bool:
        """Whether a message must wait."""
        if any(gate.is_about(message) for gate in self.holding):
            return True
        return self.filter is not None and self.filter.holds(message)

    def loses(self, message: Message) -> bool:
        """Whether a message is lost, with its connection; a gate that loses has then done its work."""
        for gate in self.losing:
            if gate.is_about(message):
                self.losing.remove(gate)
                return True
        return self.filter is not None and self.filter.loses(message)

    def open_all(self) -> None:
        self.holding.clear()
        self.losing.clear()
