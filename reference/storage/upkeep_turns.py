"""Which logs a turn of the upkeep asks whether something is due.

Requests wait while it asks. So it asks those that said when, once that time has come, those that have changed since, and of all
others a few, one after the other: a log without news costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import heappop, heappush

from reference.protocol.primitives import NEVER, TimestampMs
from reference.storage.checkpoints import TopicPartition
from reference.storage.log import Log

UPKEEP_INTERVAL_MS = 1000
"""Between two turns, where nothing is due before."""
LOGS_A_TURN = 2_000
"""Some three milliseconds' work."""
OTHERS_A_TURN = 50
"""Of those without news: a log whose upkeep is late by a fault of its disk, or of ours, has its turn all the same."""


class UpkeepTurns:
    """The turns of one log directory."""

    def __init__(self, logs: Mapping[TopicPartition, Log]) -> None:
        self._logs = logs
        self._others: deque[TopicPartition] = deque()
        """Those that were not asked since all were."""
        self._changed: dict[TopicPartition, None] = {}
        """Those that may have to do something sooner than they said."""
        self._said: list[tuple[TimestampMs, TopicPartition]] = []
        """When logs have something to do, the soonest first."""
        self._known: set[tuple[TimestampMs, TopicPartition]] = set()

    def change(self, key: TopicPartition) -> None:
        """A log is new, or has changed."""
        self._changed[key] = None

    def take(self, now: TimestampMs) -> list[tuple[TopicPartition, Log]]:
        """The logs of the next turn."""
        keys: dict[TopicPartition, None] = {}
        while self._said and self._said[0][0] <= now and len(keys) < LOGS_A_TURN:
            self._known.discard(said := heappop(self._said))
            keys[said[1]] = None
        while self._changed and len(keys) < LOGS_A_TURN:
            key = next(iter(self._changed))
            del self._changed[key]
            keys[key] = None
        if not self._others:
            self._others.extend(self._logs)
        most = min(LOGS_A_TURN, len(keys) + OTHERS_A_TURN)
        while self._others and len(keys) < most:
            if (key := self._others.popleft()) in self._logs:
                keys[key] = None
        return [(key, self._logs[key]) for key in keys if key in self._logs]

    def asked(self, key: TopicPartition, deadline: TimestampMs) -> None:
        """A log was asked, and has something to do then."""
        if deadline < NEVER and (said := (deadline, key)) not in self._known:
            self._known.add(said)
            heappush(self._said, said)

    def next_deadline(self) -> TimestampMs:
        """When a log has something to do that has said so."""
        return self._said[0][0] if self._said else NEVER
