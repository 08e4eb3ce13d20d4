"""exactly-once: a record that two committed transactions of one group consumed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Outcome
from linearizability.rules.partition import Partition
from linearizability.rules.rule import Context, Found, Rule, Witness, found


def kernel(partition: Partition, context: Context) -> Iterator[Found]:
    observations, slot = partition.observations, partition.observation_slot
    consumed = (observations.transaction >= 0) & (observations.group >= 0) & (slot >= 0)
    rows = np.flatnonzero(consumed & (observations.outcome == Outcome.OK))
    if len(rows) < 2:
        return
    rows = rows[np.lexsort((observations.transaction[rows], slot[rows], observations.group[rows]))]
    group, transaction = observations.group[rows], observations.transaction[rows]
    same = (group[1:] == group[:-1]) & (slot[rows][1:] == slot[rows][:-1])
    wrong = np.flatnonzero(same & (transaction[1:] != transaction[:-1]))

    def witness(index: int) -> Witness:
        before, after = rows[index], rows[index + 1]
        text = f"offset {observations.offset[after]} was consumed by two transactions that both committed"
        operations = [observations.operation[before], observations.operation[after]]
        return observations.offset[after], observations.value[after], operations, text

    yield from found(RULE.id, partition, wrong, witness, context.contract.permits_loss("all"))


RULE = Rule(
    id="exactly-once",
    definition="In consume-transform-produce, one input record was consumed by two committed transactions of one group.",
    promise="Violation: offsets are committed with the output, so a committed input is never given to the group again. "
    "Inputs left out are found by poll-skip and commit-past-undelivered.",
    source="KIP-98, KIP-447: exactly-once semantics",
    needs="transactions that poll and commit offsets, in consumers whose group is known",
    cost="one sort of what transactions consumed",
    example="""
        0 send t-0:1@0
        1 subscribe t-0 group=g
        1 txn poll t-0:1@0 send u-0:10@0 commit g t-0@1
        2 subscribe t-0 group=g
        2 txn poll t-0:1@0 send u-0:20@1 commit g t-0@1
    """,
    kernel=kernel,
)
