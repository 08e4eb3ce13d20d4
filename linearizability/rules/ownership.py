"""two-owners and commit-of-former-generation: a partition that two members of a group hold, or one that is none any more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import UNKNOWN, Kind, Outcome
from linearizability.rules.cut import APART
from linearizability.rules.excusing import GROUPS, permits_loss
from linearizability.rules.partition import Array, PartitionHistory, Rows
from linearizability.rules.rule import Context, Found, Rule, Witness, found


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    owned, commits = partition.rows(Kind.OWNERSHIP), partition.rows(Kind.COMMIT)
    claimed = [rows.where((rows.epoch >= 0) & (rows.outcome == Outcome.OK)) for rows in (owned, commits) if len(rows)]
    if not claimed:
        return
    group, generation, member, process, operation, invoked, completed = (
        np.concatenate([getattr(rows, name) for rows in claimed])
        for name in ("group", "epoch", "value", "process", "operation", "invoked", "completed")
    )
    named = member != UNKNOWN
    member = np.where(named, member, process)  # who names no member learns from others of this kind by its process
    order = np.lexsort((operation, member, named, generation, group))
    group, generation, member, named, operation = (
        column[order] for column in (group, generation, member, named, operation)
    )
    same = (group[1:] == group[:-1]) & (generation[1:] == generation[:-1]) & (named[1:] == named[:-1])
    wrong = np.flatnonzero(same & (member[1:] != member[:-1]))

    def witness(index: int) -> Witness:
        text = f"two members of the group held the partition in generation {generation[index]}"
        return -1, member[index], operation[[index, index + 1]], text

    def permitted(indices: Array) -> Array:
        both = order[np.stack([indices, indices + 1])]
        return permits_loss(context, partition, invoked[both].min(0), completed[both].max(0), GROUPS, here=False)

    yield from found(RULE.id, partition, wrong, witness, permitted)


def former_generation(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    owned, commits = partition.rows(Kind.OWNERSHIP), partition.rows(Kind.COMMIT)
    for group in np.unique(commits.group):
        accepted = (commits.group == group) & (commits.outcome == Outcome.OK) & (commits.epoch >= 0)
        reported = (owned.group == group) & (owned.outcome == Outcome.OK) & (owned.epoch >= 0)
        known = [commits.where(accepted), owned.where(reported)]
        completed, generation, operation, invoked = (
            np.concatenate([getattr(rows, name) for rows in known])
            for name in ("completed", "epoch", "operation", "invoked")
        )
        order = np.argsort(completed, kind="stable")
        completed, generation, operation, invoked = (
            each[order] for each in (completed, generation, operation, invoked)
        )
        newest = np.maximum.accumulate(generation)
        before = np.searchsorted(completed, known[0].invoked, side="left") - 1
        wrong = np.flatnonzero((before >= 0) & (newest[before] > known[0].epoch))

        def witness(
            index: int,
            mine: Rows = known[0],
            newest: Array = newest,
            before: Array = before,
            generation: Array = generation,
            operation: Array = operation,
        ) -> Witness:
            later = newest[before[index]]
            text = f"committed in generation {mine.epoch[index]}, after generation {later} had the partition"
            return (
                mine.offset[index],
                mine.value[index],
                [operation[generation == later][0], mine.operation[index]],
                text,
            )

        def permitted(
            indices: Array,
            mine: Rows = known[0],
            newest: Array = newest,
            before: Array = before,
            generation: Array = generation,
            invoked: Array = invoked,
        ) -> Array:
            made = [invoked[generation == newest[before[index]]].min() for index in indices]
            return permits_loss(context, partition, made, mine.completed[indices], GROUPS, here=False)

        yield from found(FORMER.id, partition, wrong, witness, permitted)


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
    check=check,
    cut=APART,
)

FORMER = Rule(
    id="commit-of-former-generation",
    definition="A group's commit was accepted in a generation, and asked for after a later generation had held the partition.",
    promise="Violation, unless the contract permits loss: who is fenced must not overwrite its successor's offsets.",
    source="Kafka protocol, OffsetCommit: ILLEGAL_GENERATION; requirement OFF-06",
    needs="commits with their generations; one monotonic clock for all processes",
    cost="one sort of the claims by time",
    example="""
        1 commit g t-0@3 generation=1 member=a
        2 commit g t-0@5 generation=2 member=b
        1 commit g t-0@4 generation=1 member=a
    """,
    check=former_generation,
    rests_on_time=True,
    cut=APART,
)
