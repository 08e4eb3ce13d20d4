"""Which logs a turn of the upkeep asks whether something is due.

Requests wait while it asks. So of thousands of logs it asks a part at each turn, one after the other, and besides those that had
said that something is due before they are asked again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from reference.protocol.primitives import TimestampMs
from reference.storage.checkpoints import TopicPartition
from reference.storage.log import Log

UPKEEP_INTERVAL_MS = 1000
"""Between two turns, where nothing is due before."""
LOGS_A_TURN = 2_000
"""Some three milliseconds' work."""


class UpkeepTurns:
    """The turns of one log directory."""

    def __init__(self, logs: Mapping[TopicPartition, Log]) -> None:
        self._logs = logs
        self._others: deque[TopicPartition] = deque()
        """Those that were not asked since all were."""
        self._soon: set[TopicPartition] = set()

    def take(self) -> list[tuple[TopicPartition, Log]]:
        """The logs of the next turn, all where there are few."""
        if len(self._logs) <= LOGS_A_TURN:
            self._soon.clear()
            return [*self._logs.items()]
        if not self._others:
            self._others.extend(self._logs)
        keys = dict.fromkeys(sorted(self._soon))
        for _ in range(min(LOGS_A_TURN, len(self._others))):
            keys[self._others.popleft()] = None
        return [(key, self._logs[key]) for key in keys if key in self._logs]

    def asked(self, key: TopicPartition, deadline: TimestampMs, now: TimestampMs) -> None:
        """A log was asked, and has something to do then."""
        turns = -(-len(self._logs) // LOGS_A_TURN) + 1
        if deadline <= now + turns * UPKEEP_INTERVAL_MS:
            self._soon.add(key)
        else:
            self._soon.discard(key)
