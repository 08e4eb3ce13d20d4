"""leader-epoch-regression: leader epochs along the log."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Kind
from linearizability.rules.cut import By, Cut, owned
from linearizability.rules.excusing import in_eras, permits_loss, sent_at
from linearizability.rules.partition import Array, PartitionHistory, Rows
from linearizability.rules.rule import Context, Found, Rule, Witness, found


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    for rows, who in ((partition.observations, "the log"), (partition.rows(Kind.REPLICA_RECORD), "node")):
        if len(rows):
            known = np.flatnonzero((rows.epoch >= 0) & (rows.offset >= 0))
            holder = np.zeros(len(known), np.int64) if who == "the log" else rows.node[known]
            yield from _regressions(partition, context, rows, known, holder, who)


def _regressions(
    partition: PartitionHistory, context: Context, all_rows: Rows, known: Array, holder: Array, who: str
) -> Iterator[Found]:
    rows = all_rows.where(np.isin(np.arange(len(all_rows)), known))
    order = np.lexsort((rows.epoch, rows.offset, holder))
    pairs = _falling(rows, order, holder)
    reasons = np.full(pairs.shape[1], "")
    if who == "the log":
        # Reads of different times may show the log before and after a permitted loss; one replica's log never may.
        made, seen = sent_at(partition)[known], rows.completed
        reasons = permits_loss(context, partition, made[pairs].min(0), seen[pairs].max(0))
        if context.excuses and not context.contract.permits_loss("all"):
            # Neighbours in one era need not be neighbours in the whole log: what lies between them may have been lost.
            unexcused = [_falling(rows, order[era[order]], holder) for era in in_eras(context, partition, made, seen)]
            pairs, reasons = pairs[:, reasons != ""], reasons[reasons != ""]
            pairs = np.concatenate([pairs, *unexcused], axis=1)
            reasons = np.append(reasons, np.full(pairs.shape[1] - len(reasons), ""))

    def witness(index: int) -> Witness:
        (low, high), name = pairs[:, index], who if who == "the log" else f"{who} {holder[pairs[0, index]]}"
        text = (
            f"in {name} offset {rows.offset[low]} has leader epoch {rows.epoch[low]}, and offset {rows.offset[high]} behind it "
            f"has {rows.epoch[high]}"
        )
        return rows.offset[high], rows.value[high], rows.operation[[low, high]], text

    def permitted(indices: Array) -> Array:
        return reasons[indices]

    place = rows.offset[pairs[1]] if who == "the log" else None
    yield from found(RULE.id, partition, np.arange(len(reasons)), witness, permitted, place)


def _falling(rows: Rows, order: Array, holder: Array) -> Array:
    """Neighbours in this order, in one log, of which the one behind has the lower epoch: two rows of indices."""
    epoch, offset, owner = rows.epoch[order], rows.offset[order], holder[order]
    wrong = np.flatnonzero((owner[1:] == owner[:-1]) & (offset[1:] > offset[:-1]) & (epoch[1:] < epoch[:-1]))
    return np.stack([order[wrong], order[wrong + 1]])


def carried(partition: PartitionHistory, context: Context) -> Array:
    """The last record read that has a leader epoch: of all, and of each era."""
    rows, made = partition.observations, sent_at(partition)
    known = np.flatnonzero((rows.epoch >= 0) & (rows.offset >= 0) & owned(partition, rows.offset))
    known = known[np.lexsort((rows.epoch[known], rows.offset[known]))]
    of_eras = [known[era[known]][-1:] for era in in_eras(context, partition, made, rows.completed)]
    last = np.unique(np.concatenate([known[-1:], *of_eras]))
    return partition.places_of(Kind.OBSERVATION, last)


RULE = Rule(
    id="leader-epoch-regression",
    definition="A record with a higher offset has a lower leader epoch than one before it.",
    promise="Violation: leaders append in the order of their epochs, and followers truncate what differs.",
    source="KIP-101, KIP-320",
    needs="leader epochs of polled records or of replicas",
    cost="one sort by offset",
    example="""
        9 replica t-0 node=1 high_watermark=2 1@0/3 2@1/2
    """,
    check=check,
    cut=Cut(By.OFFSET, "the last record read that has a leader epoch, of all and of each era", carried),
)
