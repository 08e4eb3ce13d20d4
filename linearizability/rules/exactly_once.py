"""exactly-once, copied-past and copy-order: rules for transactions that consume, transform and produce.

No single partition sees a whole transaction. Output partitions show whether it committed. Input partitions show what it
consumed and, where its outcome is known, that it committed. So each partition emits rows, and the rules join them by transaction:

| kind | place | owner | value |
| --- | --- | --- | --- |
| CONSUMED | the group's input | the transaction; none for a poll outside of transactions | offset |
| GROUP_OFFSET | the group's input | the transaction | the offset that the group committed in it |
| OWED | the group's input | when it was sent; none without excuses | offset of a record that the group must receive |
| LOG_START | the group's input | none | the highest log start that was ever reported |
| START_KNOWN | the group's input | the transaction | the highest log start that can have held at its commit |
| START_ASKED_LATER | the group's input | the transaction | GROUP_OFFSET again, where a log start was asked for after the commit |
| BEGAN, ENDED | the group's input | the transaction | begin and end of each of its polls and commits |
| EXCUSED | the group's input | none | index of an excuse for the partition, for groups or for transactions |
| WRITTEN | the output | the transaction | offset |
| HAPPENED | none | the transaction, which committed | none |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linearizability.history.facts import Kind, Outcome, identity
from linearizability.history.keys import NEVER
from linearizability.rules.excusing import GROUPS, TRANSACTIONS
from linearizability.rules.partition import Array, Mask, PartitionHistory, Rows, is_in
from linearizability.rules.retention import COMPACTED, EXPIRED, START_NOT_REPORTED, log_starts
from linearizability.rules.rule import MAX_WITNESSES, Anomaly, Context, Found, RunRule
from linearizability.rules.sessions import known_at, must_be_delivered, promised_slots

CONSUMED, GROUP_OFFSET, OWED, LOG_START, START_KNOWN, START_ASKED_LATER, BEGAN, ENDED, EXCUSED, WRITTEN, HAPPENED = (
    range(11)
)
MOST_PAIRED = 20
"""Limit of earlier transactions with which one that consumed the same record is paired."""
NONE = -1
"""Fills a column that has no meaning in a row of its kind."""


def _rows(kind: int, place: int, transactions: Array | int, offsets: Array) -> Array:
    count = len(offsets)
    owners = np.broadcast_to(np.asarray(transactions, np.int64), (count,))
    return np.stack([np.full(count, kind), np.full(count, place), owners, offsets], axis=1)


def emit_copies(partition: PartitionHistory, context: Context) -> Array:
    """The table's rows of one partition; nothing of a transaction that certainly did not happen."""
    return np.concatenate([*_as_input(partition, context), *_as_output(partition)])


def _as_output(partition: PartitionHistory) -> Iterator[Array]:
    appends = partition.appends
    mine = (appends.transaction >= 0) & (appends.outcome != Outcome.FAIL)
    happened = np.unique(appends.transaction[mine & partition.happened])
    yield _rows(HAPPENED, NONE, happened, np.zeros(len(happened), np.int64))
    slots = partition.append_position
    placed = np.flatnonzero(mine & (slots >= 0))
    offsets = partition.slot_offset[slots[placed]] if len(placed) else np.empty(0, np.int64)
    yield _rows(WRITTEN, identity(f"to {partition.name}"), appends.transaction[placed], offsets)


