"""leader-epoch-regression: leader epochs along the log."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Kind
from linearizability.rules.cut import By, Cut, owned
from linearizability.rules.partition import Array, Partition, Rows
from linearizability.rules.rule import Context, Found, Rule, Witness, found


def kernel(partition: Partition, context: Context) -> Iterator[Found]:
    for rows, who in ((partition.observations, "the log"), (partition.rows(Kind.REPLICA_RECORD), "node")):
        known = rows.where((rows.epoch >= 0) & (rows.offset >= 0)) if len(rows) else rows
        if len(known):
            holder = np.zeros(len(known), np.int64) if who == "the log" else known.node
            yield from _regressions(partition, context, known, holder, who)


def _regressions(partition: Partition, context: Context, rows: Rows, holder: Array, who: str) -> Iterator[Found]:
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
    reason = context.contract.permits_loss("all") if who == "the log" else ""
    yield from found(RULE.id, partition, wrong, witness, reason, offset[1:] if who == "the log" else None)


def carried(partition: Partition, context: Context) -> Array:
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
    kernel=kernel,
    cut=Cut(By.OFFSET, "the last record read that has a leader epoch", carried),
)
