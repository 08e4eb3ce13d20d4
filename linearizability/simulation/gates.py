"""Gates on what passes between brokers: messages of one kind wait, or are lost, while everything else passes.

What waits, waits on the wire: behind it its connection's other messages in this direction, in order; and the end of the
connection, so that a message arrives late of a broker that is gone meanwhile. A gate is a fault of a schedule (`hold`,
`lose`), or the conductor of its score (`conducting/`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from linearizability.simulation.traffic import Message


class Gate(NamedTuple):
    """Which messages a fault is about."""

    kind: str
    asker: int | None
    """The broker that asks, or was to be answered; None for anybody."""
    asked: frozenset[int]
    """Whom it asks; anybody where none is named."""
    number: int
    """Of the fault, so that two alike are told apart."""

    def is_about(self, message: Message) -> bool:
        return (
            message.kind == self.kind
            and self.asker in (None, message.asker)
            and (not self.asked or message.asked in self.asked)
        )


class Doorkeeper(Protocol):
    """Somebody else who may hold messages up."""

    def holds(self, message: Message) -> bool: ...

    def loses(self, message: Message) -> bool: ...


class Gates:
    """All gates of one network."""

    def __init__(self) -> None:
        self.holding: list[Gate] = []
        self.losing: list[Gate] = []
        self.doorkeeper: Doorkeeper | None = None

    def holds(self, message: Message) -> bool:
        """Whether a message must wait."""
        if any(gate.is_about(message) for gate in self.holding):
            return True
        return self.doorkeeper is not None and self.doorkeeper.holds(message)

    def loses(self, message: Message) -> bool:
        """Whether a message is lost, with its connection; a gate that loses has then done its work."""
        for gate in self.losing:
            if gate.is_about(message):
                self.losing.remove(gate)
                return True
        return self.doorkeeper is not None and self.doorkeeper.loses(message)

    def open_all(self) -> None:
        self.holding.clear()
        self.losing.clear()