def _as_input(partition: PartitionHistory, context: Context) -> Iterator[Array]:
    seen, commits = partition.observations, partition.rows(Kind.COMMIT)
    taken = (seen.transaction >= 0) & (seen.group >= 0) & (seen.offset >= 0) & (seen.outcome != Outcome.FAIL)
    reported = (commits.transaction >= 0) & (commits.outcome != Outcome.FAIL)
    sure = np.unique(np.concatenate([each.transaction[each.outcome == Outcome.OK] for each in (seen, commits)]))
    yield _rows(HAPPENED, NONE, sure[sure >= 0], np.zeros(int((sure >= 0).sum()), np.int64))
    for group in np.setdiff1d(seen.group[taken], partition.groups_with_seeks):
        place = identity(f"{group} from {partition.name}")
        mine, its = taken & (seen.group == group), reported & (commits.group == group)
        yield _rows(CONSUMED, place, seen.transaction[mine], seen.offset[mine])
        yield _rows(CONSUMED, place, NONE, _consumed_outside(partition, int(group)))
        yield _rows(GROUP_OFFSET, place, commits.transaction[its], commits.offset[its])
        owed = np.flatnonzero(must_be_delivered(partition) & promised_slots(partition))
        is_from_end = np.isin(group, partition.groups_from_end)
        owed = owed[(partition.slot_offset[owed] >= seen.offset[mine].min()) & ~is_from_end]
        made = known_at(partition)[0][owed] if context.excuses else NONE
        yield _rows(OWED, place, made, partition.slot_offset[owed])
        if context.contract.cleanup == "delete":
            starts = log_starts(partition, context)
            yield _rows(LOG_START, place, NONE, np.array([starts.highest]))
            yield _rows(START_KNOWN, place, commits.transaction[its], starts.known_at(commits.invoked[its]))
            kept = its & (commits.invoked < starts.last_asked)
            yield _rows(START_ASKED_LATER, place, commits.transaction[kept], commits.offset[kept])
        if context.excuses:
            yield from _excused(partition, context, place, seen.where(mine), commits.where(its))


def _consumed_outside(partition: PartitionHistory, group: int) -> Array:
    """Offsets that the group polled outside of transactions, below an offset that it committed outside of them."""
    seen, commits = partition.observations, partition.rows(Kind.COMMIT)
    plain = (commits.transaction < 0) & (commits.group == group) & (commits.outcome != Outcome.FAIL)
    end = commits.offset[plain].max(initial=NONE)
    polled = (seen.transaction < 0) & (seen.group == group) & (seen.outcome != Outcome.FAIL)
    return seen.offset[polled & (seen.offset >= 0) & (seen.offset < end)]


def _excused(partition: PartitionHistory, context: Context, place: int, seen: Rows, commits: Rows) -> Iterator[Array]:
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
    yield _rows(EXCUSED, place, NONE, np.array(covering, np.int64))


@dataclass(frozen=True)
class _Copies:
    """What the partitions of a run have emitted, by kind."""

    rows: Array

    def of(self, kind: int) -> Array:
        return self.rows[self.rows[:, 0] == kind]

    def reason_of_loss(self, context: Context, place: int, transactions: Sequence[int], sent: int | None = None) -> str:
        """Why an anomaly among these transactions is permitted; empty where it is not.

        The contract permits loss, or an excuse overlaps the time from their begin, or from `sent` (when the record was sent that
        they passed over), to their end.
        """
        reason = context.contract.permits_loss("all")
        if reason or not context.excuses:
            return reason
        began, ended = (self._times(kind, place, transactions) for kind in (BEGAN, ENDED))
        covering = self.of(EXCUSED)
        for number in covering[covering[:, 1] == place, 3]:
            excuse = context.excuses[int(number)]
            since = min(began.min(initial=NEVER), NEVER if sent is None else sent)
            if since <= excuse.ends and ended.max(initial=-NEVER) >= excuse.begins:
                return excuse.reason
        return ""

    def first_to_end(self, place: int, transactions: Array) -> int:
        """Of these transactions the one whose work on the group's input was over first."""
        return min(map(int, transactions), key=lambda each: int(self._times(ENDED, place, [each]).max(initial=-NEVER)))

    def _times(self, kind: int, place: int, transactions: Sequence[int]) -> Array:
        rows = self.of(kind)
        return rows[(rows[:, 1] == place) & np.isin(rows[:, 2], transactions), 3]

    def happened(self, rows: Array) -> Mask:
        return is_in(rows[:, 2], np.unique(self.of(HAPPENED)[:, 2]))

    def consumed_for_good(self) -> Array:
        """Of what was consumed in transactions that happened what lies below an offset that they committed with their output:
        what else they polled is for the group to consume again."""
        taken, committed = self.of(CONSUMED), self.of(GROUP_OFFSET)
        taken = taken[self.happened(taken)]
        _, who = np.unique(np.concatenate([taken, committed])[:, 1:3], axis=0, return_inverse=True)
        ends = np.full(len(who), NONE)
        np.maximum.at(ends, who[len(taken) :], committed[:, 3])
        return taken[taken[:, 3] < ends[who[: len(taken)]]]


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
    taken = copies.consumed_for_good()
    taken = taken[np.lexsort((taken[:, 2], taken[:, 3], taken[:, 1]))]
    same = (taken[1:, 1] == taken[:-1, 1]) & (taken[1:, 3] == taken[:-1, 3])
    wrong = np.flatnonzero(same & (taken[1:, 2] != taken[:-1, 2]))
    borders = np.concatenate([[0], np.flatnonzero(~same) + 1, [len(taken)]])
    those: list[tuple[str, Witnessed]] = []
    for number in np.unique(np.searchsorted(borders, wrong, side="right")):
        of_one = taken[borders[number - 1] : borders[number]]
        those += _pairs(copies, context, int(of_one[0, 1]), int(of_one[0, 3]), np.unique(of_one[:, 2]))
    yield from _by_reason(TWICE.id, those)


