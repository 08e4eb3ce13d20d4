"""unseen: an acknowledged record that no client read, in a history that cannot say whether it is lost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.rules.loss import CUT, losses, permitted_loss
from linearizability.rules.partition import PartitionHistory
from linearizability.rules.rule import Context, Found, Rule, Weight, Witness, found


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    appends, loss = partition.appends, losses(partition, context)

    def witness(index: int) -> Witness:
        text = "acknowledged and never read, and no reader certainly passed it: no final read drained the partition"
        if loss.doubtful[index]:
            text = "acknowledged and passed over by a read; no report says whether it had expired by then"
        return int(appends.offset[index]), int(appends.value[index]), [appends.operation[index]], text

    unseen = np.flatnonzero(loss.unseen)
    yield from found(
        RULE.id,
        partition,
        unseen,
        witness,
        lambda indices: permitted_loss(partition, context, indices),
        appends.offset,
    )


RULE = Rule(
    id="unseen",
    definition="A record was acknowledged and never read, but no read that must have met it went beyond it either.",
    promise="Not a violation: the verdict becomes unknown, because the record may be lost. A final drain decides.",
    source="jepsen.tests.kafka; requirement HIS-02",
    needs="acknowledged sends",
    cost="linear",
    example="""
        0 send t-0:1@0
        1 poll t-0:1@0
        0 send t-0:2@1
    """,
    check=check,
    weight=Weight.UNPROVEN,
    rests_on_absence=True,
    cut=CUT,
)
