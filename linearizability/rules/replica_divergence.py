"""replica-divergence: replicas that hold different records below the high watermark."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Flag, Kind
from linearizability.rules.cut import last_of_each
from linearizability.rules.partition import Array, Mask, PartitionHistory, Rows, repeated
from linearizability.rules.rule import UNPROVEN, Context, Found, Rule, Witness, found

LAST_UNKNOWN = f"{UNPROVEN}which digest of a replica is its last: the clock stepped back"
WATERMARK_UNKNOWN = f"{UNPROVEN}any replica's high watermark; the records may lie above it"
COMPACTED_APART = "replicas compact at different times"


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    records = partition.rows(Kind.REPLICA_RECORD)
    nodes = np.unique(records.node)
    if len(nodes) < 2:
        return
    last = _last_digests(records, context.is_timed)
    is_last = (
        context.is_timed or len(np.unique(records.process)) == 1 or len(np.unique(records.operation)) == len(nodes)
    )
    replicas = [records.where(records.operation == operation) for operation in last]
    watermark = int(records.extra[np.isin(records.operation, last)].max())
    held = records.where(np.isin(records.operation, last) & (records.offset >= 0))
    offsets = np.unique(held.offset[held.offset < watermark] if watermark >= 0 else held.offset)
    if not len(offsets):
        return
    # A replica must hold what lies between its first and its last record, and what lies below its own high watermark;
    # the records before its first one only where none may leave the log.
    first = offsets[0] if context.contract.cleanup == "keep" else None
    bounds = [_bounds(replica, first) for replica in replicas]
    low, high = (np.array(bound) for bound in zip(*bounds, strict=True))
    promised = _is_promised(partition, context, held, offsets)[:, None] & _may_lack_nothing(replicas, context)
    differs, lacking = _disagreements(held, offsets, nodes, low, high, promised)

    def witness(index: int) -> Witness:
        at = held.offset == offsets[index]
        said = [
            f"node {node} {int(held.value[at & (held.node == node)][0]) if (at & (held.node == node)).any() else 'nothing'}"
            for node in nodes
        ]
        text = f"offset {offsets[index]} differs between replicas: {', '.join(said)}"
        return offsets[index], held.value[at][0], last, text

    def permitted(indices: Array) -> Array:
        compacted = ~differs[indices] & (context.contract.cleanup == "compact")
        open_reason = WATERMARK_UNKNOWN if watermark < 0 else "" if is_last else LAST_UNKNOWN
        return np.where(compacted, COMPACTED_APART, open_reason)

    yield from found(RULE.id, partition, np.flatnonzero(differs | lacking), witness, permitted)


def _last_digests(records: Rows, is_timed: bool) -> Array:
    """Of each node the operation that read its replica last; digests are collected after healing. By a clock that stepped back
    only the numbers of one process's operations show the order."""
    time = records.completed if is_timed else np.zeros(len(records), np.int64)
    order = np.lexsort((records.operation, time, records.node))
    return records.operation[order[last_of_each(records.node[order])]]


def _bounds(replica: Rows, first: int | None) -> tuple[int, int]:
    """The first and the last offset that a replica must hold if another one does, by its own account."""
    offset, watermark = replica.offset[replica.offset >= 0], int(replica.extra.max())
    low = int(offset.min()) if len(offset) else watermark
    return low if first is None else first, max(int(offset.max(initial=-1)), watermark - 1)


def _is_promised(partition: PartitionHistory, context: Context, held: Rows, offsets: Array) -> Mask:
    """At which offsets a held record was promised before the last fault was over: acknowledged with acks=all, or read. It was
    below the high watermark then, and all replicas have been in sync since, so each has reached it. Later records prove nothing:
    a replica may have fallen behind again."""
    appends, observations = partition.appends, partition.observations
    careful = partition.log_appends[appends.flag(Flag.ACKS_ALL)[partition.log_appends]]
    early = careful[appends.completed[careful] <= context.heals_at]
    read = np.flatnonzero((observations.offset >= 0) & (observations.completed <= context.heals_at))
    known = np.stack(
        [
            np.concatenate([appends.offset[early], observations.offset[read]]),
            np.concatenate([appends.value[early], observations.value[read]]),
        ],
        axis=1,
    )
    both, place = np.unique(
        np.concatenate([np.stack([held.offset, held.value], axis=1), known]), axis=0, return_inverse=True
    )
    is_held, is_known = np.zeros(len(both), bool), np.zeros(len(both), bool)
    is_held[place[: len(held)]], is_known[place[len(held) :]] = True, True
    return np.isin(offsets, both[is_held & is_known, 0])


def _may_lack_nothing(replicas: list[Rows], context: Context) -> Mask:
    """Of which replicas it is known where they begin, by digests that were taken after the last fault: retention may have
    emptied a replica that holds nothing."""
    return np.array(
        [
            bool((replica.invoked > context.heals_at).all())
            and (context.contract.cleanup == "keep" or bool((replica.offset >= 0).any()))
            for replica in replicas
        ]
    )


def _disagreements(
    held: Rows, offsets: Array, nodes: Array, low: Array, high: Array, promised: Mask
) -> tuple[Mask, Mask]:
    """At which offsets two replicas hold different records, and at which one lacks what it must hold."""
    inside = np.isin(held.offset, offsets)
    row, column = np.searchsorted(offsets, held.offset[inside]), np.searchsorted(nodes, held.node[inside])
    shape = (len(offsets), len(nodes))
    values, epochs, present = np.zeros(shape, np.int64), np.full(shape, -1), np.zeros(shape, bool)
    values[row, column], epochs[row, column], present[row, column] = held.value[inside], held.epoch[inside], True
    demanded = (offsets[:, None] >= low) & ((offsets[:, None] <= high) | promised)
    first = present.argmax(axis=1)
    rows = np.arange(len(offsets))
    differs = present & (values != values[rows, first][:, None])
    epoch_known = (epochs >= 0) & (epochs[rows, first] >= 0)[:, None]
    differs |= present & epoch_known & (epochs != epochs[rows, first][:, None])
    differs[_twice(row * len(nodes) + column, held.where(inside)) // len(nodes)] = True
    return np.any(differs, axis=1), np.any(demanded & ~present, axis=1)


def _twice(place: Array, held: Rows) -> Array:
    """The places, an offset in a replica each, at which there are two different records."""
    records = np.unique(np.stack([place, held.value, held.epoch], axis=1), axis=0)
    return repeated(records[:, 0])


RULE = Rule(
    id="replica-divergence",
    definition="Two replicas, or one by itself, hold different records at one offset below the high watermark, or one lacks what "
    "another holds below its own high watermark or its own last record, or what was promised before the last fault was over.",
    promise="Violation, also after an unclean election or a power loss, for followers truncate what their leader lacks. Above "
    "the high watermark replicas may differ, and where none is known, that is unknown; where records may leave the log, a "
    "replica may begin later; where they are compacted, it may lack some, and never holds others. Promised is what "
    "was acknowledged with acks=all, or read.",
    source="KIP-101, KIP-279; Kafka documentation, replication",
    needs="digests of replicas with their high watermarks, taken when all are in sync",
    cost="one sort of what the replicas hold and what was promised",
    example="""
        9 replica t-0 node=1 high_watermark=2 1@0/0 2@1/0
        9 replica t-0 node=2 high_watermark=2 1@0/0 3@1/1
    """,
    check=check,
)
