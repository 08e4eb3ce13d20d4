"""Which acknowledged records are missing, and how surely: the ground of the rules `lost-write` and `unseen`.

A record is missing when it was acknowledged and no poll ever returned it. It is *lost* when a client must have come across
it: a final read of the whole partition (a drain) did not return it, or a poll returned a record behind it. Until then it
is merely *unseen*: maybe no client has looked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linearizability.history.facts import MAX_WAIT_US, Flag, Kind, Outcome
from linearizability.history.keys import NEVER
from linearizability.rules.cut import By, Cut, owned
from linearizability.rules.excusing import TRANSACTIONS, at_slots, eras, explained, permits_loss, sent_at
from linearizability.rules.partition import Array, Mask, PartitionHistory
from linearizability.rules.retention import log_starts
from linearizability.rules.rule import UNPROVEN, Context

ACKS_BELOW_ALL = "acks below all acknowledge before the in-sync replicas have the record"
LAST_OF_ALL = f"{UNPROVEN}why the last record of all is gone: compaction keeps it, unless it is a tombstone"
READ_OF_TOO_FEW = (
    f"{UNPROVEN}how many replicas were in sync when the record was read: below min.insync.replicas acks=all is refused, and with "
    "lower acks a loss of power on the only one may take what was read (before KIP-966)"
)


@dataclass(frozen=True)
class Loss:
    """For each append whether it is lost or unseen; and what proves the loss."""

    lost: Mask
    vanished: Mask
    """Lost although a poll had returned it before: the final read no longer did."""
    revoked: Mask
    """Vanished, and read before a final read began that did not return it: what is given to consumers is committed."""
    unseen: Mask
    doubtful: Mask
    """Unseen ones that a read passed, when they may have expired or not."""
    absent_at: Array
    """When it first showed that the record was not there, NEVER where it did not."""
    passed: Mask
    """A read beyond the record shows it, by then at the latest."""
    drained_at: Array
    """When a final read had ended that did not return it, NEVER where none had."""
    behind_end: Mask
    """It lies where the final read of committed records ended: a transaction without an end may hide it."""
    drain: int
    """The operation of the final read, -1 where there was none."""


def losses(partition: PartitionHistory, context: Context) -> Loss:
    """The missing records of one partition; computed once."""
    return partition.once("losses", lambda: _losses(partition, context))


def _losses(partition: PartitionHistory, context: Context) -> Loss:
    appends, observations = partition.appends, partition.observations
    acknowledged = partition.happened & ~partition.is_repeated(appends.value)
    missing = acknowledged & ~partition.read
    passed, absent_at = np.zeros(len(appends), bool), np.full(len(appends), NEVER)
    if context.contract.reads_from_start and missing.any():
        passed = (
            missing
            & (partition.append_slot >= 0)
            & (partition.append_slot <= partition.observation_slot[~partition.jumping].max(initial=-1))
        )
        absent_at[passed] = _passed_at(partition)[partition.append_slot[passed]]
    lost, (vanished, revoked, drained) = passed.copy(), np.zeros((3, len(appends)), bool)
    first_read = _first_read(partition)
    drained_at, behind_end, drain = np.full(len(appends), NEVER), np.zeros(len(appends), bool), -1
    for number in np.flatnonzero(complete_drains(partition)):
        row = partition.drains.where(np.arange(len(partition.drains)) == number)
        within = (observations.process == row.process) & (observations.invoked >= row.invoked)
        within &= observations.completed <= row.completed
        writers = partition.writer[within]
        returned = np.zeros(len(appends), bool)
        returned[writers[writers >= 0]] = True
        due = acknowledged & in_force_before(partition, row.invoked)
        if context.contract.cleanup != "keep":
            due &= _places(partition) >= int(row.value[0])
        drained_at[due & ~returned] = np.minimum(drained_at[due & ~returned], row.completed)
        if row.flag(Flag.READ_COMMITTED)[0]:
            behind_end |= due & ~returned & (_places(partition) >= int(row.offset[0]))
        vanished |= due & ~returned & partition.read
        revoked |= due & ~returned & (first_read < row.invoked)
        drained |= due
        drain = int(row.operation[0])
    absent_at, undelivered = np.minimum(absent_at, drained_at), drained_at < NEVER
    lost |= undelivered
    doubtful = np.zeros(len(appends), bool)
    if context.contract.cleanup != "keep":
        starts, places = log_starts(partition, context), _places(partition)
        expired = starts.known_at(absent_at) > places
        proven = places >= starts.highest
        if context.contract.cleanup == "delete":
            proven &= starts.last_asked > absent_at
        doubtful = lost & ~proven & ~expired
        lost &= proven
        missing &= ~expired
    only_sure = appends.outcome == Outcome.OK
    unseen = (missing & only_sure & ~lost & ~drained) | doubtful
    return Loss(
        lost, vanished & lost, revoked & lost, unseen, doubtful, absent_at, passed, drained_at, behind_end, drain
    )


def _first_read(partition: PartitionHistory) -> Array:
    """For each append when the first poll ended that returned its record; NEVER where none did."""
    first = np.full(len(partition.appends), NEVER)
    known = np.flatnonzero(partition.writer >= 0)
    np.minimum.at(first, partition.writer[known], partition.observations.completed[known])
    return first


def _passed_at(partition: PartitionHistory, after: int = -NEVER - 1) -> Array:
    """For each slot when the first poll ended that returned what lies there or beyond, and was sent after that."""
    observations, placed = partition.observations, (partition.observation_slot >= 0) & ~partition.jumping
    if after >= -NEVER:
        placed = placed & (sent_at(partition) > after)
    ended = np.full(len(partition.slot_offset), NEVER)
    np.minimum.at(ended, partition.observation_slot[placed], observations.completed[placed])
    return np.minimum.accumulate(ended[::-1])[::-1]


def passer(partition: PartitionHistory, loss: Loss, index: int) -> int:
    """The observation that passed a record first: of several of one time the one farthest up; -1 where a final read had ended
    before that did not return the record."""
    observations = partition.observations
    beyond = (partition.observation_slot >= partition.append_slot[index]) & (partition.observation_slot >= 0)
    beyond &= ~partition.jumping
    first = _first(partition, np.flatnonzero(beyond & (observations.completed == loss.absent_at[index])))
    return int(first[0]) if len(first) else -1


def _first(partition: PartitionHistory, rows: Array) -> Array:
    observations = partition.observations
    times = observations.completed[rows], -observations.offset[rows], observations.operation[rows]
    return rows[np.lexsort((observations.position[rows], *times[::-1]))[:1]]


def in_force_before(partition: PartitionHistory, moment: Array) -> Mask:
    """The appends that a reader which began at that time must receive; of a transaction, once its commit was answered. An append
    without an answer may take effect at any later time: it is due once a client has read it, or a record of its transaction."""
    appends = partition.appends
    stepwise = appends.extra >= 0
    answered = np.where(stepwise, appends.extra + 1000 * appends.session.astype(np.int64), appends.completed)
    answered = np.where(stepwise & (appends.session == MAX_WAIT_US), NEVER, answered)
    unknown, transactional = appends.outcome == Outcome.INFO, appends.flag(Flag.TRANSACTIONAL)
    undecided, alone = unknown & transactional, unknown & ~transactional
    if undecided.any():
        answered = np.where(undecided, partition.shown_committed, answered)
    if alone.any():
        rows = np.flatnonzero((partition.writer >= 0) & (partition.observations.outcome == Outcome.OK))
        first = np.full(len(appends), NEVER)
        np.minimum.at(first, partition.writer[rows], partition.observations.completed[rows])
        answered = np.where(alone, first, answered)
    return (appends.completed < moment) & (answered < moment)


def _places(partition: PartitionHistory) -> Array:
    """Each append's offset; 0 where no report names it."""
    position = partition.append_position
    is_known = position >= 0
    offset = np.zeros(len(position), np.int64)
    offset[is_known] = partition.slot_offset[position[is_known]]
    return offset


