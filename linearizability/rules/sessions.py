"""Steps of consumers: which record each consumer received after which; the basis of the four rules on polls.

A *step* is a pair of records that one process polled one after the other: within one operation, or from the last record of
its last successful operation to the first of the next one. A step across operations counts only within one session: an
assignment without the partition, a seek or a recorded rebalance ends it. An operation that failed gives its records back
(the consumer is reset to where it was), so the next step starts from the last successful one. An operation of unknown outcome may
have given them back or not, so the next step may start from its last record, too. So may a step within a transaction that was
aborted from the last record of each of its polls before: they are given back when it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from linearizability.history.facts import UNKNOWN, Flag, Kind, Outcome
from linearizability.history.keys import NEVER
from linearizability.rules.cut import By, Cut, last_of_each, owned
from linearizability.rules.excusing import eras, explained, permits_loss, sent_at
from linearizability.rules.loss import ACKS_BELOW_ALL
from linearizability.rules.partition import Array, Mask, PartitionHistory
from linearizability.rules.retention import COMPACTED, EXPIRED, START_NOT_REPORTED, expired_by, log_starts
from linearizability.rules.rule import Context

Indices = npt.NDArray[np.intp]
UNRECORDED_REBALANCE = "the group may have rebalanced between the polls; the history does not record its assignments"


@dataclass(frozen=True)
class Steps:
    """Pairs of observations: `before[i]` then `after[i]`."""

    before: Indices
    after: Indices


def steps_within(partition: PartitionHistory) -> Steps:
    """Neighbours in one operation, where the assignment did not change within it."""
    return partition.once("steps within", lambda: _steps_within(partition))


def _steps_within(partition: PartitionHistory) -> Steps:
    rows = _placed(partition)
    operation = partition.observations.operation[rows]
    same = operation[1:] == operation[:-1]
    same &= ~partition.observations.flag(Flag.REBALANCED)[rows[1:]]
    return Steps(rows[:-1][same], rows[1:][same])


def steps_across(partition: PartitionHistory) -> Steps:
    """From a successful operation's last record to the first record of the next operation, in one session."""
    return partition.once("steps across", lambda: _steps_across(partition))


def _steps_across(partition: PartitionHistory) -> Steps:
    rows = _placed(partition)
    observations = partition.observations
    if not len(rows):
        return Steps(rows, rows)
    operation = observations.operation[rows]
    starts = np.flatnonzero(np.concatenate([[True], operation[1:] != operation[:-1]]))
    ends = np.concatenate([starts[1:], [len(rows)]]) - 1
    first, last = rows[starts], rows[ends]
    numbers = np.arange(len(starts))
    successful = np.where(observations.outcome[first] == Outcome.OK, numbers, -1)
    previous = np.concatenate([[-1], np.maximum.accumulate(successful)[:-1]])
    known = previous >= 0
    before, after = last[previous[known]], first[known]
    same = observations.process[before] == observations.process[after]
    same &= observations.session[before] == observations.session[after]
    return Steps(before[same], after[same])


def steps_from_nearest(partition: PartitionHistory) -> Steps:
    """As steps_across, but of several records from which a step may start the nearest one below where it leads: what lies
    between these was skipped in any case."""
    return partition.once("steps from nearest", lambda: _steps_from_nearest(partition))


def _steps_from_nearest(partition: PartitionHistory) -> Steps:
    steps, observations = steps_across(partition), partition.observations
    offset, transaction = observations.offset, observations.transaction
    unknown, aborted = _ends_of_unknown(partition), dict[int, list[int]]()
    for row in _ends_of_aborted(partition).tolist():
        aborted.setdefault(int(transaction[row]), []).append(row)
    first, last = np.searchsorted(unknown, steps.before), np.searchsorted(unknown, steps.after)
    nearest = steps.before.copy()
    for index in np.flatnonzero((first < last) | (observations.outcome[steps.after] == Outcome.FAIL)):
        before, after = int(steps.before[index]), int(steps.after[index])
        in_transaction = [row for row in aborted.get(int(transaction[after]), []) if before < row < after]
        starts = [before, *unknown[first[index] : last[index]].tolist(), *in_transaction]
        below = [row for row in starts if offset[row] < offset[after]]
        nearest[index] = max(below, key=offset.__getitem__, default=before)
    return Steps(nearest, steps.after)


