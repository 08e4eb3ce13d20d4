"""not-delivered: the final read did not get as far as the log reaches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Outcome
from linearizability.rules.cut import APART
from linearizability.rules.loss import complete_drains
from linearizability.rules.partition import PartitionHistory
from linearizability.rules.rule import Context, Found, Rule, Weight, Witness, found


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    drains = partition.drains
    if not len(drains):
        return
    last_complete = drains.completed[complete_drains(partition)].max(initial=-1)
    short = (drains.extra < drains.offset) & (drains.outcome != Outcome.FAIL) & (drains.completed > last_complete)

    def witness(index: int) -> Witness:
        position, end = int(drains.extra[index]), int(drains.offset[index])
        text = f"the final read stopped at {position}, the log ends at {end}: the records between were not delivered"
        return position, -1, [drains.operation[index]], text

    yield from found(RULE.id, partition, np.flatnonzero(short), witness)


RULE = Rule(
    id="not-delivered",
    definition="A final read stopped below the log end that the broker had reported before.",
    promise="Nothing is lost for sure, but what lies between was promised and not delivered in the time given: the verdict "
    "becomes unknown.",
    source="Kafka documentation: records below the high watermark can be read; requirement HIS-02",
    needs="a drain",
    cost="linear",
    example="""
        0 send t-0:1@0
        0 send t-0:2@1
        1 [20 60] drain t-0 start=0 end=2 position=1
        2 [30 35] poll t-0:1@0
    """,
    check=check,
    weight=Weight.UNPROVEN,
    cut=APART,
)
