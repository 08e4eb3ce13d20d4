"""The client's side of a session: requests and their answers, watches, and what its end means for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from reference.protocol.primitives import TimestampMs
from reference.zookeeper.operations import (
    NO_SESSION,
    Answered,
    AskZooKeeper,
    CloseSession,
    Code,
    ConnectionLost,
    GetChildren,
    GetData,
    OpenSession,
    Operation,
    Result,
    SessionConnected,
    SessionExpired,
    SessionId,
    Watched,
    ZooKeeperEffect,
    ZooKeeperEvent,
)

Then = Callable[[Result, TimestampMs], None]
OnWatch = Callable[[TimestampMs], None]


class Session:
    """One session after the other; `connected` and `expired` are called in each."""

    def __init__(self, emit: Callable[[ZooKeeperEffect], None]) -> None:
        self.id: SessionId = NO_SESSION
        self.is_connected = False
        self.connections = 0
        """How many there were: watches are those of the last."""
        self.connected: Callable[[TimestampMs], None] = lambda now: None
        """Called when a connection stands again: watches are gone, and everything is to be read again."""
        self.expired: Callable[[TimestampMs], None] = lambda now: None
        self._emit = emit
        self._next = 0
        self._open: dict[int, Then] = {}
        self._watches: dict[tuple[str, bool], OnWatch] = {}
        """By path, and whether the children are watched."""

    def open(self) -> None:
        self._emit(OpenSession())

    def close(self) -> None:
        """A clean end."""
        self._emit(CloseSession())

    def ask(self, operation: Operation, then: Then, now: TimestampMs, watch: OnWatch | None = None) -> None:
        """Ask; without a connection the answer is CONNECTION_LOSS, and comes before this returns."""
        if not self.is_connected:
            then(Result(Code.CONNECTION_LOSS), now)
            return
        if watch is not None and isinstance(operation, GetData | GetChildren):
            self._watches[operation.path, isinstance(operation, GetChildren)] = watch
        self._next += 1
        self._open[self._next] = then
        self._emit(AskZooKeeper(self._next, operation))

    def ask_all(
        self,
        operations: list[Operation],
        then: Callable[[list[Result], TimestampMs], None],
        now: TimestampMs,
        watches: Sequence[OnWatch | None] = (),
    ) -> None:
        """Ask all at once; `then` gets the answers in their order when all have come. `watches` are one for each, or none."""
        results: list[Result] = []

        def take(result: Result, at: TimestampMs) -> None:
            results.append(result)
            if len(results) == len(operations):
                then(results, at)

        if not operations:
            then([], now)
        for each, watch in zip_longest(operations, watches):
            self.ask(each, take, now, watch)

    def take(self, event: ZooKeeperEvent, now: TimestampMs) -> None:
        """Something has come from ZooKeeper."""
        match event:
            case SessionConnected(session):
                self.id, self.is_connected = session, True
                self.connections += 1
                self.connected(now)
            case ConnectionLost():
                self._lose(Code.CONNECTION_LOSS, now)
            case SessionExpired():
                self.id = NO_SESSION
                self._lose(Code.SESSION_EXPIRED, now)
                self.expired(now)
            case Answered(number, result):
                then = self._open.pop(number, None)
                if then is not None:
                    then(result, now)
            case Watched(path):
                for key in ((path, False), (path, True)):
                    watch = self._watches.pop(key, None)
                    if watch is not None:
                        watch(now)

    def _lose(self, code: Code, now: TimestampMs) -> None:
        self.is_connected = False
        self._watches.clear()
        waiting, self._open = self._open, {}
        for then in waiting.values():
            then(Result(code), now)
