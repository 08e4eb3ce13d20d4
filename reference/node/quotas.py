"""Client quotas: the usage of each client on this node, and throttle times (KIP-13, 124, 219, 599, 612).

A client that exceeds its quota gets its response at once, with the throttle time, and its connection is not read for that time
(KIP-219). A throttled fetch returns no records, and a throttled mutation of partitions an error. Only this node's usage
counts: a quota applies to each broker, as in Kafka.

The shell measures the time of requests (`spent`); a simulation, in which no time passes, throttles no client by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

from reference.controller.configs import Configuration
from reference.node.requests import Client, Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import AT_ONCE, TimestampMs
from reference.protocol.schema import Message
from reference.quotas.meters import Rate, TokenBucket, Windows
from reference.quotas.table import CONSUME, MUTATION, PRODUCE, REQUEST, Meter

PRODUCE_KEY, FETCH_KEY = 0, 1
STRICT_SINCE = {19: 6, 20: 5, 37: 3}
"""API that mutates partitions -> the first version in which an excess is refused (KIP-599)."""

EXEMPT = frozenset({17, 27, 36, 52, 53, 54, 55, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82})
"""APIs of brokers and of authentication, whose time is not charged to a quota."""

THROTTLED = "throttle_time_ms"
CREATION_RATE = "max.connection.creation.rate"
MAX_METERS = 20_000
"""The most meters that are kept; clients choose their ids, so idle meters are dropped when there are more."""

M = TypeVar("M", Rate, TokenBucket)


@dataclass(slots=True)
class Mutations:
    """The mutations of one request, of a client with a quota for them."""

    bucket: TokenBucket
    limit: float
    is_strict: bool
    now: TimestampMs
    is_exceeded: bool = False

    def charge(self, partitions: int) -> None:
        """Charge partitions. Errors: KafkaError THROTTLING_QUOTA_EXCEEDED; then nothing is charged."""
        if self.is_strict and self.bucket.throttle_ms(self.limit, self.now) > 0:
            self.is_exceeded = True
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self.bucket.take(partitions, self.limit, self.now)
        if not self.is_strict:
            self.is_exceeded = self.bucket.throttle_ms(self.limit, self.now) > 0

    def throttle(self, response: Message, now: TimestampMs) -> None:
        """Set the response's throttle time, if the quota is exceeded."""
        if self.is_exceeded:
            setattr(response, THROTTLED, max(getattr(response, THROTTLED), self.bucket.throttle_ms(self.limit, now)))


