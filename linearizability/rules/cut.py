"""Where a partition may be cut, and what each rule carries across the cut.

A busy partition may hold more facts than a worker should. It is then cut into *parts*, by offsets or by operations, and
each rule that can be cut judges the parts one by one. The state that crosses a cut is made of facts: a part holds all
facts of its own range and, besides, the few facts of other parts that the rules need to see. So a check runs over a part
as it runs over a partition, and an anomaly counts in the one part that owns its place.

Every part is given

- the *strays*: records whose value occurs in more than one range (sent here and read there, sent twice, stored twice), and
  those whose send failed, is in doubt, or has no offset; with all the facts of their value. So every part knows the writer of
  each read, which values are repeated, and the outcome of sends in doubt;
- producers' operations that reach over a cut, with all their records;
- what else is known of the offsets of these facts, the final reads, and the highest and the latest reported log start.

What a rule needs beyond that is its `carry`: it picks facts of a part for all the others, such as the record with the
earliest completion, which is all that a running minimum needs to know of what lies above.

Facts without a place in the log (commits, states of nodes, assignments, registers) are in the first part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from linearizability.rules.proof import Proofs

if TYPE_CHECKING:
    from linearizability.rules.partition import PartitionHistory
    from linearizability.rules.rule import Context

Array = npt.NDArray[Any]
NO_PLACE = -1
"""The place of a fact without one in the log; the first part owns it."""


class By(Enum):
    """The unit of a cut's ranges."""

    OFFSET = "offset"
    OPERATION = "operation"


@dataclass(frozen=True)
class Owned:
    """The range that a part owns, and what is known of the whole partition."""

    by: By
    low: int
    high: int
    proven: Proofs
    """Transactions of unknown outcome that were committed, by the facts of the whole partition."""

    def __call__(self, places: Array) -> npt.NDArray[np.bool_]:
        return (places >= self.low) & (places < self.high)


Carry = Callable[["PartitionHistory", "Context"], Array]
"""Picks the facts that other parts must see: indices of rows of the part."""


def nothing(partition: PartitionHistory, context: Context) -> Array:
    return np.empty(0, np.intp)


@dataclass(frozen=True)
class Cut:
    """How a rule judges a partition in parts."""

    by: By
    state: str
    """The state that it carries besides the facts that every part has, in words."""
    carry: Carry = nothing
    gaps: Callable[[PartitionHistory], Array] | None = None
    """Ranges of offsets (first, last) of which the part must know all records besides."""
    single: bool = False
    """The rule finds one anomaly a partition at most: the first of those that the contract does not permit."""


BY_VALUE = Cut(By.OFFSET, "nothing: strays are known everywhere")
BY_SLOT = Cut(By.OFFSET, "nothing: it looks at one offset at a time")
APART = Cut(By.OFFSET, "nothing: what it looks at has no place in the log and stays together")


def owned(partition: PartitionHistory, places: Array) -> npt.NDArray[np.bool_]:
    """Which of these places the partition or part owns."""
    return np.ones(len(places), bool) if partition.owned is None else partition.owned(places)


def first_of_each(keys: Array) -> npt.NDArray[np.bool_]:
    """Where in sorted keys each of them appears first."""
    first = np.ones(len(keys), bool)
    first[1:] = keys[1:] != keys[:-1]
    return first


def last_of_each(keys: Array) -> npt.NDArray[np.bool_]:
    """Where in sorted keys each of them appears last."""
    return first_of_each(keys[::-1])[::-1]
