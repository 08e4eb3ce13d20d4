"""One partition's facts as NumPy arrays, and values that several rules need, computed once.

The trick that makes the rules linear: a log's offsets are nearly dense, so everything that concerns an offset is a table
indexed by *slot* (the offset less the smallest one; its rank where offsets are sparse). A sort is left only for values.

A *position* of a record in the log is known when its send was acknowledged with an offset, when its send is not known to
have failed and a poll returned it, or when any consumer polled it. The **log** is the set of those positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from linearizability.history.facts import Flag, Kind, Outcome
from linearizability.history.keys import NEVER, join_key
from linearizability.rules.cut import Owned
from linearizability.rules.proof import Proofs

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Columns = Mapping[str, npt.NDArray[Any]]

SPARSE = 4
"""Offsets that span more than this many times their number (plus a little) are ranked by a sort instead."""


class Rows:
    """Some of a partition's facts, column by column."""

    kind: Array
    process: Array
    operation: Array
    position: Array
    invoked: Array
    completed: Array
    outcome: Array
    flags: Array
    offset: Array
    value: Array
    session: Array
    transaction: Array
    node: Array
    epoch: Array
    group: Array
    extra: Array

    def __init__(self, columns: Columns, index: npt.NDArray[np.intp] | slice | None = None) -> None:
        self._columns = columns
        self._index = index
        first = next(iter(columns.values()))
        self.count = len(first if index is None else first[index])

    def __getattr__(self, name: str) -> Array:
        try:
            column = self._columns[name]
        except KeyError as error:
            raise AttributeError(name) from error
        value = column if self._index is None else column[self._index]
        self.__dict__[name] = value
        return value

    def __len__(self) -> int:
        return self.count

    def where(self, mask: Mask) -> Rows:
        """The rows that the mask selects, in order."""
        names = list(self._columns)
        index = np.flatnonzero(mask)
        return Rows(_Lazy(self, names), index)

    def flag(self, flag: Flag) -> Mask:
        return (self.flags & int(flag)) != 0