@dataclass(slots=True)
class Quotas:
    """The usage of one node's clients."""

    configuration: Configuration
    now: TimestampMs = AT_ONCE
    """The time of the input that the node is handling."""
    _rates: dict[Meter, Rate] = field(default_factory=dict[Meter, Rate])
    _buckets: dict[Meter, TokenBucket] = field(default_factory=dict[Meter, TokenBucket])
    _addresses: dict[str, Rate] = field(default_factory=dict[str, Rate])
    _listeners: dict[str, Rate] = field(default_factory=dict[str, Rate])
    """By listener name; the empty name is for the whole node."""
    _handled: Request | None = None

    @property
    def _set(self) -> Collection[str]:
        return self.configuration.image.quotas.set_names

    @property
    def measures_time(self) -> bool:
        """Whether any quota counts the time of requests."""
        return REQUEST in self._set

    def _windows(self) -> Windows:
        integer = self.configuration.integer
        return Windows(integer("quota.window.num"), integer("quota.window.size.seconds") * 1000)

    def _limit(self, quota: str, client: Client, client_id: str | None) -> tuple[Meter, float] | None:
        if quota not in self._set:
            return None
        user = client.principal.partition(":")[2]
        return self.configuration.image.quotas.limit_of_client(quota, user, client_id or "")

    def _counted(self, quota: str, request: Request) -> tuple[Meter, float] | None:
        """A client's meter, and its limit, which is infinite without a quota; None while no client has such a quota."""
        limit = self._limit(quota, request.client, request.client_id)
        if limit is not None or quota not in self._set:
            return limit
        user = request.client.principal.partition(":")[2]
        return self.configuration.image.quotas.meter_without_limit(quota, user, request.client_id or ""), inf

    def _rate(self, meter: Meter) -> Rate:
        return _kept(self._rates, meter, lambda: Rate(self._windows()), lambda rate: rate.is_idle(self.now))

    # ---- clients' requests

    def throttle(self, request: Request, response: Message) -> int:
        """Charge an answered request; return the milliseconds for which to mute its connection, also set in the response."""
        if not self._set or not hasattr(response, THROTTLED):
            return 0
        if request.key != FETCH_KEY:  # a fetch was decided before its records were read into the response
            throttle_ms = max(self._of_time(request), self._of_produce(request))
            setattr(response, THROTTLED, max(getattr(response, THROTTLED), throttle_ms))
        return getattr(response, THROTTLED)

    def throttle_silent(self, request: Request) -> int:
        """Charge a produce request without a response: its bytes count, its time does not."""
        return self._of_produce(request) if self._set else 0

    def _of_produce(self, request: Request) -> int:
        if request.key != PRODUCE_KEY:
            return 0
        limit = self._counted(PRODUCE, request)
        if limit is None:
            return 0
        rate = self._rate(limit[0])
        rate.add(request.size, self.now)
        return rate.throttle_ms(limit[1], self.now)

    def _of_time(self, request: Request) -> int:
        limit = None if request.key in EXEMPT else self._counted(REQUEST, request)
        if limit is None:
            return 0
        throttle_ms = self._rate(limit[0]).throttle_ms(limit[1], self.now)
        return min(throttle_ms, self._windows().size_ms)

    def began(self, request: Request) -> None:
        """Note the request that is being handled; the next `spent` is charged to it."""
        self._handled = request

    def spent(self, percent: float) -> None:
        """Charge the time that the request took, in hundredths of a second of this node's time."""
        request, self._handled = self._handled, None
        if request is None or request.key in EXEMPT:
            return
        limit = self._counted(REQUEST, request)
        if limit is not None:
            self._rate(limit[0]).add(percent, self.now)

    def throttle_fetch(self, request: Request, size: int) -> int:
        """The milliseconds for which a consumer is throttled by so many bytes; then it gets no records, and they are not
        charged."""
        if not self._set:
            return 0
        throttle_ms = self._of_time(request)
        limit = self._counted(CONSUME, request)
        if limit is None:
            return throttle_ms
        rate = self._rate(limit[0])
        rate.add(size, self.now)
        throttle_ms = max(throttle_ms, rate.throttle_ms(limit[1], self.now))
        if throttle_ms > 0:
            rate.add(-size, self.now)
        return throttle_ms

    def most_fetched(self, request: Request) -> int | None:
        """The bytes above which a single fetch would be throttled forever; None without a quota."""
        limit = self._limit(CONSUME, request.client, request.client_id) if self._set else None
        if limit is None:
            return None
        windows = self._windows()
        return int(limit[1] * (windows.number - 1) * windows.size_ms / 1000)

    # ---- the active controller's

    def mutations(self, request: Request, now: TimestampMs) -> Mutations | None:
        """The counter for a request's mutations of partitions; None without a quota, or for another API."""
        since = STRICT_SINCE.get(request.key)
        limit = self._limit(MUTATION, request.client, request.client_id) if since is not None else None
        if since is None or limit is None:
            return None
        integer = self.configuration.integer
        windows = Windows(
            integer("controller.quota.window.num"), integer("controller.quota.window.size.seconds") * 1000
        )
        bucket = _kept(self._buckets, limit[0], lambda: TokenBucket(windows), lambda each: False)
        return Mutations(bucket, limit[1], request.version >= since, now)

    # ---- connections

    def throttle_address(self, address: str, now: TimestampMs) -> int:
        """Charge a connection from an address; return the milliseconds to delay it, in which case it is not charged (KIP-612)."""
        limit = self.configuration.image.quotas.limit_of_address(address)
        if limit is None:
            return 0
        self.now = now
        rate = _kept(self._addresses, address, lambda: Rate(self._windows()), lambda each: each.is_idle(now))
        rate.add(1, now)
        throttle_ms = rate.throttle_ms(limit, now)
        if throttle_ms > 0:
            rate.add(-1, now)
        return throttle_ms

    def throttle_listener(self, listener: str, is_inner: bool, now: TimestampMs) -> int:
        """Charge a connection to a listener; return the milliseconds for which to accept no more connections there (KIP-612).

        Connections between nodes are not limited by the rate of the whole node.
        """
        own = self.configuration.listener_integer(listener, CREATION_RATE)
        limits = {} if is_inner else {"": self.configuration.integer(CREATION_RATE)}
        throttle_ms = 0
        for name, limit in {**limits, **({listener: own} if own is not None else {})}.items():
            rate = self._listeners.setdefault(name, Rate(self._windows()))
            rate.add(1, now)
            throttle_ms = max(throttle_ms, rate.throttle_ms(limit, now))
        return throttle_ms


K = TypeVar("K")


def _kept(meters: dict[K, M], key: K, new: Callable[[], M], is_idle: Callable[[M], bool]) -> M:
    """The meter of a key; above the limit idle meters are dropped, or the oldest one if none is idle."""
    meter = meters.get(key)
    if meter is None:
        if len(meters) >= MAX_METERS:
            for each in [each for each, known in meters.items() if is_idle(known)] or [next(iter(meters))]:
                del meters[each]
        meter = meters[key] = new()
    return meter
