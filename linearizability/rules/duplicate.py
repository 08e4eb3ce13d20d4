"""duplicate: one record at more than one offset."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Flag
from linearizability.history.keys import NEVER
from linearizability.rules.cut import BY_VALUE
from linearizability.rules.excusing import of_values
from linearizability.rules.partition import Array, PartitionHistory, is_in, repeated
from linearizability.rules.rule import UNPROVEN, Context, Found, Rule, Witness, found

WITHOUT_IDEMPOTENCE = "a producer without idempotence may store a record twice when it retries"
NO_SEND_RECORDED = f"{UNPROVEN}whether its producer was idempotent: no send of it is recorded"


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    slots, values = partition.log_pairs
    doubled = repeated(values)
    doubled = doubled[~partition.is_repeated(doubled)]
    if not len(doubled):
        return
    appends, observations = partition.appends, partition.observations

    def witness(index: int) -> Witness:
        value = doubled[index]
        offsets = np.sort(partition.slot_offset[slots[values == value]])
        sent = appends.operation[appends.value == value]
        seen = observations.where(observations.value == value)
        first_seen = [
            int(seen.operation[seen.offset == offset][0]) for offset in offsets if (seen.offset == offset).any()
        ]
        text = f"stored {len(offsets)} times, at offsets {', '.join(map(str, offsets[:5]))}"
        return int(offsets[0]), int(value), [*sent[:1], *first_seen[:3]], text

    def permitted(indices: Array) -> Array:
        wanted = doubled[indices]
        sent = np.flatnonzero(np.isin(appends.value, wanted))
        place, idempotent, is_known = np.searchsorted(wanted, appends.value[sent]), *np.zeros((2, len(wanted)), bool)
        idempotent[place], is_known[place] = appends.flag(Flag.IDEMPOTENT)[sent], True
        reasons = np.where(is_known, of_values(partition, wanted).reasons(context, partition), NO_SEND_RECORDED)
        return np.where(idempotent | ~is_known, reasons, WITHOUT_IDEMPOTENCE)

    stored = is_in(values, doubled)
    lowest = np.full(len(doubled), NEVER)
    np.minimum.at(lowest, np.searchsorted(doubled, values[stored]), partition.slot_offset[slots[stored]])
    yield from found(RULE.id, partition, np.arange(len(doubled)), witness, permitted, lowest)


RULE = Rule(
    id="duplicate",
    definition="One value is known at more than one offset of its partition.",
    promise="Violation for an idempotent producer. Permitted without idempotence, where a retry stores a record again, and "
    "where the contract permits loss, which takes the producer's sequence numbers too.",
    source="KIP-98; requirement HIS-04",
    needs="offsets of acknowledged or polled records",
    cost="one sort of the values",
    example="""
        0 send t-0:1@0
        1 poll t-0:1@0 t-0:1@1
    """,
    check=check,
    cut=BY_VALUE,
)
