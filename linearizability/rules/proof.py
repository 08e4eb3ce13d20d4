"""Operations of unknown outcome that a read shows to have happened, and since when that is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from linearizability.history.keys import NEVER

Array = npt.NDArray[Any]


def _none() -> Array:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Proofs:
    """Operations, sorted, and for each when the first read ended that shows it (nanoseconds)."""

    operations: Array = field(default_factory=_none)
    at: Array = field(default_factory=_none)

    @staticmethod
    def of(operations: Array, at: Array) -> Proofs:
        """From reads in any order; of an operation that several show the earliest counts."""
        distinct, place = np.unique(operations, return_inverse=True)
        first = np.full(len(distinct), NEVER)
        np.minimum.at(first, place, at)
        return Proofs(distinct, first)

    def also(self, others: Proofs) -> Proofs:
        """These proofs together with those of other partitions."""
        if not len(others.operations):
            return self
        both = (self.operations, others.operations), (self.at, others.at)
        return Proofs.of(np.concatenate(both[0]), np.concatenate(both[1]))

    def times(self, operations: Array) -> Array:
        """When each of these operations was shown to have happened; NEVER where it was not."""
        if not len(self.operations):
            return np.full(len(operations), NEVER)
        place = np.minimum(np.searchsorted(self.operations, operations), len(self.operations) - 1)
        return np.where(self.operations[place] == operations, self.at[place], NEVER)