class _Lazy(Mapping[str, npt.NDArray[Any]]):
    """The columns of other rows, fetched when they are asked for."""

    def __init__(self, rows: Rows, names: list[str]) -> None:
        self._rows, self._names = rows, names

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return getattr(self._rows, name)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class PartitionHistory:
    """One partition of one run, or the part of it that is `owned`. Rows are in the order (kind, process, operation, position)."""

    def __init__(self, run: str, topic: str, partition: int, columns: Columns, owned: Owned | None = None) -> None:
        self.run, self.topic, self.partition = run, topic, partition
        self.owned = owned
        self._columns = in_order(columns)
        self._computed: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return join_key(self.topic, self.partition)

    @cached_property
    def _by_kind(self) -> Array:
        """Where the rows of each kind begin, and the end."""
        return np.searchsorted(self._columns["kind"], np.arange(len(Kind) + 1))

    def rows(self, kind: Kind) -> Rows:
        return Rows(self._columns, slice(self._by_kind[kind], self._by_kind[kind + 1]))

    def places_of(self, kind: Kind, rows: Array) -> npt.NDArray[np.intp]:
        """Rows of one kind as rows of the partition."""
        return self._by_kind[kind] + rows if len(rows) else np.empty(0, np.intp)

    @property
    def columns(self) -> Columns:
        return self._columns

    @cached_property
    def appends(self) -> Rows:
        return self.rows(Kind.APPEND)

    @cached_property
    def observations(self) -> Rows:
        return self.rows(Kind.OBSERVATION)

    @cached_property
    def drains(self) -> Rows:
        return self.rows(Kind.DRAIN)

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """A value of this partition that several rules need, computed once."""
        if name not in self._computed:
            self._computed[name] = compute()
        return self._computed[name]

    # -- slots -----------------------------------------------------------------------------------------------------

    @cached_property
    def _slots(self) -> tuple[Array, Array, Array]:
        """For all offsets: slot -> offset, each append's slot, each observation's slot (-1: no offset)."""
        mine, seen = self.appends.offset, self.observations.offset
        both = np.concatenate([mine, seen])
        known = both >= 0
        if not known.any():
            return np.empty(0, np.int64), np.full(len(mine), -1), np.full(len(seen), -1)
        some = both[known]
        low, high = int(some.min()), int(some.max())
        if high - low < SPARSE * len(both) + 1024:
            offsets = np.arange(low, high + 1)
            slots = np.where(known, both - low, -1)
        else:
            offsets = np.unique(some)
            slots = np.where(known, np.searchsorted(offsets, both), -1)
        return offsets, slots[: len(mine)], slots[len(mine) :]

    @cached_property
    def slot_offset(self) -> Array:
        return self._slots[0]

    @cached_property
    def append_slot(self) -> Array:
        """The slot of each append's acknowledged offset, -1 where there is none."""
        return self._slots[1]

    @cached_property
    def observation_slot(self) -> Array:
        return self._slots[2]

    # -- who wrote what was read -------------------------------------------------------------------------------------

    @cached_property
    def repeated_values(self) -> Array:
        """Values that were sent more than once: their records cannot be judged. Sorted."""
        return repeated(self.appends.value)

    def is_repeated(self, values: Array) -> Mask:
        return is_in(values, self.repeated_values)

    @cached_property
    def writer(self) -> Array:
        """For each observation the append of its value: an index into `appends`, -1 where no client sent it, or several sends
        may have stored it.

        Nearly always the append that was acknowledged at that very offset; only the rest is joined by value.
        """
        appends, observations = self.appends, self.observations
        writer = np.full(len(observations), -1)
        if not len(appends) or not len(observations):
            return writer
        acknowledged = np.flatnonzero((appends.outcome == Outcome.OK) & (self.append_slot >= 0))
        at_slot = np.full(len(self.slot_offset) + 1, -1)  # one more: slot -1 finds nothing
        at_slot[self.append_slot[acknowledged]] = acknowledged
        candidate = at_slot[self.observation_slot]
        same = (candidate >= 0) & (appends.value[candidate] == observations.value)
        writer[same] = candidate[same]
        loose = np.flatnonzero(~same & ~self.is_repeated(observations.value))
        if not len(loose):
            return writer
        wanted = np.unique(observations.value[loose])
        sent = np.flatnonzero(is_in(appends.value, wanted))
        found = np.full(len(wanted), -1)
        found[np.searchsorted(wanted, appends.value[sent])] = sent
        writer[loose] = found[np.searchsorted(wanted, observations.value[loose])]
        return writer

    @cached_property
    def read(self) -> Mask:
        """For each append: some poll returned its record, whatever became of that poll's operation."""
        return self._marked(self.writer)

    @cached_property
    def read_by_ok(self) -> Mask:
        """For each append: a poll that completed as ok returned its record."""
        return self._marked(self.writer[self.observations.outcome == Outcome.OK])

    @cached_property
    def sought_groups(self) -> Array:
        """Groups of which a member sought a position: their offsets may lie beyond records that no member read. Sorted."""
        groups = self.observations.group
        return np.unique(groups[self.observations.flag(Flag.SOUGHT) & (groups >= 0)])

    @cached_property
    def groups_with_seeks(self) -> Array:
        """`sought_groups`, and groups of which a member committed after a seek, whether or not it polled again. Sorted."""
        commits = self.rows(Kind.COMMIT)
        return np.union1d(self.sought_groups, commits.group[commits.flag(Flag.SOUGHT) & (commits.group >= 0)])

    @cached_property
    def groups_from_end(self) -> Array:
        """Groups of which a member without a position goes on at the log's end. Sorted."""
        groups = [rows.group[rows.flag(Flag.FROM_END)] for rows in (self.observations, self.rows(Kind.COMMIT))]
        return np.unique(np.concatenate(groups))

    @cached_property
    def jumping(self) -> Mask:
        """For each observation whether its consumer need not have read the records below."""
        return self.observations.flag(Flag.SOUGHT) | is_in(self.observations.group, self.groups_with_seeks)

    def _marked(self, writers: Array) -> Mask:
        mask = np.zeros(len(self.appends), bool)
        mask[writers[writers >= 0]] = True
        return mask

    @cached_property
    def proven_transactions(self) -> Proofs:
        """Transactions of unknown outcome that an ok poll proves, here or in another partition.

        A transaction happens as a whole, so one of its records proves the others; but only if it was given to a reader of
        committed records.
        """
        if self.owned is not None:
            return self.owned.proven
        unknown = (self.appends.outcome == Outcome.INFO) & self.appends.flag(Flag.TRANSACTIONAL)
        rows = self._committed_reads
        rows = rows[unknown[self.writer[rows]]]
        here = Proofs.of(self.appends.transaction[self.writer[rows]], self.observations.completed[rows])
        return here.also(self._proven_by_others)

    @property
    def _committed_reads(self) -> Array:
        """The observations by ok polls of committed records whose writer is known."""
        committed = (self.observations.outcome == Outcome.OK) & self.observations.flag(Flag.READ_COMMITTED)
        return np.flatnonzero(committed & (self.writer >= 0))

    _proven_by_others = Proofs()

    def prove(self, proofs: Proofs) -> None:
        """Set the transactions over several partitions that another partition proves to have happened."""
        self._proven_by_others = proofs

    @cached_property
    def shown_committed(self) -> Array:
        """For each append when it was first known that its transaction had been committed: a reader of committed records was
        given it, or another record of the transaction. NEVER where none was. A send of a transaction that is recorded step by
        step and had no answer may not have been stored, so only its own record proves it."""
        appends, rows = self.appends, self._committed_reads
        shown = np.full(len(appends), NEVER)
        np.minimum.at(shown, self.writer[rows], self.observations.completed[rows])
        together = appends.flag(Flag.ACKNOWLEDGED) | (appends.transaction == appends.operation)
        by_others = self.proven_transactions.times(appends.transaction)
        return np.where(together, np.minimum(shown, by_others), shown)

    @cached_property
    def happened(self) -> Mask:
        """For each append: it certainly took effect. Outside of transactions each record of a send speaks for itself."""
        certain = self.appends.outcome == Outcome.OK
        unknown = self.appends.outcome == Outcome.INFO
        if unknown.any():
            transactional = self.appends.flag(Flag.TRANSACTIONAL)
            certain = certain | (unknown & np.where(transactional, self.shown_committed < NEVER, self.read_by_ok))
        return certain

    # -- the log -----------------------------------------------------------------------------------------------------

    @cached_property
    def log_appends(self) -> npt.NDArray[np.intp]:
        """Appends that took effect and whose offset was reported."""
        return np.flatnonzero(self.happened & (self.append_slot >= 0))

    @cached_property
    def reported_appends(self) -> npt.NDArray[np.intp]:
        """Appends whose offset was reported, whether or not they are known to have taken effect: no other record is there.
        A record of a transaction that was aborted keeps its place."""
        reported = (self.appends.outcome != Outcome.FAIL) | self.appends.flag(Flag.ACKNOWLEDGED)
        return np.flatnonzero(reported & (self.append_slot >= 0))

    @cached_property
    def log_value(self) -> Array:
        """The value at each slot of the log (one of them where histories disagree); meaningless where not `in_log`."""
        value = np.zeros(len(self.slot_offset), np.int64)
        value[self.append_slot[self.log_appends]] = self.appends.value[self.log_appends]
        placed = self.observation_slot >= 0
        if placed.all():
            value[self.observation_slot] = self.observations.value
        else:
            value[self.observation_slot[placed]] = self.observations.value[placed]
        return value

    @cached_property
    def in_log(self) -> Mask:
        """Whether a record is known to have been at each slot."""
        mask = np.zeros(len(self.slot_offset) + 1, bool)
        mask[self.append_slot[self.log_appends]] = True
        mask[self.observation_slot] = True
        return mask[:-1]

    @cached_property
    def disagreeing(self) -> Mask:
        """Slots at which two different values are known."""
        mask = np.zeros(len(self.slot_offset) + 1, bool)
        at = self.append_slot[self.log_appends]
        mask[at[self.log_value[at] != self.appends.value[self.log_appends]]] = True
        at = self.observation_slot
        if len(self.slot_offset):
            mask[at[(self.log_value[at] != self.observations.value) & (at >= 0)]] = True
        return mask[:-1]

    @cached_property
    def log_pairs(self) -> tuple[Array, Array]:
        """All different (slot, value) pairs of the log; more pairs than slots exactly where histories disagree."""
        slots = np.flatnonzero(self.in_log & ~self.disagreeing)
        values = self.log_value[slots]
        if not self.disagreeing.any():
            return slots, values
        mine = self.log_appends[self.disagreeing[self.append_slot[self.log_appends]]]
        seen = np.flatnonzero((self.observation_slot >= 0) & self.disagreeing[self.observation_slot])
        slot = np.concatenate([self.append_slot[mine], self.observation_slot[seen]])
        value = np.concatenate([self.appends.value[mine], self.observations.value[seen]])
        pairs = np.unique(np.stack([slot, value]), axis=1)
        return np.concatenate([slots, pairs[0]]), np.concatenate([values, pairs[1]])

    @cached_property
    def records_before(self) -> Array:
        """For each slot, how many slots below it hold a record; one more entry for the end."""
        counts = np.zeros(len(self.slot_offset) + 1, np.int64)
        np.cumsum(self.in_log, out=counts[1:])
        return counts

    @cached_property
    def append_position(self) -> Array:
        """The slot of each append that has one: acknowledged, or (where the answer got lost) observed. -1: not known."""
        position = np.where(self.happened, self.append_slot, -1)
        missing = (position < 0) & self.read
        if missing.any():
            placed = np.flatnonzero((self.writer >= 0) & (self.observation_slot >= 0))
            placed = placed[missing[self.writer[placed]]]
            position[self.writer[placed[::-1]]] = self.observation_slot[placed[::-1]]
        return position


