"""exactly-once, copied-past and copy-order: what transactions that consume, transform and produce make of their input.

Which transactions happened is known in the partitions that they wrote to, what they consumed in those they read from. So
each partition emits rows, and what they say is joined by transaction:

| row | place | what | where |
| --- | --- | --- | --- |
| CONSUMED | the group's input | the transaction | offset |
| COMMITTED | the group's input | the transaction | the offset that the group committed with it |
| OWED | the group's input | when it was sent | the offset of a record that must be given to every consumer |
| BEGINS | the group's input | – | the highest log start that was ever reported |
| EXPIRED_BELOW | the group's input | the transaction | below it records may have expired when the group committed with it |
| KEPT | the group's input | the transaction | of COMMITTED, where the log start was asked for later |
| BEGAN, ENDED | the group's input | the transaction | when its first poll of it began, when its last one or its commit ended |
| EXCUSED | the group's input | – | the place in the context of an excuse that covers the partition |
| WRITTEN | the output | the transaction | offset |
| HAPPENED | – | the transaction | – |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linearizability.history.facts import NEVER, Kind, Outcome, identity
from linearizability.rules.excusing import GROUPS, TRANSACTIONS
from linearizability.rules.partition import Array, Mask, Partition, Rows, is_in
from linearizability.rules.retention import COMPACTED, EXPIRED, START_NOT_REPORTED, log_starts
from linearizability.rules.rule import MAX_WITNESSES, Anomaly, Context, Found, RunRule
from linearizability.rules.sessions import known_at, must_be_delivered

CONSUMED, COMMITTED, OWED, BEGINS, EXPIRED_BELOW, KEPT, BEGAN, ENDED, EXCUSED, WRITTEN, HAPPENED = range(11)
NO_PROCESS = -1


def _rows(kind: int, place: int, transactions: Array | int, offsets: Array) -> Array:
    count = len(offsets)
    owners = np.broadcast_to(np.asarray(transactions, np.int64), (count,))
    return np.stack([np.full(count, kind), np.full(count, place), owners, offsets], axis=1)


def emit_copies(partition: Partition, context: Context) -> Array:
    """The table's rows of one partition; nothing of a transaction that certainly did not happen."""
    return np.concatenate([*_as_input(partition, context), *_as_output(partition)])


def _as_output(partition: Partition) -> Iterator[Array]:
    appends = partition.appends
    mine = (appends.transaction >= 0) & (appends.outcome != Outcome.FAIL)
    happened = np.unique(appends.transaction[mine & partition.happened])
    yield _rows(HAPPENED, NO_PROCESS, happened, np.zeros(len(happened), np.int64))
    slots = partition.append_position
    placed = np.flatnonzero(mine & (slots >= 0))
    offsets = partition.slot_offset[slots[placed]] if len(placed) else np.empty(0, np.int64)
    yield _rows(WRITTEN, identity(f"to {partition.name}"), appends.transaction[placed], offsets)


def _as_input(partition: Partition, context: Context) -> Iterator[Array]:
    seen, commits = partition.observations, partition.rows(Kind.COMMIT)
    taken = (seen.transaction >= 0) & (seen.group >= 0) & (seen.offset >= 0) & (seen.outcome != Outcome.FAIL)
    reported = (commits.transaction >= 0) & (commits.outcome != Outcome.FAIL)
    sure = np.unique(np.concatenate([each.transaction[each.outcome == Outcome.OK] for each in (seen, commits)]))
    yield _rows(HAPPENED, NO_PROCESS, sure[sure >= 0], np.zeros(int((sure >= 0).sum()), np.int64))
    for group in np.unique(seen.group[taken]):
        place = identity(f"{group} from {partition.name}")
        mine, its = taken & (seen.group == group), reported & (commits.group == group)
        yield _rows(CONSUMED, place, seen.transaction[mine], seen.offset[mine])
        yield _rows(COMMITTED, place, commits.transaction[its], commits.offset[its])
        owed = np.flatnonzero(must_be_delivered(partition))
        owed = owed[partition.slot_offset[owed] >= seen.offset[mine].min()]
        made = known_at(partition)[0][owed] if context.excuses else NO_PROCESS
        yield _rows(OWED, place, made, partition.slot_offset[owed])
        if context.contract.cleanup == "delete":
            starts = log_starts(partition)
            yield _rows(BEGINS, place, NO_PROCESS, np.array([starts.highest]))
            yield _rows(EXPIRED_BELOW, place, commits.transaction[its], starts.known_at(commits.invoked[its]))
            kept = its & (commits.invoked < starts.last_asked)
            yield _rows(KEPT, place, commits.transaction[kept], commits.offset[kept])
        if context.excuses:
            yield from _excused(partition, context, place, seen.where(mine), commits.where(its))


