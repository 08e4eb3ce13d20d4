"""offset-reuse: two acknowledgements that name one offset."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Flag
from linearizability.history.keys import NEVER
from linearizability.rules.cut import BY_SLOT
from linearizability.rules.excusing import Claims
from linearizability.rules.loss import ACKS_BELOW_ALL
from linearizability.rules.partition import Array, PartitionHistory
from linearizability.rules.rule import Context, Found, Rule, Witness, found


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    appends = partition.appends
    rows = np.flatnonzero(appends.flag(Flag.ACKNOWLEDGED) & (partition.append_slot >= 0))
    slots = partition.append_slot[rows]
    reused = np.flatnonzero(np.bincount(slots, minlength=1) > 1)

    def claims(index: int) -> Array:
        return rows[slots == reused[index]]

    def witness(index: int) -> Witness:
        claimed = claims(index)
        offset = partition.slot_offset[reused[index]]
        text = f"offset {offset} was acknowledged for {' and '.join(map(str, appends.value[claimed][:3]))}"
        return offset, appends.value[claimed[0]], appends.operation[claimed[:3]], text

    careful = rows[appends.flag(Flag.ACKS_ALL)[rows] & np.isin(slots, reused)]
    group = np.searchsorted(reused, partition.append_slot[careful])
    promised = Claims(len(reused), group, careful, appends.invoked[careful], appends.completed[careful])
    _, two_known = promised.contradictions()
    reasons = np.where(two_known < NEVER, promised.reasons(context, partition), ACKS_BELOW_ALL)
    places = partition.slot_offset[reused]
    yield from found(RULE.id, partition, np.arange(len(reused)), witness, lambda indices: reasons[indices], places)


RULE = Rule(
    id="offset-reuse",
    definition="Two sends were acknowledged with the same offset.",
    promise="Violation if two of them asked for acks=all; otherwise the first may have been lost and its place given away. "
    "Holds also for records of transactions that aborted later: their offsets stay occupied.",
    source="Kafka documentation, design: an offset names one record for ever; requirement HIS-03",
    needs="acknowledged offsets",
    cost="linear",
    example="""
        0 send t-0:1@0
        1 send t-0:2@0
    """,
    check=check,
    cut=BY_SLOT,
)