def complete_drains(partition: PartitionHistory) -> Mask:
    """The final reads that reached the log end that was asked for before they began."""
    drains = partition.drains
    return (drains.outcome == Outcome.OK) & (drains.extra >= drains.offset) & (drains.offset >= 0)


def carried(partition: PartitionHistory, context: Context) -> Array:
    """Rows that other parts need: the record that each group read first, of all and of those of each era; the last one of all;
    and which groups passed over records at will."""
    commits = partition.rows(Kind.COMMIT)
    observations = partition.observations
    ours = owned(partition, observations.offset)
    placed = (partition.observation_slot >= 0) & ours
    sought = np.flatnonzero(ours & observations.flag(Flag.SOUGHT))  # also where no offset was reported
    _, of_groups = np.unique(observations.group[sought], return_index=True)
    willed = np.flatnonzero(commits.flag(Flag.SOUGHT))
    _, by_groups = np.unique(commits.group[willed], return_index=True)
    mine = np.flatnonzero(placed & ~partition.jumping)
    starts = (
        {after for also in ("", TRANSACTIONS) for after, _ in eras(context, partition, also)} if context.excuses else ()
    )
    first: list[Array] = []
    for group in np.unique(observations.group[mine]):  # another part may know that its members sought
        its = mine[observations.group[mine] == group]
        sent = sent_at(partition)[its] if context.excuses else np.empty(0, np.int64)
        first += [_first(partition, its), *(_first(partition, its[sent > after]) for after in sorted(starts))]
    every = np.arange(len(observations))
    last_sent, last_seen = (
        rows[np.argsort(slots, kind="stable")][-1:]
        for rows, slots in (
            (np.arange(len(partition.appends)), partition.append_position),
            (every[placed], partition.observation_slot[placed]),
        )
    )
    seen = np.unique(np.concatenate([last_seen, *first, sought[of_groups]]))
    chosen = (
        partition.places_of(Kind.APPEND, last_sent),
        partition.places_of(Kind.OBSERVATION, seen),
        partition.places_of(Kind.COMMIT, willed[by_groups]),
    )
    return np.concatenate(chosen)