def _excused(partition: Partition, context: Context, place: int, seen: Rows, commits: Rows) -> Iterator[Array]:
    """When each transaction was at work on the group's input, and which excuses cover that."""
    yield _rows(BEGAN, place, seen.transaction, seen.invoked)
    yield _rows(BEGAN, place, commits.transaction, commits.invoked)
    yield _rows(ENDED, place, seen.transaction, seen.completed)
    yield _rows(ENDED, place, commits.transaction, commits.completed)
    covering = [
        number
        for number, excuse in enumerate(context.excuses)
        if excuse.covers(partition.topic, partition.partition) or excuse.touches(GROUPS) or excuse.touches(TRANSACTIONS)
    ]
    yield _rows(EXCUSED, place, NO_PROCESS, np.array(covering, np.int64))


@dataclass(frozen=True)
class _Copies:
    """What the partitions of a run have emitted, by kind."""

    rows: Array

    def of(self, kind: int) -> Array:
        return self.rows[self.rows[:, 0] == kind]

    def permits_loss(self, context: Context, place: int, transactions: Sequence[int], made: int | None = None) -> str:
        """Why what these transactions of a group did to its input may contradict itself, or miss what was made then."""
        reason = context.contract.permits_loss("all")
        if reason or not context.excuses:
            return reason
        began, ended = (self._times(kind, place, transactions) for kind in (BEGAN, ENDED))
        covering = self.of(EXCUSED)
        for number in covering[covering[:, 1] == place, 3]:
            excuse = context.excuses[int(number)]
            since = min(began.min(initial=NEVER), NEVER if made is None else made)
            if since <= excuse.ends and ended.max(initial=-NEVER) >= excuse.begins:
                return excuse.reason
        return ""

    def _times(self, kind: int, place: int, transactions: Sequence[int]) -> Array:
        rows = self.of(kind)
        return rows[(rows[:, 1] == place) & np.isin(rows[:, 2], transactions), 3]

    def happened(self, rows: Array) -> Mask:
        return is_in(rows[:, 2], np.unique(self.of(HAPPENED)[:, 2]))


Witnessed = tuple[int, tuple[int, ...], str]
"""Offset, transactions, text."""


def _by_reason(rule: str, those: Sequence[tuple[str, Witnessed]]) -> Iterator[Found]:
    for permitted in sorted({reason for reason, _ in those}):
        witnesses = [witness for reason, witness in those if reason == permitted]
        anomalies = tuple(
            Anomaly(rule, "", -1, offset, -1, operations, text, permitted)
            for offset, operations, text in witnesses[:MAX_WITNESSES]
        )
        yield Found(rule, permitted, len(witnesses), anomalies)


