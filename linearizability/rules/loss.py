"""Which acknowledged records are missing, and how surely: the ground of the rules `lost-write` and `unseen`.

A record is missing when it was acknowledged and no poll ever returned it. It is *lost* when somebody must have come across
it: a final read of the whole partition (a drain) did not return it, or a poll returned a record behind it. Until then it
is merely *unseen*: nobody may have looked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linearizability.history.facts import MAX_WAIT_US, NEVER, Flag, Kind, Outcome
from linearizability.rules.cut import By, Cut
from linearizability.rules.partition import Array, Columns, Mask, Partition, Rows
from linearizability.rules.rule import UNPROVEN, Context

ACKS_BELOW_ALL = "acks below all acknowledge before the in-sync replicas have the record"
COMPACTED = "compaction may have removed the records between"
EXPIRED = "the records between may have expired"
START_NOT_TOLD = f"{UNPROVEN}whether the records between had expired: nobody was told later where the log begins"


@dataclass(frozen=True)
class Loss:
    """For each append whether it is lost or unseen; and what proves the loss."""

    lost: Mask
    vanished: Mask
    """Lost although a poll had returned it before: the final read no longer did."""
    unseen: Mask
    highest_read: int
    """The observation with the highest offset, -1 where nothing was read."""
    drain: int
    """The operation of the final read, -1 where there was none."""


def losses(partition: Partition, context: Context) -> Loss:
    """What is missing from one partition. Computed once for all who ask."""
    return partition.once("losses", lambda: _losses(partition, context))


def _losses(partition: Partition, context: Context) -> Loss:
    appends, observations = partition.appends, partition.observations
    acknowledged = partition.happened & ~partition.is_repeated(appends.value)
    position = partition.append_slot
    missing = acknowledged & ~partition.read
    highest, drain = -1, -1
    passed = np.zeros(len(appends), bool)
    if len(observations) and partition.observation_slot.max() >= 0:
        highest = int(partition.observation_slot.argmax())
        passed = (position >= 0) & (position < partition.observation_slot[highest])
        passed |= (position == partition.observation_slot[highest]) & missing
    lost = missing & passed if context.contract.reads_from_start else np.zeros(len(appends), bool)
    if context.contract.cleanup == "delete" and highest >= 0:  # what was passed over may have expired by then
        lost &= log_start_told_at(partition) > observations.completed[highest]
    vanished = np.zeros(len(appends), bool)
    drained = np.zeros(len(appends), bool)
    for number in np.flatnonzero(complete_drains(partition)):
        row = partition.drains.where(np.arange(len(partition.drains)) == number)
        within = (observations.process == row.process) & (observations.invoked >= row.invoked)
        within &= observations.completed <= row.completed
        writers = partition.writer[within]
        returned = np.zeros(len(appends), bool)
        returned[writers[writers >= 0]] = True
        due = acknowledged & in_force_before(appends, row.invoked)
        if context.contract.cleanup != "keep":
            due &= ~_may_be_below(partition, int(row.value[0]))
        lost |= due & ~returned
        vanished |= due & ~returned & partition.read
        drained |= due
        drain = int(row.operation[0])
    if context.contract.cleanup != "keep":
        gone = _may_be_below(partition, log_start(partition))
        lost &= ~gone
        missing &= ~gone
    only_sure = appends.outcome == Outcome.OK
    return Loss(lost, vanished & lost, missing & only_sure & ~lost & ~drained, highest, drain)


def in_force_before(appends: Rows, moment: Array) -> Mask:
    """The appends that whoever began to read at that moment must be given: of a transaction, once its commit was answered."""
    stepwise = appends.extra >= 0
    answered = np.where(stepwise, appends.extra + 1000 * appends.session.astype(np.int64), appends.completed)
    return (appends.completed < moment) & (answered < moment) & ~(stepwise & (appends.session == MAX_WAIT_US))


def _may_be_below(partition: Partition, start: int) -> Mask:
    """The appends whose place is below a log start, or that took effect at a place that nobody was told of."""
    position = partition.append_position
    is_known = position >= 0
    offset = np.zeros(len(position), np.int64)
    offset[is_known] = partition.slot_offset[position[is_known]]
    return offset < start


def complete_drains(partition: Partition) -> Mask:
    """The final reads that reached the log end that was asked for before they began."""
    drains = partition.drains
    return (drains.outcome == Outcome.OK) & (drains.extra >= drains.offset) & (drains.offset >= 0)


def log_start(partition: Partition) -> int:
    """The highest log start that anybody reported, 0 where nobody did."""
    starts = [partition.rows(Kind.END_OFFSETS).extra, partition.rows(Kind.LOG_START).offset, partition.drains.value]
    return max((int(array.max()) for array in starts if len(array)), default=0)


def log_start_told_at(partition: Partition) -> int:
    """When a log start was asked for last, -NEVER where nobody did: it had not gone beyond `log_start` before."""
    ends, starts, drains = (partition.rows(kind) for kind in (Kind.END_OFFSETS, Kind.LOG_START, Kind.DRAIN))
    told = [ends.invoked[ends.extra >= 0], starts.invoked[starts.offset >= 0], drains.invoked[drains.value >= 0]]
    return max((int(array.max()) for array in told if len(array)), default=-NEVER)


def expired_below(partition: Partition, context: Context) -> int:
    """Records below this offset may have expired before they were read."""
    return log_start(partition) if context.contract.cleanup == "delete" else 0


def log_start_rows(columns: Columns) -> Array:
    """Which rows tell all that a partition's other parts must know of where its log begins; final reads besides."""
    chosen = [np.empty(0, np.intp)]
    for kind, column in ((Kind.END_OFFSETS, "extra"), (Kind.LOG_START, "offset")):
        rows = np.flatnonzero((columns["kind"] == kind) & (columns[column] >= 0))
        if len(rows):
            chosen.append(rows[[columns[column][rows].argmax(), columns["invoked"][rows].argmax()]])
    return np.concatenate(chosen)


def carried(partition: Partition, context: Context) -> Array:
    """What other parts must know of what is missing: the record read farthest up."""
    highest = losses(partition, context).highest_read
    return partition.places_of(Kind.OBSERVATION, np.array([highest] if highest >= 0 else [], np.intp))


CUT = Cut(By.OFFSET, "the record read farthest up", carried)


def permitted_loss(partition: Partition, context: Context, indices: Array) -> npt.NDArray[np.str_]:
    """Why each of these appends may be lost; empty where it may not."""
    by_contract = context.contract.permits_loss("all")
    if context.contract.cleanup == "compact":
        by_contract = by_contract or "compaction keeps only the last record of each key"
    return np.where(partition.appends.flag(Flag.ACKS_ALL)[indices], by_contract, ACKS_BELOW_ALL)
