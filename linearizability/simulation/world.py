"""Virtual time: a queue of actions in order of time, and for equal times in order of scheduling.

Nothing here or above waits, and nothing asks a real clock. Chance comes from named streams of one seed: taking one fault or
client out of a schedule leaves the draws of the others as they were, which is what lets a failing schedule shrink.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linearizability.explorer.page import Sample

MICROSECONDS_A_MS = 1000
MAX_STEPS = 5_000_000
"""Limit on the steps of one run; a run that needs more is in an endless loop."""


LINES_A_DIGESTION = 256


class Violation(Exception):
    """A promise of the broker was broken; `rule` names it, the text says what was seen."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule
        self.text = text


class Trace:
    """The trace of a run: always a digest; lines and readable events only if `keep`."""

    def __init__(self, world: World, keep: bool) -> None:
        self._world = world
        self._digest = hashlib.sha256()
        self._undigested: list[str] = []
        self.keep = keep
        self.lines: list[str] = []
        self.events: list[tuple[int, str, str, str]] = []
        """The readable form: time, source, target (for an event the same), text."""
        self.samples: list[Sample] = []
        """Changes of replicas between the events."""
        self.look: Callable[[], None] = lambda: None
        """Called before each event, if `keep`: adds to the samples."""

    def note(self, text: str) -> None:
        """Add a line to the trace. Equal schedules give equal lines."""
        line = f"{self._world.now_us} {text}\n"
        self._undigested.append(line)
        if len(self._undigested) == LINES_A_DIGESTION:
            self._take_in()
        if self.keep:
            self.lines.append(line[:-1])

    def _take_in(self) -> None:
        self._digest.update("".join(self._undigested).encode())
        self._undigested.clear()

    def log_event(self, source: str, target: str, text: str) -> None:
        """Add a readable event; call it only if `keep`."""
        self.look()
        self.events.append((self._world.now_us, source, target, text))

    @property
    def digest(self) -> str:
        self._take_in()
        return self._digest.hexdigest()


class Killed(BaseException):
    """A process ends in the middle of a step; nothing of the step is gone on with."""

    def __init__(self, end: Callable[[], None]) -> None:
        super().__init__()
        self.end = end


class World:
    """Time and chance of one simulated run."""

    def __init__(self, seed: int, keep_trace: bool = False, by_history: bool = False) -> None:
        """With `by_history` invariants of nodes do not count: only the clients' histories can show a violation."""
        self.seed = seed
        self.by_history = by_history
        self.now_us = 0
        self.steps = 0
        self.trace = Trace(self, keep_trace)
        self.rows: list[dict[str, Any]] | None = None
        """All actions of the specification that nodes trace, in order (`spec/cluster_trace.py`), if they are wanted."""
        self.counts: Counter[str] = Counter()
        """How often each kind of thing happened: messages, faults, answers by API and error."""
        self._moments: list[int] = []
        """A heap of the times at which something is due."""
        self._due: dict[int, deque[tuple[Callable[..., None], tuple[Any, ...]]]] = {}
        """What is due at each of them, in the order in which it was asked for."""

    @property
    def now_ms(self) -> int:
        return self.now_us // MICROSECONDS_A_MS

    def chance(self, name: str) -> random.Random:
        """A stream of chance of its own, the same in every process and version.

        It is the one that the text itself would seed; PyPy takes that digest in Python, which costs it a tenth of a run.
        """
        text = f"{self.seed}/{name}".encode()
        return random.Random(int.from_bytes(text + hashlib.sha512(text).digest()))

    def broken(self, rule: str, text: str) -> None:
        """A promise is broken, by a check that knows more than a client. Errors: Violation, but `by_history`."""
        if not self.by_history:
            raise Violation(rule, text)
        self.counts[f"broken {rule}"] += 1

    def at(self, time_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Schedule an action at a time, at the earliest now."""
        now_us = self.now_us
        moment = time_us if time_us > now_us else now_us
        due = self._due.get(moment)
        if due is None:
            due = self._due[moment] = deque()
            heappush(self._moments, moment)
        due.append((action, arguments))

    def after(self, delay_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Schedule an action after a delay."""
        self.at(self.now_us + delay_us, action, *arguments)

    def run(self, until_us: int, done: Callable[[], bool] | None = None, look_every_us: int = 0) -> None:
        """Let time pass up to a moment, or until `done`, which is asked before each event, or no more often than that.

        Errors: Violation, from any check.
        """
        moments = self._moments
        looks_at_us = self.now_us
        while moments and moments[0] <= until_us:
            if done is not None and self.now_us >= looks_at_us:
                if done():
                    return
                looks_at_us = self.now_us + look_every_us
            self.now_us = moments[0]
            due = self._due[self.now_us]
            action, arguments = due.popleft()
            if not due:
                del self._due[heappop(moments)]
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise Violation("endless", f"more than {MAX_STEPS} steps up to {self.now_ms} ms")
            try:
                action(*arguments)
            except Killed as killed:
                killed.end()
        if done is None or not done():
            self.now_us = max(self.now_us, until_us)
