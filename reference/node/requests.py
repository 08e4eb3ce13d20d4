"""Requests, their responses, and the purgatories of delayed requests."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Generic, Protocol, TypeVar

from reference.node.authentication import SaslSession
from reference.node.effects import Close, ConnectionId, Effect, Respond
from reference.node.principals import ANONYMOUS
from reference.protocol import codec
from reference.protocol.acls import Operation
from reference.protocol.frames import encode_response
from reference.protocol.primitives import NEVER, TimestampMs, TopicName
from reference.protocol.schema import Message
from reference.replication.partition import Partition


@dataclass(slots=True)
class Client:
    """A client's connection."""

    connection: ConnectionId
    host: str
    listener: str
    software: str = ""
    principal: str = ANONYMOUS
    """`TYPE:NAME`. For a forwarded request, host and principal are those of the original client."""
    sasl: SaslSession | None = None
    """Its authentication, on a listener with SASL."""
    by_token: bool = False
    """Whether it has authenticated by a delegation token."""


@dataclass(slots=True)
class Request:
    """A request with its connection and correlation id."""

    client: Client
    key: int
    version: int
    correlation_id: int
    client_id: str | None
    size: int = 0
    """Bytes of its frame."""
    amend: Callable[[Message], Message] | None = None
    """Applies access control to the response (`access.Admission.amend`)."""

    def amended(self, response: Message) -> Message:
        """The response after access control, which is applied once."""
        amend, self.amend = self.amend, None
        return response if amend is None else amend(response)


class Throttling(Protocol):
    """The interface to quotas (`quotas.Quotas`). Each method but `began` returns the milliseconds for which to mute the
    connection."""

    def began(self, request: Request) -> None: ...

    def throttle(self, request: Request, response: Message) -> int: ...

    def throttle_silent(self, request: Request) -> int: ...


class Responder:
    """Sends responses, each as one effect."""

    def __init__(self, emit: Callable[[Effect], None], quotas: Throttling | None = None) -> None:
        self._emit = emit
        self._quotas = quotas

    def began(self, request: Request) -> None:
        """Note a request that is being handled."""
        if self._quotas is not None:
            self._quotas.began(request)

    def respond(self, request: Request, response: Message) -> None:
        """Send a response. The driver releases its file slices if the connection is closed."""
        response = request.amended(response)
        muted_ms = self._quotas.throttle(request, response) if self._quotas is not None else 0
        parts = encode_response(request.key, request.version, request.correlation_id, response)
        self._emit(Respond(request.client.connection, parts, muted_ms))

    def respond_raw(self, request: Request, parts: list[codec.Part], muted_ms: int = 0) -> None:
        """Send an encoded response."""
        self._emit(Respond(request.client.connection, parts, muted_ms))

    def end_silently(self, request: Request) -> None:
        """End a request that has no response (acks=0)."""
        muted_ms = self._quotas.throttle_silent(request) if self._quotas is not None else 0
        self._emit(Respond(request.client.connection, None, muted_ms))

    def close(self, request: Request, reason: str) -> None:
        """Close the request's connection without a response."""
        self._emit(Close(request.client.connection, reason))


_OF_CONFIGS = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
OPERATIONS = {
    "topic": (*_OF_CONFIGS, Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER),
    "group": (*_OF_CONFIGS, Operation.READ, Operation.DELETE),
    "cluster": (*_OF_CONFIGS, Operation.CREATE, Operation.ALTER, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE),
}
"""The operations of each resource type; without an authorizer a client may do all of them (KIP-430)."""
AUTHORIZED_OPERATIONS = {kind: sum(1 << each for each in operations) for kind, operations in OPERATIONS.items()}
"""The same operations, as bits."""


Key = tuple[TopicName, int]
"""A partition."""


class Parked(Protocol):
    """A delayed request, which a change of one of its partitions or its deadline completes."""

    @property
    def connection(self) -> ConnectionId: ...

    @property
    def awaits_commits(self) -> bool:
        """Whether a higher high watermark may complete it; a follower's fetch only waits for records."""
        ...

    def try_complete(self, now: TimestampMs, key: Key) -> bool:
        """After a change of a partition, respond if the request is complete; return whether it was."""
        ...

    def expire(self, now: TimestampMs) -> None:
        """Respond at the deadline, with the present state."""
        ...

    def abandon(self) -> None:
        """Release its resources after its connection was closed."""
        ...


P = TypeVar("P", bound=Parked)


@dataclass(slots=True)
class _Waiting(Generic[P]):
    parked: P
    keys: list[Key]
    deadline: TimestampMs
    number: int
    done: bool = False
    is_looking: bool = False
    """Whether it is being tried: its completion may wake it once more."""


