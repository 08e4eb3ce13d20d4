"""Steps of a coordinator that wait until what they tell is on every in-sync replica. (OFF-04, GRP-*, TXN-*)"""

from __future__ import annotations

from collections.abc import Callable

from reference.node.context import Context
from reference.node.effects import ConnectionId
from reference.node.requests import Key
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import Offset, TimestampMs
from reference.replication.partition import Partition

Outcome = Callable[[ErrorCode, TimestampMs], None]
"""Takes NONE when the records are committed, else NOT_COORDINATOR or REQUEST_TIMED_OUT: they may be or not be."""


class AwaitingCommit:
    """One step, and the end of the records behind which it stands."""

    __slots__ = ("_connection", "_context", "_end", "_leader_epoch", "_outcome", "_partition")

    def __init__(
        self, context: Context, connection: ConnectionId, partition: Partition, end: Offset, outcome: Outcome
    ) -> None:
        self._context = context
        self._connection = connection
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._end = end
        self._outcome = outcome

    def begin(self, now: TimestampMs, timeout_ms: int) -> None:
        """Go on now if it may be, else when it may, or with an error when it takes too long."""
        key = self._partition.key
        if not self.try_complete(now, key):
            self._context.purgatories.produces.park(self, [key], now + timeout_ms)

    @property
    def connection(self) -> ConnectionId:
        return self._connection

    def try_complete(self, now: TimestampMs, key: Key) -> bool:
        partition = self._partition
        if not self._context.replicas.leads(partition) or partition.leader_epoch != self._leader_epoch:
            self._outcome(ErrorCode.NOT_COORDINATOR, now)
        elif partition.is_committed(self._end):
            self._outcome(ErrorCode.NONE, now)
        else:
            return False
        return True

    def expire(self, now: TimestampMs) -> None:
        self._outcome(ErrorCode.REQUEST_TIMED_OUT, now)

    def abandon(self) -> None:
        """Nothing is held while a step waits."""
