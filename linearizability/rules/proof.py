"""Transactions of unknown outcome that a read shows to have been committed, and since when that is known."""

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
    """Transactions, sorted, and for each when the first read ended that shows it (nanoseconds)."""

    transactions: Array = field(default_factory=_none)
    at: Array = field(default_factory=_none)

    @staticmethod
    def of(transactions: Array, at: Array) -> Proofs:
        """From reads in any order; of a transaction that several show the earliest counts."""
        distinct, place = np.unique(transactions, return_inverse=True)
        first = np.full(len(distinct), NEVER)
        np.minimum.at(first, place, at)
        return Proofs(distinct, first)

    def also(self, others: Proofs) -> Proofs:
        """These proofs together with those of other partitions."""
        if not len(others.transactions):
            return self
        both = (self.transactions, others.transactions), (self.at, others.at)
        return Proofs.of(np.concatenate(both[0]), np.concatenate(both[1]))

    def times(self, transactions: Array) -> Array:
        """When each of these transactions was shown to have been committed; NEVER where it was not."""
        if not len(self.transactions):
            return np.full(len(transactions), NEVER)
        place = np.minimum(np.searchsorted(self.transactions, transactions), len(self.transactions) - 1)
        return np.where(self.transactions[place] == transactions, self.at[place], NEVER)