def consumed_twice(rows: Array, context: Context) -> Iterator[Found]:
    copies = _Copies(rows)
    taken = copies.of(CONSUMED)
    taken = taken[copies.happened(taken)]
    taken = taken[np.lexsort((taken[:, 2], taken[:, 3], taken[:, 1]))]
    same = (taken[1:, 1] == taken[:-1, 1]) & (taken[1:, 3] == taken[:-1, 3])
    wrong = np.flatnonzero(same & (taken[1:, 2] != taken[:-1, 2]))
    those = [
        (
            copies.permits_loss(
                context, int(taken[index, 1]), pair := (int(taken[index, 2]), int(taken[index + 1, 2]))
            ),
            (
                int(taken[index, 3]),
                pair,
                f"offset {taken[index, 3]} was consumed by two transactions that both committed",
            ),
        )
        for index in wrong
    ]
    yield from _by_reason(TWICE.id, those)


def copied_past(rows: Array, context: Context) -> Iterator[Found]:
    copies = _Copies(rows)
    committed = copies.of(COMMITTED)
    committed = committed[copies.happened(committed)]
    taken, owed = copies.of(CONSUMED), copies.of(OWED)
    those: list[tuple[str, Witnessed]] = []
    for place in np.unique(committed[:, 1]):
        here = committed[committed[:, 1] == place]
        end, by = here[here[:, 3].argmax(), [3, 2]]
        due = owed[(owed[:, 1] == place) & (owed[:, 3] < end)]
        given = np.unique(taken[taken[:, 1] == place, 3])
        for _, _, made, offset in due[~is_in(due[:, 3], given)].tolist():
            past = here[here[:, 3] > offset, 2]
            reason = copies.permits_loss(context, int(place), [int(by)], made)
            reason = _may_be_passed(copies, context, int(place), offset, past, reason)
            said = (
                f"offset {offset} lies below what was committed, and no transaction that may have happened consumed it"
            )
            those.append((reason, (offset, (int(by),), said)))
    yield from _by_reason(PAST.id, those)


def _may_be_passed(copies: _Copies, context: Context, place: int, offset: int, past: Array, loss: str) -> str:
    """Why a group may have passed over a record that was read, by these transactions; empty where it may not."""
    if context.contract.cleanup != "delete":
        return COMPACTED if context.contract.cleanup == "compact" else loss
    below, begins, kept = (copies.of(kind) for kind in (EXPIRED_BELOW, BEGINS, KEPT))
    below, begins, kept = (rows[rows[:, 1] == place] for rows in (below, begins, kept))
    if offset < below[np.isin(below[:, 2], past), 3].min(initial=NEVER):
        return EXPIRED
    reported_later = bool((np.isin(kept[:, 2], past) & (kept[:, 3] > offset)).any())
    return loss or ("" if reported_later and offset >= begins[:, 3].max(initial=0) else START_NOT_REPORTED)


def copy_order(rows: Array, context: Context) -> Iterator[Found]:
    copies = _Copies(rows)
    taken, written = copies.of(CONSUMED), copies.of(WRITTEN)
    inputs, outputs = (_spans(each[copies.happened(each)]) for each in (taken, written))
    inputs = inputs[np.argsort(inputs[:, 1], kind="stable")]
    # Each input of a transaction beside each of its outputs: input, output, first offset in, first and last offset out.
    begins = np.searchsorted(inputs[:, 1], outputs[:, 1], side="left")
    counts = np.searchsorted(inputs[:, 1], outputs[:, 1], side="right") - begins
    of_output = np.repeat(np.arange(len(outputs)), counts)
    of_input = np.repeat(begins, counts) + np.arange(len(of_output)) - np.repeat(np.cumsum(counts) - counts, counts)
    source, sink = inputs[of_input], outputs[of_output]
    order = np.lexsort((source[:, 2], sink[:, 0], source[:, 0]))
    source, sink = source[order], sink[order]
    same = (source[1:, 0] == source[:-1, 0]) & (sink[1:, 0] == sink[:-1, 0])
    later = source[1:, 2] > source[:-1, 3]
    wrong = np.flatnonzero(same & later & (sink[1:, 2] < sink[:-1, 3]))
    those: list[tuple[str, Witnessed]] = []
    for index in wrong:
        pair = int(source[index, 1]), int(source[index + 1, 1])
        text = (
            f"what was made of offset {source[index + 1, 2]} was written at {sink[index + 1, 2]}, before what was made of "
            f"offset {source[index, 2]}, at {sink[index, 3]}"
        )
        reason = copies.permits_loss(context, int(source[index, 0]), pair)
        those.append((reason, (int(source[index + 1, 2]), pair, text)))
    yield from _by_reason(ORDER.id, those)


