"""nonlinearizable: the exact check of one partition as an append-only log.

The object: `append(v)` gives `v` the next free position and returns it; a read returns the records of a range of positions,
and `end` the next position. Positions may have gaps (control records, aborted batches). An append of unknown outcome whose
record was never read may never have happened, and restricts nothing.

Because each append names its place, the order of the appends is given, and a history is linearizable exactly if moments can
be chosen along that order: no operation may have ended before one with a lower place began. Reads and end offsets take
places too:

- an append at position p has the place 4p;
- a read of the record at p comes after it: place 4p + 1. It may be as stale as it likes (a consumer lags, a leader that was
  cut off serves old prefixes), so it may come after later appends: its beginning is taken for -∞;
- an end offset e says that the append at e - 1 has happened: place 4(e - 1) + 1, with a beginning of -∞ as well. If recency
  is strict, it also says that the append at e has not, so its beginning counts: place 4(e - 1) + 2.

So: sort by place, run the minimum of the ends from the back, and compare each beginning with the minimum of all higher
places. Operations at one place may take effect in either order.
The search that a general checker needs (Wing and Gong, Lowe) takes exponential time in the number of concurrent clients;
`tests/rules` shows that both agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from linearizability.history.facts import Flag, Kind, Outcome
from linearizability.history.keys import NEVER
from linearizability.rules.cut import By, Cut, owned
from linearizability.rules.excusing import eras, kept_from, permits_loss, sent_at
from linearizability.rules.loss import ACKS_BELOW_ALL
from linearizability.rules.partition import Array, Mask, PartitionHistory
from linearizability.rules.realtime_order import timeline
from linearizability.rules.rule import Context, Found, Rule, Witness, found

BEFORE_ALL = -NEVER


@dataclass(frozen=True)
class Placed:
    """All operations with a place, sorted by it."""

    place: Array
    invoked: Array
    completed: Array
    source: Array
    """The row of the partition."""
    careful: Mask
    """Whether the completion promises that the place is kept: what lower acks acknowledged may be undone."""
    made: Array
    """When the record was sent that shows it, long ago where that is not known."""

    def guarded(self, after: int) -> Array:
        """The end of each operation whose place is kept and that was made later than `after`; else NEVER."""
        return np.where(self.careful & (self.made > after), self.completed, NEVER)


def places(partition: PartitionHistory, strict: bool) -> Placed:
    appends, observations = partition.appends, partition.observations
    rows, invoked, completed = timeline(partition)
    careful = appends.flag(Flag.ACKS_ALL)[rows]
    own = 4 * partition.slot_offset[partition.append_position[rows]]
    parts = [(own, invoked, completed, partition.places_of(Kind.APPEND, rows), careful, invoked)]
    placed = np.flatnonzero((partition.observation_slot >= 0) & (partition.writer >= 0))
    started = np.full(len(placed), BEFORE_ALL)
    seen = (4 * observations.offset[placed] + 1, started, observations.completed[placed])
    parts.append(
        (*seen, partition.places_of(Kind.OBSERVATION, placed), np.ones(len(placed), bool), sent_at(partition)[placed])
    )
    ends = partition.rows(Kind.END_OFFSETS)
    reported = np.flatnonzero((ends.outcome == Outcome.OK) & (ends.offset >= 0))
    started = ends.invoked[reported] if strict else np.full(len(reported), BEFORE_ALL)
    behind = 4 * ends.offset[reported] - (2 if strict else 3)
    sources = partition.places_of(Kind.END_OFFSETS, reported)
    asked = np.where(
        ends.position[reported] == 0, ends.invoked[reported], BEFORE_ALL
    )  # a fetch may have been answered long before
    parts.append((behind, started, ends.completed[reported], sources, np.ones(len(reported), bool), asked))
    columns = list(zip(*parts, strict=True))
    del parts, seen, started  # of a large partition each of them takes a tenth of its facts
    order = np.argsort(np.concatenate(columns[0]), kind="stable")
    return Placed(*(np.concatenate(columns.pop(0))[order] for _ in range(len(columns))))


def first_conflict(place: Array, invoked: Array, completed: Array, mine: Mask | None = None) -> tuple[int, int] | None:
    """Indices of two operations of which the one at the higher place ended before the other began, or None.

    `mine` says which may be the one at the lower place.
    """
    earliest = np.append(np.minimum.accumulate(completed[::-1])[::-1], NEVER)
    above = np.searchsorted(place, place, side="right")
    wrong = np.flatnonzero(invoked > earliest[above] if mine is None else mine & (invoked > earliest[above]))
    if not len(wrong):
        return None
    low = int(wrong[0])
    higher = int(above[low])
    return low, higher + int(np.argmin(completed[higher:]))


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    all_placed = places(partition, context.contract.strict_recency)
    place, invoked, completed = all_placed.place, all_placed.invoked, all_placed.completed
    reason, mine = context.contract.permits_loss("all"), owned(partition, place // 4)
    kept = np.full(len(partition.columns["kind"]), -NEVER)
    kept[partition.places_of(Kind.APPEND, np.arange(len(partition.appends)))] = kept_from(partition)
    seen = np.where(kept[all_placed.source] == -NEVER, completed, kept[all_placed.source])
    conflicts: list[tuple[int, int] | None] = []
    for after, before in [] if reason else eras(context, partition):
        conflicts.append(first_conflict(place, invoked, all_placed.guarded(after), mine & (seen < before)))
    conflict = min((each for each in conflicts if each is not None), key=lambda each: each[0], default=None)
    if conflict is None:
        conflict = first_conflict(place, invoked, completed, mine)
        if conflict is None:
            return
        low, high = conflict
        excused = str(permits_loss(context, partition, all_placed.made[high], seen[low])[0])
        reason = (excused if all_placed.careful[high] and seen[low] < NEVER else reason) or ACKS_BELOW_ALL
    low, high = conflict
    operation = partition.columns["operation"][all_placed.source]

    def witness(index: int) -> Witness:
        text = "took effect in the log's order only after an operation that had already ended when it began"
        return int(place[low]) // 4, -1, [operation[high], operation[low]], text

    yield from found(RULE.id, partition, np.array([low]), witness, reason, place // 4)


def carried(partition: PartitionHistory, context: Context) -> Array:
    """The operations that ended first: of all, and of those whose place is kept."""
    all_placed = places(partition, context.contract.strict_recency)
    mine = owned(partition, all_placed.place // 4)
    completed, source = all_placed.completed[mine], all_placed.source[mine]
    if not len(source):
        return source
    of_eras = [int(all_placed.guarded(after)[mine].argmin()) for after, _ in eras(context, partition)]
    chosen = source[[int(completed.argmin()), *of_eras]]
    reads = partition.places_of(Kind.OBSERVATION, np.arange(len(partition.observations)))
    written_by = partition.writer[np.isin(reads, chosen)]  # a read without its writer would have no place in the order
    return np.concatenate([chosen, partition.places_of(Kind.APPEND, written_by)])


RULE = Rule(
    id="nonlinearizable",
    definition="No choice of moments, one within each operation, explains the partition as an append-only log.",
    promise="Violation for acks=all: appends are linearizable, reads are prefixes. What lower acks acknowledged may be "
    "undone, so its end binds nothing. Stale prefixes and stale end offsets are allowed unless the contract asks for strict "
    "recency. One anomaly a partition: its first conflict, a violation before a permitted one.",
    source="Herlihy and Wing 1990; Wing and Gong 1993; Lowe 2017",
    needs="one monotonic clock for all processes; offsets",
    cost="one sort by position, nearly sorted already",
    example="""
        0 send t-0:1@1
        1 send t-0:2@0
    """,
    check=check,
    cut=Cut(By.OFFSET, "what ended first, of all and of what promises to keep its place", carried, single=True),
    rests_on_time=True,
)
