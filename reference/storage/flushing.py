"""Closed segments on their way to the disk: the waiting may be another client's, the log's state is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from reference.protocol.primitives import Offset
from reference.storage.segment import Segment


class Flushed(Protocol):
    """The log whose segments are flushed."""

    def sync_folder(self) -> None:
        """Make the files' names durable. Errors: OSError."""

    def flushed(self, flush: PendingFlush, end: Offset, error: OSError | None) -> None:
        """Everything below `end` is durable, or the disk failed."""


class PendingFlush:
    """Closed segments to make durable: `run` may take long and may run in another thread, `finish` may not."""

    def __init__(self, log: Flushed, segments: Sequence[Segment], end: Offset) -> None:
        self._log = log
        self._segments = segments
        self._end = end

    def run(self) -> None:
        """Wait for the disk; touches nothing but files that no longer change. Errors: OSError."""
        for segment in self._segments:
            segment.flush()
        self._log.sync_folder()

    def finish(self, error: OSError | None = None) -> None:
        """Move the recovery point, unless the disk failed or the log was truncated meanwhile."""
        self._log.flushed(self, self._end, error)


def run_now(flush: PendingFlush) -> None:
    """Flush at once. Errors: OSError."""
    flush.run()
    flush.finish()
