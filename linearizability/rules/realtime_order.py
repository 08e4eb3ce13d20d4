"""realtime-order and future-read: the log's order against the clock.

An offset-addressed log is linearizable, as far as its appends go, exactly if no append returned before one at a lower
position was invoked: each append can then take effect at a moment within its own duration, in the order of the positions.
So the exact check is a table by slot and one running minimum from the end; the search that a general checker needs is not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Flag, Kind, Outcome
from linearizability.history.keys import NEVER
from linearizability.rules.cut import BY_VALUE, By, Cut, owned
from linearizability.rules.excusing import earliest_from, eras, kept_from, permits_loss
from linearizability.rules.loss import ACKS_BELOW_ALL
from linearizability.rules.partition import Array, PartitionHistory
from linearizability.rules.rule import Context, Found, Rule, Witness, found


def timeline(partition: PartitionHistory) -> tuple[Array, Array, Array]:
    """Appends in the order of their positions: their index, invocation, and completion (`NEVER` where it is unknown)."""
    appends, position = partition.appends, partition.append_position
    rows = np.flatnonzero(position >= 0)
    if len(partition.repeated_values):
        rows = rows[~partition.is_repeated(appends.value[rows])]
    rows = rows[np.argsort(position[rows], kind="stable")]
    acknowledged = appends.outcome[rows] == Outcome.OK
    completed = np.where(acknowledged, appends.completed[rows], NEVER)
    return rows, appends.invoked[rows], completed


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    appends = partition.appends
    rows, invoked, completed = timeline(partition)
    if len(rows) < 2:
        return
    position = partition.append_position[rows]
    above = np.searchsorted(position, position, side="right")

    def earliest_above(times: Array) -> Array:
        return np.append(np.minimum.accumulate(times[::-1])[::-1], NEVER)[above]

    wrong = np.flatnonzero(invoked > earliest_above(completed))

    def witness(index: int) -> Witness:
        later = above[index] + int(np.argmin(completed[above[index] :]))
        low, high = rows[index], rows[later]
        offsets = partition.slot_offset[partition.append_position[[low, high]]]
        text = (
            f"stored at offset {offsets[0]}, though it was sent only after the record at offset {offsets[1]} had been "
            f"acknowledged"
        )
        return offsets[0], appends.value[low], [appends.operation[high], appends.operation[low]], text

    careful = appends.flag(Flag.ACKS_ALL)[rows]
    guarded = np.where(careful, completed, NEVER)
    still_wrong = invoked > earliest_above(guarded)

    kept = kept_from(partition)[rows]
    unexcused = np.zeros(len(wrong), bool)
    for after, before in eras(context, partition):
        earliest = earliest_above(np.where(invoked > after, guarded, NEVER))
        unexcused |= (invoked[wrong] > earliest[wrong]) & (kept[wrong] < before)

    def permitted(indices: Array) -> Array:
        by_contract = context.contract.permits_loss("all")
        higher = earliest_from(guarded)[above[indices]]
        excused = permits_loss(context, partition, invoked[higher], kept[indices])
        reasons = np.where(still_wrong[indices] & (kept[indices] < NEVER), excused, by_contract or ACKS_BELOW_ALL)
        return np.where(np.isin(indices, wrong[unexcused]), by_contract, reasons)

    yield from found(APPENDS.id, partition, wrong, witness, permitted, partition.slot_offset[position])


def carried(partition: PartitionHistory, context: Context) -> Array:
    """The appends that ended first: of all, and of those with acks=all."""
    rows, _, completed = timeline(partition)
    mine = owned(partition, partition.slot_offset[partition.append_position[rows]])
    rows, completed = rows[mine], completed[mine]
    if not len(rows):
        return rows
    guarded = np.where(partition.appends.flag(Flag.ACKS_ALL)[rows], completed, NEVER)
    invoked = partition.appends.invoked[rows]
    of_eras = [int(np.where(invoked > after, guarded, NEVER).argmin()) for after, _ in eras(context, partition)]
    return partition.places_of(Kind.APPEND, rows[[int(completed.argmin()), int(guarded.argmin()), *of_eras]])


def future_read(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    appends, observations, writer = partition.appends, partition.observations, partition.writer
    known = np.flatnonzero(writer >= 0)
    if len(partition.repeated_values):
        known = known[~partition.is_repeated(observations.value[known])]
    wrong = known[observations.completed[known] < appends.invoked[writer[known]]]

    def witness(index: int) -> Witness:
        operations = [observations.operation[index], appends.operation[writer[index]]]
        return observations.offset[index], observations.value[index], operations, "returned before it was sent"

    yield from found(FUTURE.id, partition, wrong, witness, place=observations.offset)


APPENDS = Rule(
    id="realtime-order",
    definition="A record was sent after another one had been acknowledged, by any client, and was stored before it.",
    promise="Violation for acks=all, whose appends are linearizable. With lower acks the earlier record may have been lost "
    "and its place given away; and the later one, unless a client read it there, may be lost with a leader that was deposed.",
    source="Herlihy and Wing, linearizability; requirement HIS-07",
    needs="one monotonic clock for all processes; offsets of sends",
    cost="linear: a table by slot and a running minimum",
    example="""
        0 send t-0:1@1
        1 send t-0:2@0
    """,
    check=check,
    cut=Cut(By.OFFSET, "the appends that ended first, of all and of those with acks=all", carried),
    rests_on_time=True,
)

FUTURE = Rule(
    id="future-read",
    definition="A poll returned a record and ended before the record was sent.",
    promise="Always a violation.",
    source="Causality; requirement HIS-07",
    needs="one monotonic clock for all processes",
    cost="linear",
    example="""
        1 poll t-0:1@0
        0 send t-0:1@0
    """,
    check=future_read,
    cut=BY_VALUE,
    rests_on_time=True,
)
