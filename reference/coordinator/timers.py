"""One deadline per key, cheap to postpone."""

from __future__ import annotations

import heapq
from itertools import count
from typing import Generic, TypeVar

from reference.protocol.primitives import TimestampMs

K = TypeVar("K")


class Timers(Generic[K]):
    """Deadlines by key. A postponed deadline, as after each heartbeat, only changes a number; the heap follows when the
    old one passes."""

    def __init__(self) -> None:
        self._deadlines: dict[K, TimestampMs] = {}
        self._sorted: dict[K, TimestampMs] = {}
        """The time of a key in the heap; it is never later than the key's deadline."""
        self._heap: list[tuple[TimestampMs, int, K]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._deadlines)

    def schedule(self, key: K, deadline: TimestampMs) -> None:
        """Set a key's deadline, which replaces its former one."""
        self._deadlines[key] = deadline
        standing = self._sorted.get(key)
        if standing is None or deadline < standing:
            self._sort_in(key, deadline)

    def cancel(self, key: K) -> None:
        """Remove a key's deadline."""
        self._deadlines.pop(key, None)

    def deadline_of(self, key: K) -> TimestampMs | None:
        return self._deadlines.get(key)

    def take_due(self, now: TimestampMs) -> K | None:
        """Remove and return the key with the earliest deadline that has passed; None if there is none."""
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
                continue  # a later `_sort_in` of the same key has replaced this entry
            del self._sorted[key]
            if deadline is not None:
                self._sort_in(key, deadline)

    def _sort_in(self, key: K, deadline: TimestampMs) -> None:
        self._sorted[key] = deadline
        heapq.heappush(self._heap, (deadline, next(self._numbers), key))