def in_order(columns: Columns) -> Columns:
    """The columns sorted by kind, process, operation and position, untouched where they are so already."""
    order = order_of(columns)
    return columns if order is None else {name: column[order] for name, column in columns.items()}


def order_of(columns: Columns) -> npt.NDArray[np.intp] | None:
    """The rows by kind, process, operation and position; None where they are so already.

    Operations of one file are numbered through, also where it serves several processes: by their numbers alone the
    processes would be mixed. Within a kind rows mostly are in order, and a sort by kind alone is cheap.
    """
    kind, process, operation, position = (columns[name] for name in ("kind", "process", "operation", "position"))
    if len(kind) < 2:
        return None
    order = None if (kind[1:] >= kind[:-1]).all() else np.argsort(kind, kind="stable")
    if order is not None:
        kind, process, operation, position = (each[order] for each in (kind, process, operation, position))
    later = operation[1:] > operation[:-1]
    in_place = later | ((operation[1:] == operation[:-1]) & (position[1:] >= position[:-1]))
    in_place &= process[1:] == process[:-1]
    if (in_place | (process[1:] > process[:-1]) | (kind[1:] > kind[:-1])).all():
        return order
    sorted_rows = np.lexsort((position, operation, process, kind))
    return sorted_rows if order is None else order[sorted_rows]


def repeated(values: Array) -> Array:
    """The values that occur more than once, sorted."""
    if not len(values) or (values[1:] > values[:-1]).all():
        return values[:0]
    ordered = np.sort(values)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def is_in(values: Array, wanted: Array) -> Mask:
    """Which values are among `wanted`, which is sorted and unique."""
    if not len(wanted) or not len(values):
        return np.zeros(len(values), bool)
    place = np.searchsorted(wanted, values)
    place[place == len(wanted)] = 0
    return wanted[place] == values


def never(times: Array) -> Mask:
    return times == NEVER
