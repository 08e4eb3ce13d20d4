"""A request on its way through the node, and the ones that must wait."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Generic, Protocol, TypeVar

from reference.node.effects import Close, ConnectionId, Effect, Respond
from reference.protocol.codec import Part
from reference.protocol.frames import encode_response
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message
from reference.replication.partition import Partition


@dataclass(slots=True)
class Client:
    """A connection as the node knows it."""

    connection: ConnectionId
    host: str
    listener: str
    software: str = ""


@dataclass(slots=True)
class Request:
    """Who asks what; the answer goes back under the same correlation id."""

    client: Client
    key: int
    version: int
    correlation_id: int
    client_id: str | None


class Responder:
    """Answers requests: each answer is one effect."""

    def __init__(self, emit: Callable[[Effect], None]) -> None:
        self._emit = emit

    def respond(self, request: Request, response: Message) -> None:
        """Answer a request; an answer to a connection that is gone lets go of its slices."""
        parts = encode_response(request.key, request.version, request.correlation_id, response)
        self.respond_raw(request, parts)

    def respond_raw(self, request: Request, parts: list[Part] | None) -> None:
        """Answer with an encoded frame; None where the client expects no answer (acks=0)."""
        self._emit(Respond(request.client.connection, parts))

    def close(self, request: Request, reason: str) -> None:
        """Close the request's connection without an answer."""
        self._emit(Close(request.client.connection, reason))


AUTHORIZED_OPERATIONS = {
    "topic": 0b0000_1101_1111_1000,
    "group": 0b0000_1101_0100_1000,
    "cluster": 0b0001_1111_1111_1000,
}
"""The operations that a client may do, as bits: all that a resource has, for there is no authorizer."""


class Parked(Protocol):
    """A request that waits: for something to happen to one of its watch keys, or for its deadline."""

    @property
    def connection(self) -> ConnectionId: ...

    def try_complete(self, now: TimestampMs) -> bool:
        """Answer if it can be answered now; True when it was."""
        ...

    def expire(self, now: TimestampMs) -> None:
        """Answer with what there is: its time is over."""
        ...

    def abandon(self) -> None:
        """Its connection is gone: let go of what it holds."""
        ...


P = TypeVar("P", bound=Parked)


@dataclass(slots=True)
class _Waiting(Generic[P]):
    parked: P
    keys: tuple[Hashable, ...]
    deadline: TimestampMs
    number: int
    done: bool = False
    is_looking: bool = False
    """Whether it is being tried: what it does when it completes may wake it once more."""


class Purgatory(Generic[P]):
    """Requests that wait, by what they wait for and by deadline (DelayedOperationPurgatory).

    The order of completion is that of arrival, so that the same inputs give the same outputs.
    """

    def __init__(self) -> None:
        self._by_key: dict[Hashable, dict[int, _Waiting[P]]] = {}
        self._by_connection: dict[ConnectionId, _Waiting[P]] = {}
        self._deadlines: list[tuple[TimestampMs, int, _Waiting[P]]] = []
        self._numbers = count()
        self._internal = count(-2, -1)

    def internal(self) -> ConnectionId:
        """An id that no connection has, for a step of the node itself that waits."""
        return next(self._internal)

    def __len__(self) -> int:
        return len(self._by_connection)

    def park(self, parked: P, keys: Iterable[Hashable], deadline: TimestampMs) -> None:
        """Keep a request; a connection has at most one, for its next is not read before."""
        assert parked.connection not in self._by_connection, "a connection has one request at a time"
        waiting = _Waiting(parked, tuple(keys), deadline, next(self._numbers))
        for key in waiting.keys:
            self._by_key.setdefault(key, {})[waiting.number] = waiting
        self._by_connection[parked.connection] = waiting
        heapq.heappush(self._deadlines, (deadline, waiting.number, waiting))

    def wake(self, key: Hashable, now: TimestampMs) -> None:
        """Something happened to a key: the requests that watch it look again."""
        watching = self._by_key.get(key)
        if watching:
            for waiting in [*watching.values()]:
                if not waiting.done and not waiting.is_looking:
                    self._look(waiting, now)

    def _look(self, waiting: _Waiting[P], now: TimestampMs) -> None:
        waiting.is_looking = True
        if waiting.parked.try_complete(now):
            self._remove(waiting)
        waiting.is_looking = False

    def tick(self, now: TimestampMs) -> None:
        """Answer what has waited long enough."""
        while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][2].done):
            waiting = heapq.heappop(self._deadlines)[2]
            if not waiting.done:
                self._remove(waiting)
                waiting.parked.expire(now)

    def forget(self, connection: ConnectionId) -> None:
        """A connection closed."""
        waiting = self._by_connection.get(connection)
        if waiting is not None:
            self._remove(waiting)
            waiting.parked.abandon()

    def next_deadline(self) -> TimestampMs | None:
        while self._deadlines and self._deadlines[0][2].done:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _remove(self, waiting: _Waiting[P]) -> None:
        waiting.done = True
        self._by_connection.pop(waiting.parked.connection, None)
        for key in waiting.keys:
            watching = self._by_key.get(key)
            if watching is not None:
                watching.pop(waiting.number, None)
                if not watching:
                    del self._by_key[key]


class Purgatories:
    """The requests of one node that wait for its partitions."""

    def __init__(self) -> None:
        self.produces: Purgatory[Parked] = Purgatory()
        """Produce, DeleteRecords, markers, and steps of coordinators: they wait for commits."""
        self.fetches: Purgatory[Parked] = Purgatory()

    def wake(self, partition: Partition, now: TimestampMs) -> None:
        """Records, high watermark, ISR, log start or role of a partition have changed."""
        key = (partition.topic, partition.index)
        self.fetches.wake(key, now)
        self.produces.wake(key, now)
