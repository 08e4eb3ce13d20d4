# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeStubs=false
# PyArrow has no types.
"""Rules over histories, and their findings.

A rule is a record (`Rule`) in a module of its own: the definition of the anomaly, the promise that it breaks and its source, the
facts that it needs, its cost, a small history that shows it, and its check. A check is a pure function from one partition's facts
(or one run's transactions) to findings. It runs unchanged in this process and inside Spark's workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from linearizability.history.contract import Contract
from linearizability.history.excuses import Excuse
from linearizability.history.keys import NEVER
from linearizability.rules.cut import NO_PLACE, Cut
from linearizability.rules.proof import Proofs

if TYPE_CHECKING:
    from linearizability.rules.partition import PartitionHistory

MAX_WITNESSES = 100
"""Anomalies of one rule, partition and reason that are kept with their witness; all are counted."""


UNPROVEN = "not known: "
"""The reason of an anomaly begins so where the history does not show whether the contract permits it."""


class Weight(Enum):
    """What an anomaly that the contract does not permit means for the verdict."""

    VIOLATION = "violation"
    """A promise was broken: invalid."""
    UNPROVEN = "unproven"
    """The history does not show whether a promise was broken: unknown."""
    NOTE = "note"
    """Worth knowing, never invalid."""


@dataclass(frozen=True)
class Anomaly:
    """One finding of a rule, with the smallest set of operations that shows it."""

    rule: str
    topic: str
    partition: int
    offset: int
    value: int
    operations: tuple[int, ...]
    text: str
    permitted: str = ""
    """Why the contract permits it; empty where it does not. Where it begins with UNPROVEN, that is not decided."""


@dataclass(frozen=True)
class Found:
    """Anomalies of one rule in one partition that are permitted for the same reason, or not at all."""

    rule: str
    permitted: str
    count: int
    anomalies: tuple[Anomaly, ...]

    @property
    def open(self) -> bool:
        """Whether the history does not show if the contract permits them: the verdict becomes unknown."""
        return self.permitted.startswith(UNPROVEN)


@dataclass(frozen=True)
class Context:
    """The inputs of a check besides the facts."""

    contract: Contract = field(default_factory=Contract)
    proven: Proofs = field(default_factory=Proofs)
    """Transactions over several partitions of which an ok poll of committed records was given a record in some partition."""
    faults_at: int = NEVER
    """When the first fault began; NEVER where there was none."""
    heals_at: int = -1
    """When the last fault ended; -1 where there was none."""
    ends_at: int = -1
    """When the last operation began or was answered; -1 where that is not known."""
    excuses: tuple[Excuse, ...] = ()
    """Faults that excuse losses which the contract does not permit."""
    is_whole: bool = True
    """Whether no part of the history is missing; else operations without a record may have happened."""
    is_timed: bool = True
    """Whether no clock stepped back: else it is not known which of two processes was first, and an excuse may cover any time."""


Check = Callable[["PartitionHistory", Context], Iterator[Found]]


@dataclass(frozen=True)
class Rule:
    """One rule; see the module's docstring. Its `id` is the anomaly's name, Jepsen's where Jepsen has one."""

    id: str
    definition: str
    """The anomaly, in one sentence."""
    promise: str
    """When it is a violation, and when the contract permits it."""
    source: str
    needs: str
    cost: str
    example: str
    """A history in the notation of `linearizability.history.notation`, in which the rule finds exactly one anomaly."""
    check: Check
    weight: Weight = Weight.VIOLATION
    rests_on_absence: bool = False
    """An incomplete history may show this anomaly without a violation."""
    rests_on_time: bool = False
    """Clocks that step back may show this anomaly without a violation."""
    optional: bool = False
    """Only judged where the contract or the caller asks for it."""
    cut: Cut | None = None
    """How the rule judges a partition that is cut into parts; None: it needs the whole partition in one place."""


@dataclass(frozen=True, kw_only=True)
class RunRule:
    """A rule over a whole run: its partitions emit rows of four integers, which come together in its check."""

    id: str
    definition: str
    promise: str
    source: str
    needs: str
    cost: str
    example: str
    emit: Callable[[PartitionHistory, Context], npt.NDArray[Any]]
    check: Callable[[npt.NDArray[Any], Context], Iterator[Found]]
    weight: Weight = Weight.VIOLATION
    rests_on_absence: bool = False
    rests_on_time: bool = False
    optional: bool = False
    cut: None = None


FOUND_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("rule", pa.string()),
        ("permitted", pa.string()),
        ("count", pa.int64()),
        ("offset", pa.int64()),
        ("value", pa.int64()),
        ("operations", pa.list_(pa.int64())),
        ("text", pa.string()),
    ]
)
"""Findings as a table: one row an anomaly; the first row of a `Found` carries its count, the others 0."""


Witness = tuple[Any, Any, Iterable[Any], str]
"""The evidence of one anomaly: offset, value, operations, text."""


def found(
    rule: str,
    partition: PartitionHistory,
    indices: npt.NDArray[np.intp],
    witness: Callable[[int], Witness],
    permitted: str | Callable[[npt.NDArray[Any]], npt.NDArray[Any]] = "",
    place: npt.NDArray[Any] | None = None,
) -> Iterator[Found]:
    """Findings for the anomalies at `indices`, of which a part of a partition keeps those whose place it owns.

    `witness(index)` returns offset, value, operations and text of one; it is called for the first MAX_WITNESSES of each
    reason only. `permitted` is one reason for all, or a function from indices to reasons. `place[index]` is the offset or
    the operation (as the rule's cut says) that owns the anomaly; without it the anomaly has no place in the log.
    """
    if partition.owned is not None:
        places = np.full(len(indices), NO_PLACE) if place is None else place[indices]
        indices = indices[partition.owned(places)]
    if not len(indices):
        return
    reasons = permitted(indices) if callable(permitted) else np.full(len(indices), permitted)
    for reason in np.unique(reasons):
        chosen = indices[reasons == reason]
        anomalies: list[Anomaly] = []
        for index in chosen[:MAX_WITNESSES]:
            offset, value, operations, text = witness(int(index))
            named = tuple(dict.fromkeys(int(operation) for operation in operations))
            anomalies.append(
                Anomaly(rule, partition.topic, partition.partition, int(offset), int(value), named, text, str(reason))
            )
        yield Found(rule, str(reason), len(chosen), tuple(in_order(anomalies)))


def in_order(anomalies: Iterable[Anomaly]) -> list[Anomaly]:
    """Anomalies of one rule and reason by their places in the log."""
    return sorted(anomalies, key=lambda anomaly: (anomaly.offset, anomaly.value, anomaly.operations, anomaly.text))


def found_table(run: str, findings: Sequence[Found]) -> pa.Table:
    """Findings as rows of FOUND_SCHEMA."""
    rows = [
        {
            "run": run,
            "topic": anomaly.topic,
            "partition": anomaly.partition,
            "rule": item.rule,
            "permitted": item.permitted,
            "count": item.count if number == 0 else 0,
            "offset": anomaly.offset,
            "value": anomaly.value,
            "operations": list(anomaly.operations),
            "text": anomaly.text,
        }
        for item in findings
        for number, anomaly in enumerate(item.anomalies)
    ]
    return pa.Table.from_pylist(rows, schema=FOUND_SCHEMA)
