"""phantom-read: a poll returned a record that no client sent to that partition."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.rules.cut import BY_VALUE
from linearizability.rules.partition import PartitionHistory
from linearizability.rules.rule import Context, Found, Rule, Witness, found


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    observations = partition.observations

    def witness(index: int) -> Witness:
        text = f"read at offset {observations.offset[index]}, and sent to this partition by no client"
        return observations.offset[index], observations.value[index], [observations.operation[index]], text

    phantoms = np.flatnonzero((partition.writer < 0) & ~partition.is_repeated(observations.value))
    _, first = np.unique(observations.value[phantoms], return_index=True)
    yield from found(RULE.id, partition, np.sort(phantoms[first]), witness, place=observations.offset)


RULE = Rule(
    id="phantom-read",
    definition="A poll returned a value that no operation of the run ever sent to that partition.",
    promise="Always a violation; proven only if every producer's file is complete and the topic was new.",
    source="Integrity of the log: no record without a producer",
    needs="all producers recorded; a topic that was empty when the run began",
    cost="linear",
    example="""
        0 send t-0:1@0
        1 poll t-0:1@0 t-0:7@1
    """,
    check=check,
    rests_on_absence=True,
    cut=BY_VALUE,
)
