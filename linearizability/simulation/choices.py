"""The source of a recipe's choices."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Choices(Protocol):
    """The source of a recipe's choices."""

    def integer(self, low: int, high: int) -> int:
        """A number from low to high, inclusive."""
        ...

    def one_of(self, options: Sequence[T]) -> T:
        """One of several; the first is the simplest."""
        ...


class SeededChoices:
    """Choices by a seed; another stream has others for the same seed."""

    def __init__(self, seed: int, stream: str = "schedule") -> None:
        self._chance = random.Random(f"{stream}/{seed}")

    def integer(self, low: int, high: int) -> int:
        return self._chance.randint(low, high)

    def one_of(self, options: Sequence[T]) -> T:
        return options[self._chance.randrange(len(options))]
