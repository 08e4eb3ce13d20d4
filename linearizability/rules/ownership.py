"""two-owners: one partition given to two members of a group at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Kind, Outcome
from linearizability.rules.cut import APART
from linearizability.rules.partition import Partition
from linearizability.rules.rule import Context, Found, Rule, Witness, found


def kernel(partition: Partition, context: Context) -> Iterator[Found]:
    owned, commits = partition.rows(Kind.OWNERSHIP), partition.rows(Kind.COMMIT)
    claimed = [rows.where((rows.epoch >= 0) & (rows.outcome == Outcome.OK)) for rows in (owned, commits) if len(rows)]
    if not claimed:
        return
    group, generation, member, operation = (
        np.concatenate([getattr(rows, name) for rows in claimed]) for name in ("group", "epoch", "value", "operation")
    )
    order = np.lexsort((operation, member, generation, group))
    group, generation, member, operation = group[order], generation[order], member[order], operation[order]
    same = (group[1:] == group[:-1]) & (generation[1:] == generation[:-1])
    wrong = np.flatnonzero(same & (member[1:] != member[:-1]))

    def witness(index: int) -> Witness:
        text = f"two members of the group held the partition in generation {generation[index]}"
        return -1, member[index], operation[[index, index + 1]], text

    yield from found(RULE.id, partition, wrong, witness, context.contract.permits_loss("all"))


RULE = Rule(
    id="two-owners",
    definition="In one generation of a group two members owned the partition, or had commits for it accepted.",
    promise="Violation, unless the contract permits loss: a coordinator that forgot a generation gives it out again.",
    source="Kafka documentation, consumer groups; requirement HIS-11",
    needs="assignments or commits with group, generation and member",
    cost="one sort of the claims",
    example="""
        1 assign t-0 group=g generation=4 member=a
        2 assign t-0 group=g generation=4 member=b
    """,
    kernel=kernel,
    cut=APART,
)
