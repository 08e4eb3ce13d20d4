"""Domain types for plain values, so that a signature shows its meaning.

Numbers that must not be confused are types of their own to the type checker: an offset where a leader epoch is expected is an
error. An offset plus a distance is an offset, and the difference of two is a distance; timestamps behave alike. When the code
runs they are all `int`: no call is made for each record, and CrossHair searches them as integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, overload
from uuid import UUID

if TYPE_CHECKING:

    class Offset(int):
        """Position of a record in its partition; the first is 0."""

        def __add__(self, distance: int, /) -> Offset: ...
        @overload
        def __sub__(self, other: Offset, /) -> int: ...  # pyright: ignore[reportOverlappingOverload]
        @overload
        def __sub__(self, distance: int, /) -> Offset: ...
        def __sub__(self, other: int, /) -> int: ...

    class TimestampMs(int):
        """Milliseconds since 1970 (UTC)."""

        def __add__(self, duration_ms: int, /) -> TimestampMs: ...
        @overload
        def __sub__(self, other: TimestampMs, /) -> int: ...  # pyright: ignore[reportOverlappingOverload]
        @overload
        def __sub__(self, duration_ms: int, /) -> TimestampMs: ...
        def __sub__(self, other: int, /) -> int: ...

    class LeaderEpoch(int):
        """A leader's term in its partition; a controller's is its term in the metadata partition; -1 where none is known."""

        def __add__(self, terms: int, /) -> LeaderEpoch: ...

    class PartitionEpoch(int):
        """Version of a partition's registration: grows with every change of it; -1 where none is known."""

    class BrokerEpoch(int):
        """A broker's registration: grows with every start; -1 where a request has none (KIP-903)."""

    class NodeId(int):
        """Identity of a broker or controller (`node.id`); -1 where there is none."""

    class ProducerId(int):
        """Identity of an idempotent producer's session; -1 for a producer without one."""

    class ProducerEpoch(int):
        """Term of a producer id, 0 to 32767; -1 for a producer without one."""
else:
    Offset = TimestampMs = LeaderEpoch = PartitionEpoch = BrokerEpoch = NodeId = ProducerId = ProducerEpoch = int

NO_OFFSET = Offset(-1)
"""The offset where none is known."""

FIRST_OFFSET = Offset(0)

FIRST_EPOCH = LeaderEpoch(0)

NO_EPOCH = LeaderEpoch(-1)
"""The epoch where none is known."""

NO_TIMESTAMP = TimestampMs(-1)

NO_NODE = NodeId(-1)

NO_PRODUCER_ID = ProducerId(-1)

NO_PRODUCER_EPOCH = ProducerEpoch(-1)

AT_ONCE = TimestampMs(0)
"""A deadline that has passed."""

NEVER = TimestampMs(2**63 - 1)
"""The deadline of work that is not to be done."""

LONG_AGO = TimestampMs(0)
"""The time of an event that has not happened yet."""

Sequence: TypeAlias = int
"""Number of a record among those of one producer id in one partition; wraps from 2147483647 to 0."""

TopicName: TypeAlias = str
"""Name of a topic: 1 to 249 of [a-zA-Z0-9._-]."""

TopicId: TypeAlias = UUID
"""Identity of a topic's one incarnation: a topic that is deleted and made again has another (KIP-516)."""

GroupId: TypeAlias = str
"""Name of a consumer group."""

TransactionalId: TypeAlias = str
"""Name under which a producer's transactions are continued by its next session."""

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that need not be copied to be read."""

NO_UUID = UUID(int=0)
"""The id where there is none."""


class Chance(Protocol):
    """A seeded generator of random numbers: Python's `random.Random` fits."""

    def getrandbits(self, k: int, /) -> int: ...
    def random(self) -> float: ...
    def randrange(self, start: int, stop: int = ..., /) -> int: ...
