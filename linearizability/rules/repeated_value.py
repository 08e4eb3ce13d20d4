"""repeated-value: a value that was sent twice, so that its records cannot be distinguished."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.rules.cut import BY_VALUE
from linearizability.rules.partition import PartitionHistory
from linearizability.rules.rule import Context, Found, Rule, Weight, Witness, found


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    values, appends = partition.repeated_values, partition.appends

    def witness(index: int) -> Witness:
        operations = appends.operation[appends.value == values[index]]
        return -1, values[index], operations[:3], f"sent {len(operations)} times: its records cannot be distinguished"

    sent = np.flatnonzero(partition.is_repeated(appends.value))
    _, first = np.unique(appends.value[sent], return_index=True)
    yield from found(RULE.id, partition, np.arange(len(values)), witness, place=appends.offset[sent[first]])


RULE = Rule(
    id="repeated-value",
    definition="A value was sent to one partition more than once.",
    promise="The workload's fault, not the broker's: rules that go by value leave such records out, and the verdict is "
    "unknown.",
    source="the history's own terms (linearizability.history.operations)",
    needs="sends",
    cost="one sort of the values",
    example="""
        0 send t-0:1@0
        0 send t-0:1@1
        1 poll t-0:1@0 t-0:1@1
    """,
    check=check,
    weight=Weight.UNPROVEN,
    cut=BY_VALUE,
)