def _ends_of_unknown(partition: PartitionHistory) -> Indices:
    """The last record of each operation of unknown outcome."""
    rows = _ends(partition)
    return rows[partition.observations.outcome[rows] == Outcome.INFO]


def _ends_of_aborted(partition: PartitionHistory) -> Indices:
    """The last record of each operation within a transaction that was aborted."""
    rows, observations = _ends(partition), partition.observations
    return rows[(observations.outcome[rows] == Outcome.FAIL) & (observations.transaction[rows] != UNKNOWN)]


def _ends(partition: PartitionHistory) -> Indices:
    """The last record of each operation."""
    rows = _placed(partition)
    return rows[last_of_each(partition.observations.operation[rows])]


def backwards(partition: PartitionHistory, steps: Steps) -> Indices:
    """Which steps lead to the same offset or a lower one."""
    offset = partition.observations.offset
    return np.flatnonzero(offset[steps.after] <= offset[steps.before])


def skipping(partition: PartitionHistory, steps: Steps) -> Indices:
    """Which steps lead over a record that a consumer may not skip."""
    before, after = partition.observation_slot[steps.before], partition.observation_slot[steps.after]
    wide = np.flatnonzero(after > before + 1)  # nothing lies between neighbours
    counts = np.zeros(len(partition.slot_offset) + 1, np.int64)
    np.cumsum(must_be_delivered(partition), out=counts[1:])
    return wide[counts[after[wide]] > counts[before[wide] + 1]]


def skipped_slots(partition: PartitionHistory, context: Context, steps: Steps, index: int) -> Array:
    """The slots that a step skipped; without those that may have expired, unless all may."""
    before, after = partition.observation_slot[steps.before[index]], partition.observation_slot[steps.after[index]]
    between = np.arange(int(before) + 1, int(after))
    skipped = between[must_be_delivered(partition)[between]]
    given = partition.observations.completed[steps.after[[index]]]
    kept = skipped[partition.slot_offset[skipped] >= expired_by(partition, context, given)[0]]
    return kept if len(kept) else skipped


def must_be_delivered(partition: PartitionHistory) -> Mask:
    """Slots whose record every consumer must be given: known to be in the log, and not of a transaction that was aborted, or
    that is unknown to have been committed: consumers of uncommitted records are given those too. A record of which no send is
    recorded may be of such a transaction."""
    return partition.once("must be delivered", lambda: _must_be_delivered(partition))


def _must_be_delivered(partition: PartitionHistory) -> Mask:
    writer, slots = partition.writer, partition.observation_slot
    placed = np.flatnonzero((writer >= 0) & (slots >= 0))
    mask = partition.in_log.copy()
    unsent, committed = (writer < 0) & (slots >= 0), partition.observations.flag(Flag.READ_COMMITTED)
    mask[slots[unsent & ~committed]] = False
    mask[slots[unsent & committed]] = True
    mask[partition.append_slot[partition.log_appends]] = True
    if not len(placed) or not len(partition.appends):
        return mask
    appends = partition.appends
    undecided = (appends.outcome == Outcome.INFO) & appends.flag(Flag.TRANSACTIONAL)
    undecided &= partition.shown_committed == NEVER
    may_be_passed = (appends.outcome == Outcome.FAIL) | undecided
    mask[slots[placed[may_be_passed[writer[placed]]]]] = False
    return mask


