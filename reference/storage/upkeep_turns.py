"""Which logs an upkeep turn ticks.

Requests wait during a turn. So a turn takes the logs whose deadline has come, the logs that have changed since they were ticked,
and a few others in rotation: an idle log costs almost nothing.
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
"""Of the others: they also reach a log whose deadline was missed after a disk error, or by a bug of ours."""


class UpkeepTurns:
    """The turns of one log directory."""

    def __init__(self, logs: Mapping[TopicPartition, Log]) -> None:
        self._logs = logs
        self._others: deque[TopicPartition] = deque()
        """Logs that are still to be ticked in this rotation."""
        self._changed: dict[TopicPartition, None] = {}
        """Logs whose next deadline may be sooner than the recorded one."""
        self._said: list[tuple[TimestampMs, TopicPartition]] = []
        """The recorded deadlines of logs, a heap."""
        self._known: set[tuple[TimestampMs, TopicPartition]] = set()

    def change(self, key: TopicPartition) -> None:
        """Record that a log is new, or has changed."""
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
        """Record the deadline of a log that was ticked."""
        if deadline < NEVER and (said := (deadline, key)) not in self._known:
            self._known.add(said)
            heappush(self._said, said)

    def next_deadline(self) -> TimestampMs:
        """The earliest recorded deadline; NEVER where there is none."""
        return self._said[0][0] if self._said else NEVER
