"""Files on their way to the disk: the waiting may be done in another thread, what follows from it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reference.storage.disk import Disk
from reference.storage.making_durable import Act


class PendingFlush:
    """Something to make durable: the waiting may take long, and may be in another thread; `finish` may not."""

    def __init__(self, disk: Disk, flush: Act, finish: Callable[[PendingFlush, OSError | None], None]) -> None:
        """`flush` flushes files and folders, and nothing else."""
        self._disk = disk
        self._flush = flush
        self._finish = finish

    def run(self) -> None:
        """Wait for the disk. Errors: OSError."""
        self._flush()

    def waits(self) -> Sequence[Act]:
        """What `run` does, for another thread: it holds what it needs, whatever becomes of the files. Errors: OSError."""
        with self._disk.gathered() as acts:
            self._flush()
        return acts

    def finish(self, error: OSError | None = None) -> None:
        """All is durable, or the disk has failed."""
        if error is not None:
            self._disk.failed(error)
        self._finish(self, error)


RunFlush = Callable[[PendingFlush], None]


def run_now(flush: PendingFlush) -> None:
    """Flush at once. Errors: OSError."""
    flush.run()
    flush.finish()
