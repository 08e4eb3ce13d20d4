"""leader-epoch-regression: leader epochs along the log."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Kind
from linearizability.rules.cut import By, Cut, owned
from linearizability.rules.excusing import permits_loss, sent_at
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
    epoch, offset, owner = rows.epoch[order], rows.offset[order], holder[order]
    wrong = np.flatnonzero((owner[1:] == owner[:-1]) & (offset[1:] > offset[:-1]) & (epoch[1:] < epoch[:-1]))

    def witness(index: int) -> Witness:
        name = who if who == "the log" else f"{who} {owner[index]}"
        text = (
            f"in {name} offset {offset[index]} has leader epoch {epoch[index]}, and offset {offset[index + 1]} behind it "
            f"has {epoch[index + 1]}"
        )
        operations = rows.operation[order[[index, index + 1]]]
        return offset[index + 1], rows.value[order[index + 1]], operations, text

    # Reads of different times may show the log before and after a permitted loss; one replica's log never may.
    def permitted(indices: Array) -> Array:
        if who != "the log":
            return np.full(len(indices), "")
        both = order[np.stack([indices, indices + 1])]
        return permits_loss(context, partition, sent_at(partition)[known[both]].min(0), rows.completed[both].max(0))

    yield from found(RULE.id, partition, wrong, witness, permitted, offset[1:] if who == "the log" else None)


def carried(partition: PartitionHistory, context: Context) -> Array:
    """The last record read that has a leader epoch."""
    rows = partition.observations
    known = np.flatnonzero((rows.epoch >= 0) & (rows.offset >= 0) & owned(partition, rows.offset))
    last = known[np.lexsort((rows.epoch[known], rows.offset[known]))[-1:]]
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
    cut=Cut(By.OFFSET, "the last record read that has a leader epoch", carried),
)