class Purgatory(Generic[P]):
    """Delayed requests, by partition and by deadline (DelayedOperationPurgatory).

    They complete in the order of arrival, so that the same inputs have the same outputs.
    """

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[int, _Waiting[P]]] = {}
        self._by_connection: dict[ConnectionId, _Waiting[P]] = {}
        self._deadlines: list[tuple[TimestampMs, int, _Waiting[P]]] = []
        self._numbers = count()
        self._internal = count(-2, -1)

    def internal(self) -> ConnectionId:
        """An id that no connection has, for a delayed step of the node itself."""
        return next(self._internal)

    def __len__(self) -> int:
        return len(self._by_connection)

    def park(self, parked: P, keys: Iterable[Key], deadline: TimestampMs) -> None:
        """Delay a request. A connection has at most one, because its next request is not read before."""
        assert parked.connection not in self._by_connection, "a connection has one request at a time"
        waiting = _Waiting(parked, [*keys], deadline, next(self._numbers))
        for key in waiting.keys:
            self._by_key.setdefault(key, {})[waiting.number] = waiting
        self._by_connection[parked.connection] = waiting
        heapq.heappush(self._deadlines, (deadline, waiting.number, waiting))

    def watch(self, connection: ConnectionId, key: Key) -> None:
        """Let a delayed request also wait for another partition."""
        waiting = self._by_connection[connection]
        waiting.keys.append(key)
        self._by_key.setdefault(key, {})[waiting.number] = waiting

    def wake(self, key: Key, now: TimestampMs, *, has_records: bool = True) -> None:
        """Try the requests that wait for a changed partition.

        `has_records` is False if only the high watermark has changed, and not the log, role and leader epoch.
        """
        watching = self._by_key.get(key)
        if watching:
            for waiting in [watching[number] for number in sorted(watching)]:
                if not waiting.done and not waiting.is_looking and (has_records or waiting.parked.awaits_commits):
                    self._look(waiting, key, now)

    def wake_all(self, now: TimestampMs) -> None:
        """Try every request."""
        for key in [*self._by_key]:
            self.wake(key, now)

    def _look(self, waiting: _Waiting[P], key: Key, now: TimestampMs) -> None:
        waiting.is_looking = True
        if waiting.parked.try_complete(now, key):
            self._remove(waiting)
        waiting.is_looking = False

    def tick(self, now: TimestampMs) -> None:
        """Complete the requests whose deadline has passed."""
        while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][2].done):
            waiting = heapq.heappop(self._deadlines)[2]
            if not waiting.done:
                self._remove(waiting)
                waiting.parked.expire(now)

    def forget(self, connection: ConnectionId) -> None:
        """Drop the request of a closed connection."""
        waiting = self._by_connection.get(connection)
        if waiting is not None:
            self._remove(waiting)
            waiting.parked.abandon()

    def next_deadline(self) -> TimestampMs:
        """The earliest deadline."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].done:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else NEVER

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
    """The delayed requests of one node."""

    def __init__(self) -> None:
        self.produces: Purgatory[Parked] = Purgatory()
        """Produce, DeleteRecords, markers, and steps of coordinators: they wait for the high watermark."""
        self.fetches: Purgatory[Parked] = Purgatory()
        self.news: Callable[[Key], None] = lambda key: None
        """Takes a partition whose next read may return another result (`FetchSessions.news`)."""

    def wake(self, partition: Partition, now: TimestampMs) -> None:
        """Try the delayed requests after a change of a partition's records, high watermark, ISR, log start or role."""
        self.wake_fetches(partition.key, now)
        self.produces.wake(partition.key, now)

    def brokers_changed(self, advanced: Iterable[Partition], now: TimestampMs) -> None:
        """Try the delayed requests of partitions whose high watermark has moved, and all that wait for replicas.

        DeleteRecords waits for the replicas of brokers that are not fenced, whose high watermark may stay.
        """
        for partition in advanced:
            self.wake(partition, now)
        self.produces.wake_all(now)

    def next_deadline(self) -> TimestampMs:
        """The earliest deadline."""
        return min(self.produces.next_deadline(), self.fetches.next_deadline())

    def wake_fetches(self, key: Key, now: TimestampMs, *, has_records: bool = True) -> None:
        """Try the delayed fetches of a partition after a change; `has_records` as for `Purgatory.wake`."""
        self.news(key)
        self.fetches.wake(key, now, has_records=has_records)


class OfPartition(Protocol):
    @property
    def partition(self) -> Partition: ...


Part = TypeVar("Part", bound=OfPartition)


class AwaitedParts(Generic[Part]):
    """A request with one result per partition, which is answered when all results are final."""

    awaits_commits = True

    def __init__(
        self,
        connection: ConnectionId,
        parts: Iterable[Part],
        is_decided: Callable[[Part], bool],
        expire: Callable[[Part], None],
        done: Callable[[TimestampMs], None],
    ) -> None:
        """`is_decided` and `expire` set the result of a part; `done` sends the response."""
        self.connection = connection
        self._parts: dict[Key, list[Part]] = {}
        for part in parts:
            self._parts.setdefault(part.partition.key, []).append(part)
        self._is_decided = is_decided
        self._expire = expire
        self._done = done

    def begin(self, purgatory: Purgatory[Parked], deadline: TimestampMs, now: TimestampMs) -> None:
        """Respond now if all results are final; otherwise when they are, or at the deadline."""
        for key in [*self._parts]:
            self._decide(key)
        if self._parts:
            purgatory.park(self, self._parts, deadline)
        else:
            self._done(now)

    def try_complete(self, now: TimestampMs, key: Key) -> bool:
        self._decide(key)
        if not self._parts:
            self._done(now)
        return not self._parts

    def _decide(self, key: Key) -> None:
        left = [part for part in self._parts.pop(key, ()) if not self._is_decided(part)]
        if left:
            self._parts[key] = left

    def expire(self, now: TimestampMs) -> None:
        for parts in self._parts.values():
            for part in parts:
                self._expire(part)
        self._done(now)

    def abandon(self) -> None:
        self._parts = {}
