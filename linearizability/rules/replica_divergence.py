"""replica-divergence: replicas that hold different records below the high watermark."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Kind
from linearizability.rules.cut import APART
from linearizability.rules.partition import Array, Partition
from linearizability.rules.rule import Context, Found, Rule, Witness, found

WATERMARK_UNKNOWN = "no replica's high watermark is known: the records may lie above it"


def kernel(partition: Partition, context: Context) -> Iterator[Found]:
    records = partition.rows(Kind.REPLICA_RECORD)
    if not len(records):
        return
    # Each replica's last digest counts; digests are collected after healing.
    nodes = np.unique(records.node)
    last = np.array([records.operation[records.node == node].max() for node in nodes])
    held = records.where(records.operation == last[np.searchsorted(nodes, records.node)])
    watermark = int(held.extra.max())
    low = np.array([held.offset[held.node == node].min() for node in nodes])
    high = np.array([held.offset[held.node == node].max() for node in nodes])
    # Only what both of two replicas reach is compared: a follower may lag, and a start may differ by retention.
    bound = min(int(np.sort(high)[-2]) if len(high) > 1 else -1, watermark - 1 if watermark >= 0 else 1 << 62)
    start = int(np.sort(low)[1]) if len(low) > 1 else 0
    offsets = np.unique(held.offset[(held.offset <= bound) & (held.offset >= start)])
    if len(nodes) < 2 or not len(offsets):
        return
    wrong = _disagreements(held.offset, held.node, held.value, held.epoch, offsets, nodes, low, high)

    def witness(index: int) -> Witness:
        at = held.offset == offsets[index]
        said = [
            f"node {node} {int(held.value[at & (held.node == node)][0]) if (at & (held.node == node)).any() else 'nothing'}"
            for node in nodes
        ]
        text = f"offset {offsets[index]} differs between replicas: {', '.join(said)}"
        return offsets[index], held.value[at][0], last, text

    reason = context.contract.permits_divergence() or (WATERMARK_UNKNOWN if watermark < 0 else "")
    if context.contract.cleanup == "compact":
        reason = reason or "replicas compact at different times"
    yield from found(RULE.id, partition, wrong, witness, reason)


def _disagreements(
    offset: Array, node: Array, value: Array, epoch: Array, offsets: Array, nodes: Array, low: Array, high: Array
) -> Array:
    """Indices into `offsets` at which two replicas that both reach there hold different records, or one holds none."""
    inside = (offset >= offsets[0]) & (offset <= offsets[-1])
    row = np.searchsorted(offsets, offset[inside])
    column = np.searchsorted(nodes, node[inside])
    shape = (len(offsets), len(nodes))
    values, epochs, present = np.zeros(shape, np.int64), np.full(shape, -1), np.zeros(shape, bool)
    values[row, column], epochs[row, column], present[row, column] = value[inside], epoch[inside], True
    reaches = (offsets[:, None] >= low) & (offsets[:, None] <= high)
    first = present.argmax(axis=1)
    rows = np.arange(len(offsets))
    differs = present & (values != values[rows, first][:, None])
    epoch_known = (epochs >= 0) & (epochs[rows, first] >= 0)[:, None]
    differs |= present & epoch_known & (epochs != epochs[rows, first][:, None])
    return np.flatnonzero((differs | (reaches & ~present)).any(axis=1))


RULE = Rule(
    id="replica-divergence",
    definition="Two replicas hold different records at one offset below the high watermark, or one lacks what both reach.",
    promise="Violation, also after an unclean election, for followers truncate what their leader lacks; permitted when "
    "min.insync.replicas replicas lost unflushed data at once. Above the high watermark replicas may differ.",
    source="KIP-101, KIP-279; Kafka documentation, replication",
    needs="digests of replicas with their high watermarks, taken after healing",
    cost="linear in the records of the replicas",
    example="""
        9 replica t-0 node=1 high_watermark=2 1@0/0 2@1/0
        9 replica t-0 node=2 high_watermark=2 1@0/0 3@1/1
    """,
    kernel=kernel,
    cut=APART,
)
