"""A log that stays readable when one cause concerns thousands of partitions: lines of one cause are limited in rate.

A cause is a line without its numbers. In each window the first lines of a cause are written; the others are counted, and the
count is written when the window is over, at the latest with the next line or at the end.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

WINDOW_S = 10.0
LINES = 20
"""Lines of one cause that are written in one window."""
MOST_CAUSES = 1_000
"""Limit of causes in a window: lines of further ones are counted as one cause."""

NUMBERS = re.compile(r"\d+")
OTHERS = "other lines"


@dataclass(slots=True)
class _Cause:
    level: int
    written: int = 0
    counted: int = 0


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes the first lines of each cause to a stream, and counts the others."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._window_ends = 0.0
        self._causes: dict[str, _Cause] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if self._clock() >= self._window_ends:
            self.write_counts()
            self._window_ends = self._clock() + WINDOW_S
        name = NUMBERS.sub("#", record.getMessage())
        if name not in self._causes and len(self._causes) >= MOST_CAUSES:
            name = OTHERS
        cause = self._causes.setdefault(name, _Cause(record.levelno))
        is_written = cause.written < LINES
        if is_written:
            cause.written += 1
        else:
            cause.counted += 1
        return is_written

    def write_counts(self) -> None:
        """Write how many lines were only counted; a new window begins."""
        causes, self._causes = self._causes, {}
        for name, cause in causes.items():
            if cause.counted:
                text = f"{cause.counted} more lines like: {name}"
                self.emit(logging.LogRecord(__name__, cause.level, "", 0, text, None, None))

    def close(self) -> None:
        """The interpreter calls this at its end, too."""
        self.write_counts()
        super().close()
