"""Writes an active controller's decisions to znodes, one after the other.

It is the log of `active_controller`: a record has an offset in it, and is committed when ZooKeeper has applied its writes;
then the controller's image applies it. A write that ZooKeeper refuses or does not answer ends the *term*: uncommitted records
are dropped, and all znodes are read again, or the controller resigns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reference.controller.image import MetadataImage, PartitionImage
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.primitives import FIRST_OFFSET, NO_EPOCH, LeaderEpoch, NodeId, Offset, TimestampMs, TopicId
from reference.protocol.schema import Message
from reference.zookeeper.operations import UNKNOWN_OUTCOMES, Code, Create, Delete, Multi, Result, ZnodeVersion
from reference.zookeeper.session import Session
from reference.zookeeper.writes import Condition, multis, writes_of

Befores = Mapping[tuple[TopicId, int], PartitionImage]


@dataclass(slots=True)
class _Append:
    """The records of one append, and its multis."""

    records: list[Message]
    term: LeaderEpoch
    waiting: int
    multis: list[Multi] = field(default_factory=list[Multi])


Committed = Callable[[Sequence[Message], Befores, TimestampMs], None]
"""Takes records after the image has applied them, and the partitions before."""


class Writer:
    """The controller's connection to ZooKeeper, on a node that may be the controller."""

    def __init__(self, node: NodeId, image: MetadataImage, session: Session) -> None:
        """`image` is the controller's own."""
        self.node = node
        self.bootstrap_records: list[Message] = []
        self.controller_epoch = NO_EPOCH
        """The value of /controller_epoch while this node is the controller."""
        self.epoch = LeaderEpoch(0)
        """The term, which grows with each full read."""
        self.is_ready = False
        self.log_end_offset = self.high_watermark = FIRST_OFFSET
        self.known: set[str] = set()
        """Existing znodes of topics, settings and orders to delete."""
        self.committed: Committed = lambda records, befores, now: None
        self.asked: Committed = lambda records, befores, now: None
        """Called with records before they are written, and the partitions before them."""
        self.failed: Callable[[bool, TimestampMs], None] = lambda is_deposed, now: None
        """Called when the term ends: this controller is deposed, or must read all znodes again."""
        self._image = image
        self.session = session
        self._condition = Condition(NO_EPOCH, ZnodeVersion(-1))
        self._open: deque[_Append] = deque()

    def begin(self, epoch: LeaderEpoch, version: ZnodeVersion) -> None:
        """Begin a term after a full read in this controller epoch."""
        self.controller_epoch = epoch
        self._condition = Condition(epoch, version)
        self.epoch = LeaderEpoch(self.epoch + 1)
        self._open.clear()
        self.log_end_offset = self.high_watermark = self._image.end_offset = Offset(self.log_end_offset + 1)
        self.is_ready = True

    def end(self) -> None:
        """End the term, and drop its open writes."""
        self.is_ready = False
        self._open.clear()

    def append(self, records: Sequence[Message], now: TimestampMs, level: int = 0) -> Offset:
        """Write the records of a decision; they are committed when `high_watermark` is above them.

        Errors: KafkaError NOT_CONTROLLER, and those of `writes_of`.
        """
        if not self.is_ready:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "No controller appears to be active.")
        writes = writes_of(self._image, records, self.controller_epoch, self.known.__contains__)
        return self.write(records, writes, now)

    def write(self, records: Sequence[Message], writes: Sequence[Any], now: TimestampMs) -> Offset:
        """As `append`, with the caller's writes."""
        first = self.log_end_offset
        pieces = multis(writes, self._condition)
        self.log_end_offset = Offset(first + max(1, len(records)))
        append = _Append([*records], self.epoch, len(pieces), pieces)
        self._open.append(append)
        self.asked(records, self._befores(records), now)
        for piece in pieces:
            self.session.ask(piece, lambda result, then: self._answered(append, result, then), now)
        return first

    def _answered(self, append: _Append, result: Result, now: TimestampMs) -> None:
        if append.term != self.epoch or not self.is_ready:
            return
        if result.code != Code.OK:
            self.end()
            is_deposed = result.failed == 0 and result.code not in UNKNOWN_OUTCOMES
            self.failed(is_deposed, now)
            return
        append.waiting -= 1
        if append.waiting == 0:
            self._open.popleft()
            self._commit(append, now)

    def _commit(self, append: _Append, now: TimestampMs) -> None:
        for piece in append.multis:
            for each in piece.operations:
                if isinstance(each, Create) and not each.sequential:
                    self.known.add(each.path)
                elif isinstance(each, Delete):
                    self.known.discard(each.path)
        self.high_watermark = Offset(self.high_watermark + max(1, len(append.records)))
        befores = self._befores(append.records)
        for record in append.records:
            self._image.apply(record)
        self._image.end_offset = self.high_watermark
        self.committed(append.records, befores, now)

    def _befores(self, records: Sequence[Message]) -> Befores:
        """The partitions that records change, from the image."""
        changed = [(each.topic_id, each.partition_id) for each in records if isinstance(each, PartitionChangeRecord)]
        return {place: self._image.topics_by_id[place[0]].partitions[place[1]] for place in changed}
