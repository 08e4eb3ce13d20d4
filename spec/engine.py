"""Engines that run TLC: in this process, one run after another, or on workers of Spark (`on_spark.py`), many at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from spec import checker
from spec.checker import Job, Outcome

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(ABC):
    """Runs TLC. Apart from times, an outcome depends on its job alone, not on the engine."""

    @abstractmethod
    def check(self, job: Job) -> Outcome:
        """One run of TLC. Errors: those of the engine."""

    @abstractmethod
    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Generator[tuple[Item, Result], None, None]:
        """Each item and its result of `work`, which calls `check`, as soon as it is there. Closing the iterator ends all runs."""


class LocalEngine(Engine):
    """One run at a time, in the order of the items; each starts when the iterator is advanced."""

    def check(self, job: Job) -> Outcome:
        return checker.check(job)

    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Generator[tuple[Item, Result], None, None]:
        return ((item, work(item)) for item in items)


LOCAL = LocalEngine()
