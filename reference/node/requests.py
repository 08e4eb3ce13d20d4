"""A request on its way through the node, and the ones that must wait."""

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
    """A connection as the node knows it."""

    connection: ConnectionId
    host: str
    listener: str
    software: str = ""
    principal: str = ANONYMOUS
    """`TYPE:NAME`. Of a forwarded request, host and principal are those of the client that the broker forwarded it for."""
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
    """What access control changes in the response (`access.Admission.amend`)."""

    def amended(self, response: Message) -> Message:
        """The response as the client may get it; the same when it is asked for again."""
        amend, self.amend = self.amend, None
        return response if amend is None else amend(response)


class Throttling(Protocol):
    """What counts for quotas (`quotas.Quotas`). Each gives for how many ms the connection is muted."""

    def began(self, request: Request) -> None: ...

    def throttle(self, request: Request, response: Message) -> int: ...

    def throttle_silent(self, request: Request) -> int: ...


class Responder:
    """Answers requests: each answer is one effect."""

    def __init__(self, emit: Callable[[Effect], None], quotas: Throttling | None = None) -> None:
        self._emit = emit
        self._quotas = quotas

    def began(self, request: Request) -> None:
        """A request was read and is handled now."""
        if self._quotas is not None:
            self._quotas.began(request)

    def respond(self, request: Request, response: Message) -> None:
        """Answer a request; an answer to a connection that is gone lets go of its slices."""
        response = request.amended(response)
        muted_ms = self._quotas.throttle(request, response) if self._quotas is not None else 0
        parts = encode_response(request.key, request.version, request.correlation_id, response)
        self._emit(Respond(request.client.connection, parts, muted_ms))

    def respond_raw(self, request: Request, parts: list[codec.Part], muted_ms: int = 0) -> None:
        """Answer with an encoded frame."""
        self._emit(Respond(request.client.connection, parts, muted_ms))

    def end_silently(self, request: Request) -> None:
        """End a request that expects no answer (acks=0)."""
        muted_ms = self._quotas.throttle_silent(request) if self._quotas is not None else 0
        self._emit(Respond(request.client.connection, None, muted_ms))

    def close(self, request: Request, reason: str) -> None:
        """Close the request's connection without an answer."""
        self._emit(Close(request.client.connection, reason))


_OF_CONFIGS = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
OPERATIONS = {
    "topic": (*_OF_CONFIGS, Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER),
    "group": (*_OF_CONFIGS, Operation.READ, Operation.DELETE),
    "cluster": (*_OF_CONFIGS, Operation.CREATE, Operation.ALTER, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE),
}
"""The operations that a resource has: a client may do all of them where there is no authorizer (KIP-430)."""
AUTHORIZED_OPERATIONS = {kind: sum(1 << each for each in operations) for kind, operations in OPERATIONS.items()}
"""The same as bits."""


Key = tuple[TopicName, int]
"""A partition."""


