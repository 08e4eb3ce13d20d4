"""The domain's own names for plain values, so that a signature says what it means."""

from typing import Protocol, TypeAlias
from uuid import UUID

Offset: TypeAlias = int
"""Position of a record in its partition; the first is 0."""

Epoch: TypeAlias = int
"""A leader's or controller's term; grows by one or more at each change; -1 where none is known."""

NodeId: TypeAlias = int
"""Identity of a broker or controller (`node.id`); -1 where there is none."""

ProducerId: TypeAlias = int
"""Identity of an idempotent producer's session; -1 for a producer without one."""

ProducerEpoch: TypeAlias = int
"""Term of a producer id, 0 to 32767; -1 for a producer without one."""

Sequence: TypeAlias = int
"""Number of a record among those of one producer id in one partition; wraps from 2147483647 to 0."""

TimestampMs: TypeAlias = int
"""Milliseconds since 1970 (UTC)."""

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
"""The id that stands for none."""


class Chance(Protocol):
    """A seeded generator of random numbers: Python's `random.Random` fits."""

    def getrandbits(self, k: int, /) -> int: ...
    def random(self) -> float: ...
    def randrange(self, start: int, stop: int = ..., /) -> int: ...
