"""What a run waits for now, and since when: requirements, and starts of targets, of all sessions together."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

LOOK_S = 1.0
"""How often a listener gets what the run waits for."""
START = "a start of the target"
NAMED = 6
"""So many are named in one line."""


@dataclass(frozen=True)
class Wait:
    """One thing that has not ended."""

    what: str
    """The id of a requirement, or `START`."""
    seconds: float

    def __str__(self) -> str:
        return f"{self.what} ({self.seconds:.0f} s)"


@dataclass
class Waits:
    """What is under way. All threads of a run share it."""

    clock: Callable[[], float] = time.monotonic
    _open: dict[int, tuple[str, float]] = field(default_factory=dict[int, tuple[str, float]])
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def during(self, what: str) -> Generator[None]:
        """It is waited for meanwhile."""
        with self._lock:
            number = next(self._numbers)
            self._open[number] = what, self.clock()
        try:
            yield
        finally:
            with self._lock:
                del self._open[number]

    def now(self) -> list[Wait]:
        """What is waited for, the longest wait first."""
        with self._lock:
            found, now_s = list(self._open.values()), self.clock()
        return [Wait(what, now_s - began_s) for what, began_s in sorted(found, key=lambda one: one[1])]


@dataclass
class Reminder:
    """A line now and then of what is waited for, where not every second may have one: a pipe, or a log."""

    every_s: float = 30.0
    """What is waited for shorter is not worth a line, nor is the same wait before so much more time."""
    clock: Callable[[], float] = time.monotonic
    last_s: float = float("-inf")

    def text(self, waits: list[Wait]) -> str:
        """What to say now of these waits, the longest first; empty where nothing is to be said."""
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
    """Every `LOOK_S` meanwhile, report what is waited for, from a thread of its own; nothing where nothing is."""
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
