"""When things are due: one deadline a key, cheap to move on."""

from __future__ import annotations

import heapq
from itertools import count
from typing import Generic, TypeVar

from reference.protocol.primitives import TimestampMs

K = TypeVar("K")


class Timers(Generic[K]):
    """Deadlines by key. A later one, as each heartbeat makes, only changes a number, and is sorted in when the old one passes."""

    def __init__(self) -> None:
        self._deadlines: dict[K, TimestampMs] = {}
        self._sorted: dict[K, TimestampMs] = {}
        """The time of a key in the heap: never later than its deadline."""
        self._heap: list[tuple[TimestampMs, int, K]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._deadlines)

    def schedule(self, key: K, deadline: TimestampMs) -> None:
        """Set a key's one deadline, whatever it had."""
        self._deadlines[key] = deadline
        standing = self._sorted.get(key)
        if standing is None or deadline < standing:
            self._sort_in(key, deadline)

    def cancel(self, key: K) -> None:
        """A key has no deadline any more."""
        self._deadlines.pop(key, None)

    def deadline_of(self, key: K) -> TimestampMs | None:
        return self._deadlines.get(key)

    def take_due(self, now: TimestampMs) -> K | None:
        """A key whose deadline has come, the earliest first; it has none any more."""
        self._settle()
        if not self._heap or self._heap[0][0] > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._sorted[key], self._deadlines[key]
        return key

    def next_deadline(self) -> TimestampMs | None:
        self._settle()
        return self._heap[0][0] if self._heap else None

    def _settle(self) -> None:
        """Drop outdated entries, so that the top of the heap is a valid deadline."""
        while self._heap:
            at, _, key = self._heap[0]
            deadline = self._deadlines.get(key)
            if self._sorted.get(key) == at and deadline == at:
                return
            heapq.heappop(self._heap)
            if self._sorted.get(key) != at:
                continue  # an entry that an earlier one has replaced
            del self._sorted[key]
            if deadline is not None:
                self._sort_in(key, deadline)

    def _sort_in(self, key: K, deadline: TimestampMs) -> None:
        self._sorted[key] = deadline
        heapq.heappush(self._heap, (deadline, next(self._numbers), key))