def permitted_step(
    partition: PartitionHistory, context: Context, steps: Steps, indices: Array, skip: bool, across: bool
) -> npt.NDArray[np.str_]:
    """Why a jump in each of these steps is permitted; empty where it is not."""
    reason = context.contract.permits_loss("all")
    if skip and context.contract.cleanup == "compact":
        reason = COMPACTED
    if reason:
        return np.full(len(indices), reason)
    reasons = np.full(len(indices), "", object)
    observations = partition.observations
    given = observations.completed[steps.after[indices]]
    if across:
        reasons[observations.flag(Flag.SUBSCRIBED)[steps.after[indices]]] = UNRECORDED_REBALANCE
    if not skip:
        excused = permits_loss(context, partition, sent_at(partition)[steps.before[indices]], given)
        return np.where(reasons == "", excused, reasons).astype(str)
    kept = must_be_delivered(partition)
    promised = kept & promised_slots(partition)
    start = _passable(partition, steps, indices, expired_by(partition, context, given))
    if context.contract.cleanup == "delete":
        starts = log_starts(partition, context)
        highest = _passable(partition, steps, indices, np.full(len(indices), starts.highest))
        never_expired = _lead_over(partition, promised, steps, indices, highest)
        reasons[(reasons == "") & ~(never_expired & (starts.last_asked > given))] = START_NOT_REPORTED
    if context.excuses:
        unexcused = _unexcused(partition, context, steps, indices, promised, start)
        made = sent_at(partition)[steps.after[indices]]
        loss = explained(context, partition, unexcused, made)
        reasons = np.where((loss != "") & ((reasons == "") | (reasons == START_NOT_REPORTED)), loss, reasons)
    reasons[~_lead_over(partition, promised, steps, indices, start)] = ACKS_BELOW_ALL
    reasons[~_lead_over(partition, kept, steps, indices, start)] = EXPIRED
    return reasons.astype(str)


def _unexcused(
    partition: PartitionHistory, context: Context, steps: Steps, indices: Array, promised: Mask, start: Array
) -> Mask:
    """Which of these steps no excuse explains: they, and a record that they lead over, lie in one era. What was given after
    the gap may be what was lost, and what is known in the gap may have come in when its place was given away. Where a
    transaction had begun by then, or may have in what is missing of the history, a consumer's position may have been behind a
    marker that was lost; nothing else moves a position over an offset that is given away again. So such a step counts from the
    poll that gave its first record."""
    made, seen = known_at(partition)
    since = partition.observations.invoked[steps.before[indices]]
    given = partition.observations.completed[steps.after[indices]]
    sent = sent_at(partition)[steps.after[indices]]
    transactional = partition.appends.invoked[first_transactional(partition)]
    unexcused = np.zeros(len(indices), bool)
    for after, before in eras(context, partition):
        slots = promised & (made > after) & ((before == NEVER) | (seen < before))
        no_marker = (since > after) | (context.is_whole and not (transactional <= after).any())
        within = (sent > after) & no_marker & ((before == NEVER) | (given < before))
        unexcused |= within & _lead_over(partition, slots, steps, indices, start)
    return unexcused


def first_transactional(partition: PartitionHistory) -> Indices:
    """The append of a transaction that began first, if there is one: no marker was written before it."""
    rows = np.flatnonzero(partition.appends.flag(Flag.TRANSACTIONAL))
    return rows[np.argsort(partition.appends.invoked[rows], kind="stable")[:1]]


def known_at(partition: PartitionHistory) -> tuple[Array, Array]:
    """For each slot when the first record that was ever there was sent, and when one was known there first."""
    made, seen = np.full(len(partition.slot_offset), NEVER), np.full(len(partition.slot_offset), NEVER)
    appends, observations, mine, read = (
        partition.appends,
        partition.observations,
        partition.log_appends,
        _placed(partition),
    )
    for slots, sent, known in (
        (partition.append_slot[mine], appends.invoked[mine], appends.completed[mine]),
        (partition.observation_slot[read], sent_at(partition)[read], observations.completed[read]),
    ):
        np.minimum.at(made, slots, sent)
        np.minimum.at(seen, slots, known)
    return made, seen


def promised_slots(partition: PartitionHistory) -> Mask:
    """Slots whose record was promised: read by any client, or acknowledged with acks=all."""
    promised = np.zeros(len(partition.slot_offset), bool)
    careful = partition.log_appends[partition.appends.flag(Flag.ACKS_ALL)[partition.log_appends]]
    promised[partition.append_slot[careful]] = True
    promised[partition.observation_slot[_placed(partition)]] = True
    return promised


def _passable(partition: PartitionHistory, steps: Steps, indices: Array, start: Array) -> Array:
    """Below which offset each of these steps may lead over anything, where the log begins at `start`: a consumer whose position
    is gone may go on at the log's end (Kafka's `auto.offset.reset=latest`)."""
    observations = partition.observations
    before, after = steps.before[indices], steps.after[indices]
    is_gone = observations.flag(Flag.FROM_END)[after] & (start > observations.offset[before] + 1)
    return np.where(is_gone, observations.offset[after], start)


