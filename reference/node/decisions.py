"""Decisions that are made one at a time, each on the committed result of the previous one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from reference.protocol.primitives import LeaderEpoch, NodeId, Offset, TimestampMs
from reference.protocol.schema import Message

MAX_WAITING = 10_000
"""The most pending decisions; a further one is abandoned, as on a node that is not the controller, and retried."""

Answer = Callable[[Message | None, TimestampMs], None]

Abandon = Callable[[TimestampMs], None]


class Progress(Protocol):
    """The part of the metadata quorum that decisions depend on."""

    @property
    def epoch(self) -> LeaderEpoch: ...

    @property
    def high_watermark(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def is_ready(self) -> bool:
        """Whether this node is the active controller, and has all earlier decisions."""
        ...


class DecisionLog(Progress, Protocol):
    """The log for decisions' records: the metadata quorum's, or ZooKeeper."""

    @property
    def node(self) -> NodeId: ...

    @property
    def bootstrap_records(self) -> Sequence[Message]: ...

    def append(self, records: Sequence[Message], now: TimestampMs, level: int = ...) -> Offset: ...


@dataclass(slots=True)
class _Decision:
    decide: Callable[[TimestampMs], Message | None]
    answer: Answer
    abandon: Abandon


class Decisions:
    """The pending decisions, and the one that waits for its commit."""

    def __init__(self, quorum: Progress, applied: Callable[[], Offset]) -> None:
        """`applied` returns the end offset of this node's image."""
        self._quorum = quorum
        self._applied = applied
        self._waiting: deque[_Decision] = deque()
        self._made: tuple[_Decision, Message | None, LeaderEpoch, Offset] | None = None
        """The decision that is not committed yet, with its response, epoch and end offset."""

    def submit(
        self, decide: Callable[[TimestampMs], Message | None], answer: Answer, abandon: Abandon, now: TimestampMs
    ) -> None:
        """Queue a decision: `decide` is called when its turn comes, then `answer` with its result, or else `abandon`."""
        if len(self._waiting) >= MAX_WAITING:
            abandon(now)
            return
        self._waiting.append(_Decision(decide, answer, abandon))
        self.advance(now)

    def advance(self, now: TimestampMs) -> None:
        """Continue after the quorum may have moved."""
        if self._made is not None:
            self._settle(now)
        while self._waiting and self._made is None:
            if not self._quorum.is_ready:
                self._abandon_all(now)
                return
            if self._applied() < self._quorum.log_end_offset:
                return  # an own record is not committed yet: the next decision must build on it
            self._make(self._waiting.popleft(), now)

    def _make(self, decision: _Decision, now: TimestampMs) -> None:
        epoch = self._quorum.epoch
        response = decision.decide(now)
        self._made = decision, response, epoch, self._quorum.log_end_offset
        self._settle(now)

    def _settle(self, now: TimestampMs) -> None:
        assert self._made is not None
        decision, response, epoch, end = self._made
        if self._quorum.epoch != epoch or not self._quorum.is_ready:
            self._made = None
            decision.abandon(now)
        elif self._quorum.high_watermark >= end and self._applied() >= end:
            self._made = None
            decision.answer(response, now)

    def _abandon_all(self, now: TimestampMs) -> None:
        waiting, self._waiting = self._waiting, deque()
        for decision in waiting:
            decision.abandon(now)
