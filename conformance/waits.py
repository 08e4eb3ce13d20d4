"""The present waits of a run with their durations: running requirements and starts of targets, in all sessions."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

LOOK_S = 1.0
"""The interval at which a listener gets the run's waits."""
START = "a start of the target"
RETURN = "the target, which does not answer, to come back"
NAMED = 6
"""The most waits in one line."""


@dataclass(frozen=True)
class Wait:
    """One present wait."""

    what: str
    """The id of a requirement, `START` or `RETURN`."""
    seconds: float

    def __str__(self) -> str:
        return f"{self.what} ({self.seconds:.0f} s)"


@dataclass
class Waits:
    """The present waits. All threads of a run share them."""

    clock: Callable[[], float] = time.monotonic
    _open: dict[int, tuple[str, float]] = field(default_factory=dict[int, tuple[str, float]])
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def during(self, what: str) -> Generator[None]:
        """Count `what` as a present wait within the block."""
        with self._lock:
            number = next(self._numbers)
            self._open[number] = what, self.clock()
        try:
            yield
        finally:
            with self._lock:
                del self._open[number]

    def now(self) -> list[Wait]:
        """The present waits, the longest first."""
        with self._lock:
            found, now_s = list(self._open.values()), self.clock()
        return [Wait(what, now_s - began_s) for what, began_s in sorted(found, key=lambda one: one[1])]


@dataclass
class Reminder:
    """Occasional lines about waits, for a pipe or a log."""

    every_s: float = 30.0
    """The least wait that gets a line, and the least time between two lines."""
    clock: Callable[[], float] = time.monotonic
    last_s: float = float("-inf")

    def text(self, waits: list[Wait]) -> str:
        """The line for these waits, which are sorted by length; empty where none is due."""
        now_s = self.clock()
        if not waits or waits[0].seconds < self.every_s or now_s - self.last_s < self.every_s:
            return ""
        self.last_s = now_s
        return said(waits)


def said(waits: list[Wait]) -> str:
    """`waiting for COO-01 (72 s), TXN-10 (3 s)`."""
    more = f" and {len(waits) - NAMED} more" if len(waits) > NAMED else ""
    return f"waiting for {', '.join(map(str, waits[:NAMED]))}{more}"


@contextmanager
def reported(waits: Waits, report: Callable[[list[Wait]], None]) -> Generator[None]:
    """Within the block, call `report` with the present waits every `LOOK_S` from a separate thread, unless there are none."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            if found := waits.now():
                report(found)

    thread = threading.Thread(target=look, name="waits", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
