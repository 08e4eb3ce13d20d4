"""Answers of a coordinator that wait until what they tell is on every in-sync replica. (OFF-04, GRP-*)"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from reference.node.effects import ConnectionId
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import Offset, TimestampMs
from reference.protocol.schema import Message
from reference.replication.partition import Partition

if TYPE_CHECKING:
    from reference.node.node import Node


class AwaitingCommit:
    """One answer, and the end of the records behind which it stands."""

    __slots__ = ("_end", "_fail", "_leader_epoch", "_node", "_partition", "_request", "_response")

    def __init__(
        self,
        node: Node,
        request: Request,
        response: Message,
        partition: Partition,
        end: Offset,
        fail: Callable[[ErrorCode], None],
    ) -> None:
        """`fail` puts an error into the response in the place of what will not be committed."""
        self._node = node
        self._request = request
        self._response = response
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._end = end
        self._fail = fail

    def answer(self, now: TimestampMs, timeout_ms: int) -> None:
        """Answer now if it may be, else when it may, or with an error when it takes too long."""
        if not self.try_complete(now):
            self._node.produces.park(self, [(self._partition.topic, self._partition.index)], now + timeout_ms)

    @property
    def connection(self) -> ConnectionId:
        return self._request.client.connection

    def try_complete(self, now: TimestampMs) -> bool:
        partition = self._partition
        if not self._node.leads(partition) or partition.leader_epoch != self._leader_epoch:
            self._fail(ErrorCode.NOT_COORDINATOR)
        elif not partition.is_committed(self._end):
            return False
        self._node.respond(self._request, self._response)
        return True

    def expire(self, now: TimestampMs) -> None:
        self._fail(ErrorCode.REQUEST_TIMED_OUT)
        self._node.respond(self._request, self._response)

    def abandon(self) -> None:
        """Nothing is held while an answer waits."""
