"""zombie-producer: a fenced producer's record behind its successor's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Kind, Outcome
from linearizability.rules.cut import By, Cut, first_of_each, owned
from linearizability.rules.excusing import TRANSACTIONS, permits_loss
from linearizability.rules.partition import Array, PartitionHistory
from linearizability.rules.rule import UNPROVEN, Context, Found, Rule, Witness, found

EXHAUSTED_EPOCH = 32_766
"""The last epoch of a producer id; a transactional id is then given another, whose epochs begin again."""
MAY_BE_NEW = f"{UNPROVEN}whether the producer has a new id: its epochs were exhausted"


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    appends, position = partition.appends, partition.append_position
    known = (appends.group >= 0) & (appends.epoch >= 0) & (position >= 0) & (appends.outcome != Outcome.FAIL)
    rows = np.flatnonzero(known)
    if len(rows) < 2:
        return
    rows = rows[np.lexsort((position[rows], appends.group[rows]))]
    producer = np.cumsum(np.concatenate([[0], appends.group[rows][1:] != appends.group[rows][:-1]]))
    lift = producer * (int(appends.epoch[rows].max()) + 1)
    highest = np.maximum.accumulate(appends.epoch[rows] + lift)
    wrong = np.flatnonzero(appends.epoch[rows] + lift < highest)

    places = partition.slot_offset[position[rows]]
    exhausted = highest - lift >= EXHAUSTED_EPOCH

    def witness(index: int) -> Witness:
        newer = rows[np.flatnonzero(appends.epoch[rows] + lift == highest[index])[0]]
        row = rows[index]
        offset = partition.slot_offset[position[row]]
        text = (
            f"stored at offset {offset} with producer epoch {appends.epoch[row]}, behind a record of epoch "
            f"{appends.epoch[newer]} at {partition.slot_offset[position[newer]]}"
        )
        return offset, appends.value[row], [appends.operation[newer], appends.operation[row]], text

    def permitted(indices: Array) -> Array:
        newer = rows[np.searchsorted(highest, highest[indices])]
        both = np.stack([newer, rows[indices]])
        made, seen = appends.invoked[both].min(0), appends.completed[both].max(0)
        reasons = permits_loss(context, partition, made, seen, TRANSACTIONS)
        return np.where(exhausted[indices] & (reasons == ""), MAY_BE_NEW, reasons)

    yield from found(RULE.id, partition, wrong, witness, permitted, places)


def carried(partition: PartitionHistory, context: Context) -> Array:
    """Of each producer the first record of its newest session."""
    appends, position = partition.appends, partition.append_position
    known = (appends.group >= 0) & (appends.epoch >= 0) & (position >= 0) & (appends.outcome != Outcome.FAIL)
    rows = np.flatnonzero(known)
    rows = rows[owned(partition, partition.slot_offset[position[rows]])]
    rows = rows[np.lexsort((position[rows], -appends.epoch[rows], appends.group[rows]))]
    return partition.places_of(Kind.APPEND, rows[first_of_each(appends.group[rows])])


RULE = Rule(
    id="zombie-producer",
    definition="A record with an older producer epoch lies behind one of the same producer with a newer epoch.",
    promise="Violation: once a new session of a transactional id has begun, the old one is fenced. After the last epoch of a "
    "producer id the next one's begin again: unknown, unless the history has the ids.",
    source="KIP-98, producer fencing; KIP-360",
    needs="producer names and epochs of sends (fields `producer`, `epoch`, and `producer_id` where known)",
    cost="one sort by producer and offset",
    example="""
        0 send t-0:1@0 producer=p epoch=1
        1 send t-0:2@1 producer=p epoch=0
        2 poll t-0:1@0 t-0:2@1
    """,
    check=check,
    cut=Cut(By.OFFSET, "of each producer the first record of its newest session", carried),
)
