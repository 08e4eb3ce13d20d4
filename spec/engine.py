"""What runs TLC: this process, one run after another, or the workers of Spark (`on_spark.py`), many at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from spec import checker
from spec.checker import Job, Outcome

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(ABC):
    """An outcome is a function of its job, seconds aside: it does not depend on the engine."""

    @abstractmethod
    def check(self, job: Job) -> Outcome:
        """One run of TLC. Errors: those of the engine."""

    @abstractmethod
    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Generator[tuple[Item, Result], None, None]:
        """What `work`, which calls `check`, gives for each item, as it is there. To close the iterator ends what runs."""


class LocalEngine(Engine):
    """One run at a time, in the order of the items, and none before it is asked for."""

    def check(self, job: Job) -> Outcome:
        return checker.check(job)

    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Generator[tuple[Item, Result], None, None]:
        return ((item, work(item)) for item in items)


LOCAL = LocalEngine()