def _pairs(
    copies: _Copies, context: Context, place: int, offset: int, transactions: Array
) -> Iterator[tuple[str, Witnessed]]:
    """Pairs each transaction that consumed an offset with an earlier one: with one that no excuse explains, if there is one.

    An excuse between the first and the third of them explains nothing about the first two.
    """
    text = f"offset {offset} was consumed by two transactions that both committed"
    for place_of_later in range(1, len(transactions)):
        later = int(transactions[place_of_later])
        earlier = [int(each) for each in transactions[:place_of_later][-MOST_PAIRED:]]
        reasons = {each: copies.reason_of_loss(context, place, (each, later)) for each in reversed(earlier)}
        chosen = next((each for each, reason in reasons.items() if not reason), earlier[-1])
        yield reasons[chosen], (offset, (chosen, later), text)


def copied_past(rows: Array, context: Context) -> Iterator[Found]:
    copies = _Copies(rows)
    committed = copies.of(GROUP_OFFSET)
    committed = committed[copies.happened(committed)]
    taken, owed = copies.of(CONSUMED), copies.of(OWED)
    those: list[tuple[str, Witnessed]] = []
    for place in np.unique(committed[:, 1]):
        here = committed[committed[:, 1] == place]
        end, by = here[here[:, 3].argmax(), [3, 2]]
        due = owed[(owed[:, 1] == place) & (owed[:, 3] < end)]
        given = np.unique(taken[taken[:, 1] == place, 3])
        for _, _, sent, offset in due[~is_in(due[:, 3], given)].tolist():
            past = here[here[:, 3] > offset, 2]
            first = copies.first_to_end(int(place), past) if context.excuses else int(by)
            reason = copies.reason_of_loss(context, int(place), [first], sent)
            reason = _may_be_passed(copies, context, int(place), offset, past, reason)
            said = (
                f"offset {offset} lies below the group's committed offset, and no transaction that may have committed "
                "consumed it"
            )
            those.append((reason, (offset, (int(by),), said)))
    yield from _by_reason(PAST.id, those)


def _may_be_passed(copies: _Copies, context: Context, place: int, offset: int, past: Array, loss: str) -> str:
    """Why these transactions (`past`) may commit beyond a record that the group never consumed; empty where they may not.

    `loss` is the reason that was found already, if there was one.
    """
    if context.contract.cleanup != "delete":
        return COMPACTED if context.contract.cleanup == "compact" else loss
    below, begins, kept = (copies.of(kind) for kind in (START_KNOWN, LOG_START, START_ASKED_LATER))
    below, begins, kept = (rows[rows[:, 1] == place] for rows in (below, begins, kept))
    if offset < below[np.isin(below[:, 2], past), 3].min(initial=NEVER):
        return EXPIRED
    reported_later = bool((np.isin(kept[:, 2], past) & (kept[:, 3] > offset)).any())
    return loss or ("" if reported_later and offset >= begins[:, 3].max(initial=0) else START_NOT_REPORTED)