class Parked(Protocol):
    """A request that waits: for news of one of its partitions, or for its deadline."""

    @property
    def connection(self) -> ConnectionId: ...

    @property
    def awaits_commits(self) -> bool:
        """Whether it may be complete because more is committed; a follower waits for records alone."""
        ...

    def try_complete(self, now: TimestampMs, key: Key) -> bool:
        """A partition has changed: respond if the operation is complete now; True when it was."""
        ...

    def expire(self, now: TimestampMs) -> None:
        """Answer with what there is: its time is over."""
        ...

    def abandon(self) -> None:
        """Its connection is closed: release what it holds."""
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
    """Requests that wait, by what they wait for and by deadline (DelayedOperationPurgatory).

    The order of completion is that of arrival, so that the same inputs give the same outputs.
    """

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[int, _Waiting[P]]] = {}
        self._by_connection: dict[ConnectionId, _Waiting[P]] = {}
        self._deadlines: list[tuple[TimestampMs, int, _Waiting[P]]] = []
        self._numbers = count()
        self._internal = count(-2, -1)

    def internal(self) -> ConnectionId:
        """An id that no connection has, for a step of the node itself that waits."""
        return next(self._internal)

    def __len__(self) -> int:
        return len(self._by_connection)

    def park(self, parked: P, keys: Iterable[Key], deadline: TimestampMs) -> None:
        """Keep a request; a connection has at most one, for its next is not read before."""
        assert parked.connection not in self._by_connection, "a connection has one request at a time"
        waiting = _Waiting(parked, [*keys], deadline, next(self._numbers))
        for key in waiting.keys:
            self._by_key.setdefault(key, {})[waiting.number] = waiting
        self._by_connection[parked.connection] = waiting
        heapq.heappush(self._deadlines, (deadline, waiting.number, waiting))

    def watch(self, connection: ConnectionId, key: Key) -> None:
        """A request that is parked waits for one more partition."""
        waiting = self._by_connection[connection]
        waiting.keys.append(key)
        self._by_key.setdefault(key, {})[waiting.number] = waiting

    def wake(self, key: Key, now: TimestampMs, *, has_records: bool = True) -> None:
        """There is news of a partition: the requests that wait for it look at it again, and at nothing else.

        `has_records` is False where its log, role and leader epoch are what they were, and more of it is committed.
        """
        watching = self._by_key.get(key)
        if watching:
            for waiting in [watching[number] for number in sorted(watching)]:
                if not waiting.done and not waiting.is_looking and (has_records or waiting.parked.awaits_commits):
                    self._look(waiting, key, now)

    def _look(self, waiting: _Waiting[P], key: Key, now: TimestampMs) -> None:
        waiting.is_looking = True
        if waiting.parked.try_complete(now, key):
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

    def next_deadline(self) -> TimestampMs:
        """When a request has waited long enough."""
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
    """The requests of one node that wait for its partitions."""

    def __init__(self) -> None:
        self.produces: Purgatory[Parked] = Purgatory()
        """Produce, DeleteRecords, markers, and steps of coordinators: they wait for commits."""
        self.fetches: Purgatory[Parked] = Purgatory()
        self.news: Callable[[Key], None] = lambda key: None
        """Takes a partition that would be read with another result than before (`FetchSessions.news`)."""

    def wake(self, partition: Partition, now: TimestampMs) -> None:
        """Records, high watermark, ISR, log start or role of a partition have changed."""
        self.wake_fetches(partition.key, now)
        self.produces.wake(partition.key, now)

    def next_deadline(self) -> TimestampMs:
        """When a request has waited long enough."""
        return min(self.produces.next_deadline(), self.fetches.next_deadline())

    def wake_fetches(self, key: Key, now: TimestampMs, *, has_records: bool = True) -> None:
        """The response to a fetch of the partition would be another now; `has_records` as for `Purgatory.wake`."""
        self.news(key)
        self.fetches.wake(key, now, has_records=has_records)


class OfPartition(Protocol):
    @property
    def partition(self) -> Partition: ...


Part = TypeVar("Part", bound=OfPartition)


class AwaitedParts(Generic[Part]):
    """A request whose parts are decided partition by partition, and which is answered when all are."""

    awaits_commits = True

    def __init__(
        self,
        connection: ConnectionId,
        parts: Iterable[Part],
        is_decided: Callable[[Part], bool],
        expire: Callable[[Part], None],
        done: Callable[[TimestampMs], None],
    ) -> None:
        """`is_decided` and `expire` put into a part of the response what it says; `done` sends the response."""
        self.connection = connection
        self._parts: dict[Key, list[Part]] = {}
        for part in parts:
            self._parts.setdefault(part.partition.key, []).append(part)
        self._is_decided = is_decided
        self._expire = expire
        self._done = done

    def begin(self, purgatory: Purgatory[Parked], deadline: TimestampMs, now: TimestampMs) -> None:
        """Answer now, or when all is decided, or at the deadline."""
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
