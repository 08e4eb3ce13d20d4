"""G1a, G1b and precommitted-read: polls that returned what a transaction had not, or never, committed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Flag, Outcome
from linearizability.rules.cut import BY_VALUE
from linearizability.rules.excusing import TRANSACTIONS, permits_loss
from linearizability.rules.partition import Array, Mask, PartitionHistory
from linearizability.rules.rule import Context, Found, Rule, Witness, found

READ_UNCOMMITTED = "the consumer reads uncommitted records"


def _check(
    rule: str,
    partition: PartitionHistory,
    wrong: Mask,
    text: str,
    uncommitted_may: bool,
    context: Context | None = None,
) -> Iterator[Found]:
    """`wrong` over the observations whose writer is known. With a context a lost marker of a transaction may explain it."""
    appends, observations, writer = partition.appends, partition.observations, partition.writer
    rows = np.flatnonzero(wrong)

    def witness(index: int) -> Witness:
        operations = [appends.operation[writer[index]], observations.operation[index]]
        return observations.offset[index], observations.value[index], operations, text

    def permitted(indices: Array) -> Array:
        transactional = appends.flag(Flag.TRANSACTIONAL)[writer[indices]]
        careless = ~observations.flag(Flag.READ_COMMITTED)[indices]
        loss = np.full(len(indices), "")
        if context is not None:
            made, seen = appends.invoked[writer[indices]], observations.completed[indices]
            loss = permits_loss(context, partition, made, seen, TRANSACTIONS)
        return np.where(uncommitted_may & transactional & careless, READ_UNCOMMITTED, np.where(transactional, loss, ""))

    yield from found(rule, partition, rows, witness, permitted, observations.offset)


def _known(partition: PartitionHistory) -> Mask:
    """Observations whose one and only writer is known."""
    known = partition.writer >= 0
    if len(partition.repeated_values):
        known &= ~partition.is_repeated(partition.observations.value)
    return known


def aborted_read(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    failed = partition.appends.outcome == Outcome.FAIL
    if not failed.any():
        return
    known = _known(partition)
    wrong = known.copy()
    wrong[known] = failed[partition.writer[known]]
    text = "returned, though its send failed or its transaction was aborted"
    yield from _check("G1a", partition, wrong, text, True, context)


def intermediate_read(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    appends = partition.appends
    if not (appends.extra >= 0).any():
        return
    known = _known(partition)
    wrong = known.copy()
    asked = appends.extra[partition.writer[known]]
    wrong[known] = (asked >= 0) & (partition.observations.completed[known] < asked)
    yield from _check("G1b", partition, wrong, "returned before the commit of its transaction was asked for", True)


def own_uncommitted_read(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    appends, observations = partition.appends, partition.observations
    if not (observations.transaction >= 0).any():
        return
    known = _known(partition)
    wrong = known.copy()
    mine = appends.transaction[partition.writer[known]]
    wrong[known] = (mine >= 0) & (mine == observations.transaction[known])
    text = "returned to the very transaction that had sent it and not yet committed"
    yield from _check("precommitted-read", partition, wrong, text, True)


ABORTED = Rule(
    id="G1a",
    definition="A poll, whatever became of its operation, returned a record whose send certainly failed or whose "
    "transaction was aborted.",
    promise="Violation, also for polls within failed operations: what a poll returns is given to the application at once. "
    "A consumer with read_uncommitted may be given records of aborted transactions. Where the contract permits loss, the "
    "marker of an abort may be lost, and a later commit of the same producer id then commits what had been aborted.",
    source="Adya's G1a; KIP-98; requirement HIS-08",
    needs="definite failures distinguished from unknown outcomes",
    cost="linear",
    example="""
        0 txn send t-0:1 fail
        1 poll t-0:1@0
    """,
    check=aborted_read,
    cut=BY_VALUE,
)

INTERMEDIATE = Rule(
    id="G1b",
    definition="A poll returned a transaction's record before the producer had asked for the commit.",
    promise="Violation with read_committed; permitted with read_uncommitted.",
    source="Adya's G1b; KIP-98: the last stable offset bounds read_committed; requirement HIS-08",
    needs="transactions recorded step by step (begin, send, end)",
    cost="linear",
    example="""
        0 begin txn=a
        0 send t-0:1@0 txn=a
        1 poll t-0:1@0
        0 end txn=a commit=true
    """,
    check=intermediate_read,
    cut=BY_VALUE,
    rests_on_time=True,
)

OWN = Rule(
    id="precommitted-read",
    definition="A transaction polled a record that it had itself sent.",
    promise="Violation with read_committed: sent records stay hidden from every consumer until the commit.",
    source="KIP-98; jepsen.tests.kafka",
    needs="transactions that send and poll",
    cost="linear",
    example="""
        0 txn send t-0:1@0 poll t-0:1@0
    """,
    check=own_uncommitted_read,
    cut=BY_VALUE,
)
