"""poll-skip and int-poll-skip: a consumer's polls passed over a record that is known to be in the log."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from linearizability.rules.partition import Array, PartitionHistory
from linearizability.rules.rule import Context, Found, Rule, Witness, found
from linearizability.rules.sessions import (
    GAPS_ACROSS,
    GAPS_WITHIN,
    permitted_step,
    skipped_slots,
    skipping,
    steps_from_nearest,
    steps_within,
)


def check(rule: str, across: bool, partition: PartitionHistory, context: Context) -> Iterator[Found]:
    steps = steps_from_nearest(partition) if across else steps_within(partition)
    wrong = skipping(partition, steps)
    observations, appends = partition.observations, partition.appends

    def witness(index: int) -> Witness:
        before, after = steps.before[index], steps.after[index]
        slots = skipped_slots(partition, context, steps, index)
        offset = int(partition.slot_offset[slots[0]])
        sent = appends.operation[partition.log_appends][partition.append_slot[partition.log_appends] == slots[0]]
        seen = observations.operation[partition.observation_slot == slots[0]]
        operations = [
            observations.operation[before],
            observations.operation[after],
            *sent[:1],
            *seen[: 1 - len(sent[:1])],
        ]
        more = f" and {len(slots) - 1} more" if len(slots) > 1 else ""
        text = (
            f"process {observations.process[after]} was given offset {observations.offset[after]} after "
            f"{observations.offset[before]}: offset {offset}{more} is in the log and was skipped"
        )
        return offset, int(partition.log_value[slots[0]]), operations, text

    def permitted(indices: Array) -> Array:
        return permitted_step(partition, context, steps, indices, skip=True, across=across)

    yield from found(rule, partition, np.asarray(wrong), witness, permitted, observations.operation[steps.after])


ACROSS = Rule(
    id="poll-skip",
    definition="Between the offsets of a consumer's two successive polls of one session is a record that neither returned.",
    promise="Violation, unless compaction removed the record, or an unrecorded rebalance may have happened between. After a poll "
    "of unknown outcome the consumer may read on behind its records or before them, and so within a transaction that is aborted. "
    "Records below the log start may have expired; this is unknown where no later answer reported the log start. Offsets of "
    "control records and of aborted transactions do not count.",
    source="Kafka documentation, consumer position; requirement HIS-05",
    needs="polls with offsets; assignments, seeks and rebalances",
    cost="linear",
    example="""
        0 send t-0:1@0
        0 send t-0:2@1
        0 send t-0:3@2
        1 poll t-0:1@0
        1 poll t-0:3@2
        2 poll t-0:1@0 t-0:2@1
    """,
    check=partial(check, "poll-skip", True),
    cut=GAPS_ACROSS,
)

WITHIN = Rule(
    id="int-poll-skip",
    definition="One operation returned records on both sides of a record that is known to be in the log, and not that record.",
    promise="As poll-skip.",
    source="Kafka documentation, ordering guarantees; requirement HIS-05",
    needs="polls with offsets",
    cost="linear",
    example="""
        0 send t-0:1@0
        0 send t-0:2@1
        0 send t-0:3@2
        1 poll t-0:1@0 t-0:3@2
        2 poll t-0:1@0 t-0:2@1
    """,
    check=partial(check, "int-poll-skip", False),
    cut=GAPS_WITHIN,
)
