"""Threads that wait for the disk: a segment that was closed or compacted may have a gigabyte, and requests go on meanwhile."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from reference.storage.flushing import PendingFlush
from reference.storage.making_durable import run_in_turn

MOST_FLUSHES = 2
"""Flushes that are carried out at once; others wait for them."""


class FlushThreads:
    """Runs flushes in threads, and reports their end to the node as an event."""

    def __init__(self, loop: asyncio.AbstractEventLoop, let_node: Callable[[Callable[[], None]], None]) -> None:
        self._loop = loop
        self._let_node = let_node
        self._threads = ThreadPoolExecutor(MOST_FLUSHES, "flush")

    def run(self, flush: PendingFlush) -> None:
        """Wait for the disk in a thread. Errors: OSError, where the files cannot be opened, or no thread can be started.

        Whatever else ends the wait is a failure of the disk, too: a flush of which no end was reported would be under way for
        ever, and its log would never be flushed again.
        """
        waits = flush.waits()

        def wait() -> None:
            error: OSError | None = None
            try:
                run_in_turn(waits)
            except OSError as found:
                error = found
            except BaseException as found:
                error = OSError(errno.EIO, f"a flush ended with {found!r}")
            with suppress(RuntimeError):  # the loop has ended, and with it what waits for this
                self._loop.call_soon_threadsafe(self._let_node, lambda: flush.finish(error))

        try:
            self._threads.submit(wait)
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from error

    def close(self) -> None:
        """Wait for the flushes that have begun; their end is not reported any more."""
        self._threads.shutdown(cancel_futures=True)
