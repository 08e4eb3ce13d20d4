"""Makes bytes durable: one wait after the other or, at a clean shutdown, many side by side.

A file system flushes many files in little more time than one, and a shutdown flushes several files of each log. All are durable
at the end of `side_by_side`. Before that none is known to be durable, and nothing that depends on one may be written.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

Act = Callable[[], None]
"""Makes something durable. Errors: OSError."""

RunAll = Callable[[Sequence[Act]], None]
"""Runs all acts, even where some fail. Errors: OSError, of the first that failed."""

MOST_POSTPONED = 200
"""Limit of postponed acts: each may hold a descriptor."""


def run_in_turn(acts: Sequence[Act]) -> None:
    """One after the other. Errors: OSError, of the first that failed."""
    errors: list[OSError] = []
    for act in acts:
        try:
            act()
        except OSError as error:
            errors.append(error)
    if errors:
        raise errors[0]


class Failing:
    """Keeps the first failure of a disk's operations, and runs or postpones its flushes."""

    def __init__(self, run_all: RunAll = run_in_turn) -> None:
        self.failure: OSError | None = None
        self._run_all = run_all
        self._postponed: dict[object, Act] | None = None
        """Acts for the end of `side_by_side`, by file or path; None outside of it."""
        self._gathered: list[Act] | None = None
        """The list that `gathered` yields; None outside of it."""

    def failed(self, error: OSError) -> None:
        if self.failure is None and not isinstance(error, FileNotFoundError):
            self.failure = error

    @contextmanager
    def noticed(self) -> Generator[None]:
        """Record an OSError of the block as a failure of the disk, and raise it."""
        try:
            yield
        except OSError as error:
            self.failed(error)
            raise

    def make_durable(self, what: object, act: Act) -> None:
        """Run `act` now, or at the end of `side_by_side`; within `gathered` only list it. Errors: OSError."""
        if self._gathered is not None:
            self._gathered.append(act)
            return
        if self._postponed is None:
            with self.noticed():
                act()
            return
        if what in self._postponed or len(self._postponed) == MOST_POSTPONED:
            self._carry_out_postponed()
        self._postponed[what] = act

    @contextmanager
    def gathered(self) -> Generator[list[Act]]:
        """See `Disk`."""
        acts = self._gathered = []
        try:
            yield acts
        finally:
            self._gathered = None

    @contextmanager
    def side_by_side(self) -> Generator[None]:
        """See `Disk`."""
        self._postponed = {}
        try:
            yield
            self._carry_out_postponed()
        finally:
            self._postponed = None

    def _carry_out_postponed(self) -> None:
        postponed, self._postponed = self._postponed or {}, None
        try:
            with self.noticed():
                self._run_all([*postponed.values()])
        finally:
            self._postponed = {}
