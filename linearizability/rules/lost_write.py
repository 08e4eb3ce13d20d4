"""lost-write: an acknowledged record that is not in the log any more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.rules.loss import CUT, losses, passer, permitted_loss
from linearizability.rules.partition import PartitionHistory
from linearizability.rules.rule import Context, Found, Rule, Witness, found


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    loss = losses(partition, context)
    appends, observations = partition.appends, partition.observations

    def witness(index: int) -> Witness:
        offset, operation = int(appends.offset[index]), int(appends.operation[index])
        at = f"acknowledged at offset {offset}" if offset >= 0 else "acknowledged"
        by = passer(partition, loss, index) if loss.passed[index] else -1
        if by < 0:
            before = "was read, and is gone" if loss.vanished[index] else "was never read"
            text = f"{at}, {before}: the final read of the whole partition did not return it"
            return offset, int(appends.value[index]), [operation, loss.drain], text
        text = f"{at}, never read, though offset {observations.offset[by]} was"
        return offset, int(appends.value[index]), [operation, observations.operation[by]], text

    yield from found(
        RULE.id,
        partition,
        np.flatnonzero(loss.lost),
        witness,
        lambda indices: permitted_loss(partition, context, indices),
        appends.offset,
    )


RULE = Rule(
    id="lost-write",
    definition="A record was acknowledged, and a read that must have come across it did not return it.",
    promise="Violation for acks=all, and for lower acks where a poll had returned the record before a final read began that did "
    "not: what consumers are given is committed. After a fault that is unknown. Permitted for what lower acks acknowledged and "
    "no poll returned, under unclean elections, where an excuse covers the record (power lost, and min.insync.replicas replicas "
    "in doubt at once), and where compaction or retention removed it; compaction removes no last record but a tombstone, so that "
    "is unknown. A transaction of unknown outcome counts as acknowledged once a reader of committed records was given any record "
    "of it.",
    source="Kafka documentation, design: replication and message delivery semantics; requirement HIS-01",
    needs="acknowledged offsets; consumers that begin at the log start, and do not seek beyond; best a final drain",
    cost="linear",
    example="""
        0 send t-0:1@0
        0 send t-0:2@1
        0 send t-0:3@2
        1 poll t-0:1@0 t-0:3@2
    """,
    check=check,
    rests_on_absence=True,
    rests_on_time=True,  # a final read must return what was acknowledged before it began
    cut=CUT,
)