def _spans(rows: Array) -> npt.NDArray[np.int64]:
    """(place, transaction, first offset, last offset) of each place and transaction."""
    rows = rows[np.lexsort((rows[:, 3], rows[:, 2], rows[:, 1]))]
    if not len(rows):
        return np.empty((0, 4), np.int64)
    fresh = np.concatenate([[True], (rows[1:, 1:3] != rows[:-1, 1:3]).any(axis=1)])
    first = np.flatnonzero(fresh)
    last = np.concatenate([first[1:], [len(rows)]]) - 1
    return np.stack([rows[first, 1], rows[first, 2], rows[first, 3], rows[last, 3]], axis=1)


_SOURCE = "KIP-98, KIP-447: exactly-once semantics"
_NEEDS = "transactions that poll and commit offsets, in consumers whose group is known"

TWICE = RunRule(
    id="exactly-once",
    definition="In consume-transform-produce, one input record was consumed by two transactions of one group that both "
    "committed; one of unknown outcome did so if a committed read returned what it wrote.",
    promise="Violation, unless the contract permits loss: offsets are committed with the output, so a committed input is "
    "never given to the group again.",
    source=_SOURCE,
    needs=_NEEDS,
    cost="one sort of what transactions consumed",
    example="""
        0 send t-0:1@0
        1 subscribe t-0 group=g
        1 txn poll t-0:1@0 send u-0:10@0 commit g t-0@1
        2 subscribe t-0 group=g
        2 txn poll t-0:1@0 send u-0:20@1 commit g t-0@1
    """,
    check=consumed_twice,
    emit=emit_copies,
)

PAST = RunRule(
    id="copied-past",
    definition="A committed transaction carried a group's offset past a record that no transaction of the group consumed "
    "but such as certainly did not happen.",
    promise="Violation, unless compaction or retention removed the record (retention is judged as by poll-skip), or it may be "
    "lost: it is missing from the output for ever. A group is judged from the first record it consumed.",
    source=_SOURCE,
    needs=_NEEDS,
    cost="linear in the input, for each group",
    example="""
        0 send t-0:1@0
        0 send t-0:2@1
        0 send t-0:3@2
        1 subscribe t-0 group=g
        1 txn poll t-0:1@0 send u-0:10@0 commit g t-0@1
        1 txn poll t-0:2@1 send u-0:20 commit g t-0@2 fail
        2 subscribe t-0 group=g
        2 txn poll t-0:3@2 send u-0:30@1 commit g t-0@3
    """,
    check=copied_past,
    emit=emit_copies,
    rests_on_absence=True,
)

ORDER = RunRule(
    id="copy-order",
    definition="Two committed transactions of one group consumed a partition one after the other, and wrote to a partition "
    "the other way round.",
    promise="Violation, unless the contract permits loss: the second one begins where the first one's commit had left the "
    "group, so its output follows.",
    source=_SOURCE,
    needs=f"{_NEEDS}; offsets of what they sent",
    cost="one sort of the pairs of input and output that transactions join",
    example="""
        0 send t-0:1@0
        0 send t-0:2@1
        1 subscribe t-0 group=g
        1 txn poll t-0:1@0 send u-0:10@1 commit g t-0@1
        2 subscribe t-0 group=g
        2 txn poll t-0:2@1 send u-0:20@0 commit g t-0@2
    """,
    check=copy_order,
    emit=emit_copies,
)
