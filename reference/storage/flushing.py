"""Flushes whose wait for the disk may run in another thread; the caller's thread completes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reference.storage.disk import Disk
from reference.storage.making_durable import Act


class PendingFlush:
    """A flush under way: `run` may take long and run in another thread; `finish` may not."""

    def __init__(self, disk: Disk, flush: Act, finish: Callable[[PendingFlush, OSError | None], None]) -> None:
        """`flush` flushes files and folders, and nothing else."""
        self._disk = disk
        self._flush = flush
        self._finish = finish

    def run(self) -> None:
        """Wait for the disk. Errors: OSError."""
        self._flush()

    def waits(self) -> Sequence[Act]:
        """The work of `run` as calls for another thread; they hold their own file handles. Errors: OSError."""
        with self._disk.gathered() as acts:
            self._flush()
        return acts

    def finish(self, error: OSError | None = None) -> None:
        """Complete the flush: all is durable, or the disk failed with `error`."""
        if error is not None:
            self._disk.failed(error)
        self._finish(self, error)


RunFlush = Callable[[PendingFlush], None]


def run_now(flush: PendingFlush) -> None:
    """Flush at once. Errors: OSError."""
    flush.run()
    flush.finish()