def copy_order(rows: Array, context: Context) -> Iterator[Found]:
    copies = _Copies(rows)
    written = copies.of(WRITTEN)
    inputs, outputs = _spans(copies.consumed_for_good()), _spans(written[copies.happened(written)])
    inputs = inputs[np.argsort(inputs[:, 1], kind="stable")]
    # Pair each span of input of a transaction with each of its spans of output; sort by input place, output place, first input.
    begins = np.searchsorted(inputs[:, 1], outputs[:, 1], side="left")
    counts = np.searchsorted(inputs[:, 1], outputs[:, 1], side="right") - begins
    of_output = np.repeat(np.arange(len(outputs)), counts)
    of_input = np.repeat(begins, counts) + np.arange(len(of_output)) - np.repeat(np.cumsum(counts) - counts, counts)
    source, sink = inputs[of_input], outputs[of_output]
    order = np.lexsort((source[:, 2], sink[:, 0], source[:, 0]))
    source, sink = source[order], sink[order]
    those: list[tuple[str, Witnessed]] = []
    for later, earlier in _inverted(source, sink):
        text = (
            f"the transaction that consumed from offset {source[later, 2]} wrote at {sink[later, 2]}, before the last output (at "
            f"{sink[earlier, 3]}) of the transaction that consumed offsets {source[earlier, 2]} to {source[earlier, 3]}"
        )
        pair = int(source[earlier, 1]), int(source[later, 1])
        reason = copies.reason_of_loss(context, int(source[later, 0]), pair)
        those.append((reason, (int(source[later, 2]), pair, text)))
    yield from _by_reason(ORDER.id, those)


def _inverted(source: Array, sink: Array) -> Iterator[tuple[int, int]]:
    """Each transaction whose output begins before one ends that consumed only earlier offsets, and of those the last to end.

    Both are sorted by the places of input and output, and by the first offset of input. Spans of input may overlap, so neighbours
    are not enough: all that ended before a span began are looked at, by the highest output among them.
    """
    places = np.concatenate([source[:, :1], sink[:, :1]], axis=1)
    borders = np.flatnonzero((places[1:] != places[:-1]).any(axis=1)) + 1
    for rows in np.split(np.arange(len(source)), borders):
        by_end = rows[np.argsort(source[rows, 3], kind="stable")]
        highest = np.maximum.accumulate(sink[by_end, 3])
        holder = np.maximum.accumulate(np.where(sink[by_end, 3] == highest, np.arange(len(by_end)), 0))
        before = np.asarray(np.searchsorted(source[by_end, 3], source[rows, 2], side="left"), np.int64)
        follows = np.flatnonzero(before > 0)
        wrong = follows[highest[before[follows] - 1] > sink[rows[follows], 2]]
        for index in wrong:
            yield int(rows[index]), int(by_end[holder[before[index] - 1]])


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
_NEEDS = "transactions that poll records and commit offsets, by consumers whose group is known and whose members seek nothing"

TWICE = RunRule(
    id="exactly-once",
    definition="In consume-transform-produce, one input record was consumed by two transactions of one group that both "
    "committed, and with them an offset beyond it; one of unknown outcome did so if a committed read returned what it wrote.",
    promise="Violation, unless committed data may be lost, and with them the group's offset: offsets are committed with the "
    "output, so a record that a committed transaction consumed is never delivered to the group again.",
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
    definition="A committed transaction moved the group's offset past a record that the group consumed neither in a transaction "
    "that may have committed, nor outside of transactions below an offset that it committed there.",
    promise="Violation, because the record is missing from the output for ever; unless compaction or retention removed it "
    "(decided as in poll-skip), or it may be lost. In each partition a group is judged from the lowest offset it consumed; one "
    "whose members begin at the log's end is not judged.",
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
    definition="Of two committed transactions of one group, one consumed only higher offsets of an input partition than the "
    "other, and some of its output precedes some of the other's in an output partition.",
    promise="Violation, unless the contract permits loss: the second one begins at the offset that was committed with the first "
    "one's output, so its own output follows.",
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