CUT = Cut(
    By.OFFSET,
    "the record that each group read first, the last one of all, and one of each group whose members sought a position",
    carried,
)


def permitted_loss(partition: PartitionHistory, context: Context, indices: Array) -> npt.NDArray[np.str_]:
    """Why each of these appends may be lost; empty where it may not."""
    appends = partition.appends
    transactional = appends.flag(Flag.TRANSACTIONAL)[indices]
    reasons = np.full(len(indices), context.contract.permits_loss("all"), object)
    if context.excuses:
        for also, chosen in (("", ~transactional), (TRANSACTIONS, transactional)):
            rows = indices[chosen]
            unexcused = _unexcused(partition, context, rows, also)
            reasons[chosen] = explained(context, partition, unexcused, appends.invoked[rows], also)
        doubled = np.flatnonzero(transactional & (reasons == ""))
        reasons[doubled] = _taken_for_another(partition, context, indices[doubled])
    if context.contract.cleanup == "compact":
        gone = np.where(_is_last(partition)[indices], LAST_OF_ALL, "compaction keeps only the last record of each key")
        reasons = np.where(reasons == "", gone, reasons)
    careful, loss = appends.flag(Flag.ACKS_ALL)[indices], losses(partition, context)
    revoked = ~careful & loss.revoked[indices]
    reasons[revoked & (reasons == "") & (context.faults_at < loss.drained_at[indices])] = READ_OF_TOO_FEW
    return np.where(careful | revoked, reasons, ACKS_BELOW_ALL).astype(str)


def _is_last(partition: PartitionHistory) -> Mask:
    """For each append whether no other record may lie beyond it."""
    position = partition.append_position
    others = (position < 0) & (partition.appends.outcome != Outcome.FAIL)
    last = max(position.max(initial=-1), partition.observation_slot.max(initial=-1))
    return (position == last) & (position >= 0) & (not others.any())


def _taken_for_another(partition: PartitionHistory, context: Context, rows: Array) -> Array:
    """Why each of these transactional appends may have been taken for a repetition of the record that lies at its offset: a
    coordinator that has lost what it had decided gives a producer's epoch out again, also long after the excuse."""
    slots, group = np.unique(partition.append_slot[rows], return_inverse=True)
    made, two_known = at_slots(partition, slots, partition.reported_appends).contradictions()
    reasons = permits_loss(context, partition, made, NEVER, TRANSACTIONS, here=False, by_contract="")
    return np.where((slots >= 0) & (two_known < NEVER), reasons, "")[group]


def _unexcused(partition: PartitionHistory, context: Context, rows: Array, also: str) -> Mask:
    """Which of these appends no excuse explains: the append, and what shows that it is missing, lie in one era. What was read
    beyond it may be what was lost: its place was given away, and the append came in below it."""
    appends, loss = partition.appends, losses(partition, context)
    unexcused = np.zeros(len(rows), bool)
    for after, before in eras(context, partition, also):
        last = before == NEVER
        within = (appends.invoked[rows] > after) & (last | (appends.completed[rows] < before))
        passed_at = np.append(_passed_at(partition, after), NEVER)[partition.append_slot[rows]]
        passed = loss.passed[rows] & (passed_at < before)
        made = np.where(loss.behind_end[rows], -NEVER, appends.invoked[rows])  # the lost end may be any transaction's
        drained = (loss.drained_at[rows] < before) & (made > after)
        shown = loss.passed[rows] | (loss.drained_at[rows] < NEVER)
        unexcused |= (within & passed) | drained | (within & last & ~shown)
    return unexcused
