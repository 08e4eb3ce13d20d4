"""What the active controller decides, one thing after the other.

A decision looks at the metadata, appends records, and makes an answer. It is true once its records are committed; until
then its answer is held back, and the next decision waits, so that each is made upon the one before it. With one voter
records are committed as they are written, and nothing ever waits. When this node stops being the active controller, no
answer is given that might be false: who asked learns that it asked the wrong node, and asks the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from reference.protocol.primitives import Epoch, Offset, TimestampMs
from reference.protocol.schema import Message

MAX_WAITING = 10_000
"""Decisions that may wait; whoever comes later is told that this is not the controller, and comes again."""

Decide = Callable[[TimestampMs], Message | None]
Answer = Callable[[Message | None, TimestampMs], None]
Abandon = Callable[[TimestampMs], None]


class Quorum(Protocol):
    """What decisions need to know of the metadata quorum."""

    @property
    def epoch(self) -> Epoch: ...

    @property
    def high_watermark(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def is_ready(self) -> bool:
        """Whether this node is the active controller, and has everything that earlier ones decided."""
        ...


@dataclass(slots=True)
class _Decision:
    decide: Decide
    answer: Answer
    abandon: Abandon


class Decisions:
    """The line before the active controller."""

    def __init__(self, quorum: Quorum, applied: Callable[[], Offset]) -> None:
        """`applied` tells up to where this node's image has the metadata."""
        self._quorum = quorum
        self._applied = applied
        self._waiting: deque[_Decision] = deque()
        self._made: tuple[_Decision, Message | None, Epoch, Offset] | None = None
        """The decision whose records are not committed yet: its answer, the epoch it was made in, where it ends."""

    def submit(self, decide: Decide, answer: Answer, abandon: Abandon, now: TimestampMs) -> None:
        """Put a question: `decide` is called when its turn comes, then `answer` with what it gave, or else `abandon`."""
        if len(self._waiting) >= MAX_WAITING:
            abandon(now)
            return
        self._waiting.append(_Decision(decide, answer, abandon))
        self.advance(now)

    def advance(self, now: TimestampMs) -> None:
        """Go on as far as the quorum has come; to be called whenever it may have moved."""
        if self._made is not None:
            self._settle(now)
        while self._waiting and self._made is None:
            if not self._quorum.is_ready:
                self._abandon_all(now)
                return
            if self._applied() < self._quorum.log_end_offset:
                return  # something of our own is not committed yet: decide upon it, not before it
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
