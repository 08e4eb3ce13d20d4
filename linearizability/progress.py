"""Progress reports of long work on standard error, with an estimate of the remaining time.

On a terminal it is one line that is written over; in pipes, and with `tidegauge --verbose COMMAND` or TIDEGAUGE_VERBOSE=1, a line
a step. With `tidegauge --quiet COMMAND` or TIDEGAUGE_QUIET=1 results and errors are reported alone. Nothing here is coloured.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Self, TextIO

QUIET, VERBOSE = "TIDEGAUGE_QUIET", "TIDEGAUGE_VERBOSE"
"""Set by the options; child processes inherit them."""
LEAST_SHARE = 0.1
"""The least share of work done before the rest is estimated."""
CLEAR = "\r\x1b[K"


def is_quiet() -> bool:
    """Whether results and errors alone are reported."""
    return os.environ.get(QUIET, "") not in ("", "0")


def is_verbose() -> bool:
    """Whether each step has a line of its own, also on a terminal."""
    return os.environ.get(VERBOSE, "") not in ("", "0") and not is_quiet()


def choose(variable: str) -> None:
    """QUIET or VERBOSE from now on: the option that comes last counts."""
    os.environ.pop(VERBOSE if variable == QUIET else QUIET, None)
    os.environ[variable] = "1"


def time_left(share: float, seconds: float) -> str:
    """How long the rest takes if it goes on as until now, to be put behind what was said; empty while that is a guess."""
    if not LEAST_SHARE <= share < 1:
        return ""
    left = seconds * (1 - share) / share
    return f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left"


class Progress:
    """The progress of work that has so many steps, or steps of so much weight in all; `with` takes the line away in the end.

    Called with a text, it reports that the next of equal steps begins.
    """

    EVERY_S = 10.0
    """How often a line is written in a pipe of what changes all the time."""

    def __init__(
        self, total: float = 0, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.total = total
        self._stream = stream or sys.stderr
        self._clock = clock
        self._began = clock()
        self._begun = 0
        self._last_s = 0.0
        self._terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def __call__(self, text: str) -> None:
        self.step(text, self._begun)
        self._begun += 1

    def step(self, text: str, done: float) -> None:
        """Report that a step begins, when `done` of the total is done."""
        elapsed = self._clock() - self._began
        self._last_s = elapsed
        self._write(text + time_left(done / self.total if self.total else 0.0, elapsed))

    def often(self, text: str, done: float) -> None:
        """As `step`, of something that changes all the time."""
        if self._terminal or is_verbose() or self._clock() - self._began - self._last_s >= self.EVERY_S:
            self.step(text, done)

    def keep(self, text: str) -> None:
        """A line that stays on a terminal too, such as the result of a step."""
        self.clear()
        if not is_quiet():
            print(self._since() + text, file=self._stream, flush=True)

    def clear(self) -> None:
        """Take the line away, before something else is printed."""
        if self._shown:
            self._stream.write(CLEAR)
            self._stream.flush()
        self._shown = False

    def _write(self, text: str) -> None:
        if is_quiet():
            return
        if self._terminal and not is_verbose():
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"{CLEAR}{text if len(text) <= width else text[: width - 1] + '…'}")
            self._stream.flush()
            self._shown = True
        else:
            print(self._since() + text, file=self._stream, flush=True)

    def _since(self) -> str:
        return f"{self._clock() - self._began:7.1f} s  " if is_verbose() else ""
