"""nonmonotonic-poll and int-nonmonotonic-poll: a consumer was given a record again, or an earlier one after a later one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from linearizability.rules.partition import Array, PartitionHistory
from linearizability.rules.rule import Context, Found, Rule, Witness, found
from linearizability.rules.sessions import (
    TURNS_ACROSS,
    TURNS_WITHIN,
    backwards,
    permitted_step,
    steps_across,
    steps_within,
)


def check(rule: str, across: bool, partition: PartitionHistory, context: Context) -> Iterator[Found]:
    steps = steps_across(partition) if across else steps_within(partition)
    wrong = backwards(partition, steps)
    observations = partition.observations

    def witness(index: int) -> Witness:
        before, after = steps.before[index], steps.after[index]
        offset = observations.offset[after]
        text = f"process {observations.process[after]} was given offset {offset} after {observations.offset[before]}"
        return offset, observations.value[after], [observations.operation[before], observations.operation[after]], text

    def permitted(indices: Array) -> Array:
        return permitted_step(partition, context, steps, indices, skip=False, across=across)

    yield from found(rule, partition, wrong, witness, permitted, observations.operation[steps.after])


ACROSS = Rule(
    id="nonmonotonic-poll",
    definition="A poll began at or before the last record of the consumer's previous successful poll, in one session.",
    promise="Violation, unless the consumer was reset by a seek, an assignment or a rebalance that the history records. "
    "Where a group assigns partitions and the history does not record how, it is permitted.",
    source="Kafka documentation, consumer position; requirement HIS-05",
    needs="polls with offsets; assignments, seeks and rebalances",
    cost="linear",
    example="""
        0 send t-0:1@0
        0 send t-0:2@1
        1 poll t-0:1@0 t-0:2@1
        1 poll t-0:1@0
    """,
    check=partial(check, "nonmonotonic-poll", True),
    cut=TURNS_ACROSS,
)

WITHIN = Rule(
    id="int-nonmonotonic-poll",
    definition="Within one operation a record was followed by the same or an earlier one.",
    promise="Violation, unless the assignment changed within the operation.",
    source="Kafka documentation, ordering guarantees; requirement HIS-05",
    needs="polls with offsets",
    cost="linear",
    example="""
        0 send t-0:1@0
        0 send t-0:2@1
        1 poll t-0:2@1 t-0:1@0
    """,
    check=partial(check, "int-nonmonotonic-poll", False),
    cut=TURNS_WITHIN,
)