def _lead_over(partition: PartitionHistory, slots: Mask, steps: Steps, indices: Array, start: Array) -> Mask:
    """Which of these steps lead over any of these slots, at the offset that `start` names for the step or beyond."""
    counts = np.zeros(len(slots) + 1, np.int64)
    np.cumsum(slots, out=counts[1:])
    before, after = partition.observation_slot[steps.before[indices]], partition.observation_slot[steps.after[indices]]
    first = np.maximum(before + 1, np.searchsorted(partition.slot_offset, start))
    return counts[after] > counts[np.minimum(first, after)]


# -- across a cut --------------------------------------------------------------------------------------------------------


def first_of_transactions(partition: PartitionHistory, context: Context) -> Indices:
    """The append of a transaction that began first in the part."""
    return partition.places_of(Kind.APPEND, first_transactional(partition))


def last_polls_and_transactions(partition: PartitionHistory, context: Context) -> Indices:
    return np.concatenate([last_polls(partition, context), first_of_transactions(partition, context)])


def last_polls(partition: PartitionHistory, context: Context) -> Indices:
    """Of each process the last record of its last successful operation, and of each operation after that from which a step may
    start, too."""
    rows, observations = _placed(partition), partition.observations
    successful = rows[(observations.outcome[rows] == Outcome.OK) & owned(partition, observations.operation[rows])]
    successful = successful[last_of_each(observations.process[successful])]
    others = np.concatenate([_ends_of_unknown(partition), _ends_of_aborted(partition)])
    others = others[owned(partition, observations.operation[others])]
    before = np.searchsorted(observations.process[successful], observations.process[others], side="right") - 1
    replaced = (before >= 0) & (np.append(successful, -1)[before] > others)
    replaced &= observations.process[np.append(successful, 0)[before]] == observations.process[others]
    return partition.places_of(Kind.OBSERVATION, np.concatenate([successful, others[~replaced]]))


def _gaps(steps_of: Callable[[PartitionHistory], Steps], partition: PartitionHistory) -> Array:
    """The offsets that steps of the part's own operations lead over, and to, as (first, last): when the record that a step
    leads to was sent decides on an excuse."""
    observations, steps = partition.observations, steps_of(partition)
    low, high = observations.offset[steps.before], observations.offset[steps.after]
    wide = (high > low + 1) & owned(partition, observations.operation[steps.after])
    return np.unique(np.stack([low[wide] + 1, high[wide]], axis=1), axis=0)


def _turns(steps_of: Callable[[PartitionHistory], Steps], partition: PartitionHistory) -> Array:
    """The offsets from which steps of the part's own operations lead back: when their records were sent decides on an excuse."""
    observations, steps = partition.observations, steps_of(partition)
    back = backwards(partition, steps)
    back = back[owned(partition, observations.operation[steps.after[back]])]
    offsets = np.unique(observations.offset[steps.before[back]])
    return np.stack([offsets, offsets], axis=1)


_LAST = (
    "the last record of each process's last successful poll and of its later ones that are of unknown outcome, or of a "
    "transaction that was aborted"
)
TURNS_WITHIN = Cut(By.OPERATION, "the records from which its steps lead back", gaps=partial(_turns, steps_within))
TURNS_ACROSS = Cut(
    By.OPERATION, f"{_LAST}, and the records from which its steps lead back", last_polls, partial(_turns, steps_across)
)
_GAPS = "the records that its steps lead over and to, and the first append of a transaction"
GAPS_WITHIN = Cut(By.OPERATION, _GAPS, first_of_transactions, partial(_gaps, steps_within))
GAPS_ACROSS = Cut(By.OPERATION, f"{_LAST}, {_GAPS}", last_polls_and_transactions, partial(_gaps, steps_from_nearest))


def _placed(partition: PartitionHistory) -> Indices:
    """The observations that have an offset; they are in order of process, operation and position."""
    return np.flatnonzero(partition.observation_slot >= 0)
