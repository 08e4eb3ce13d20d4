"""two-owners and commit-of-former-generation: a partition with two members of a group, or with a former one's commit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from linearizability.history.facts import UNKNOWN, Kind, Outcome
from linearizability.history.keys import NEVER
from linearizability.rules.cut import APART
from linearizability.rules.excusing import GROUPS, eras, permits_loss
from linearizability.rules.partition import Array, Mask, PartitionHistory, Rows
from linearizability.rules.rule import UNPROVEN, Context, Found, Rule, Witness, found

BEGAN_AGAIN = f"{UNPROVEN}whether the group had been removed, as one is that is empty and has no offsets"


@dataclass(frozen=True)
class _Claims:
    """When members had a partition in a generation of their group: accepted commits, and assignments that were answered."""

    group: Array
    epoch: Array
    """The generation."""
    value: Array
    """The member, UNKNOWN where none is named."""
    process: Array
    operation: Array
    invoked: Array
    completed: Array
    has_offsets: Mask
    """Whether the group was known to have offsets by then: it is not removed any more."""
    is_commit: Mask
    """Whether a coordinator wrote it down. A former one that does not know it was replaced still answers with assignments."""

    def where(self, rows: Any) -> _Claims:
        return _Claims(*(getattr(self, each.name)[rows] for each in fields(self)))


def _claims(partition: PartitionHistory, context: Context) -> _Claims:
    commits, owned = partition.rows(Kind.COMMIT), partition.rows(Kind.OWNERSHIP)
    both = [rows.where((rows.epoch >= 0) & (rows.outcome == Outcome.OK)) for rows in (commits, owned)]
    columns = [np.concatenate([getattr(rows, each.name) for rows in both]) for each in fields(_Claims)[:-2]]
    is_commit = np.arange(len(columns[0])) < len(both[0])
    claims = _Claims(*columns, has_offsets=is_commit.copy(), is_commit=is_commit)
    for group in np.unique(commits.group):
        accepted = (commits.group == group) & (commits.outcome == Outcome.OK)
        committed = commits.completed[accepted].min(initial=NEVER)
        # A commit without a generation may be of another protocol, in which the group begins at generation 1 again.
        is_one_protocol = not (accepted & (commits.epoch < 0)).any()
        mine = claims.group == group
        claims.has_offsets[mine] = (
            is_one_protocol & (is_commit | (context.is_timed & (claims.invoked >= committed)))[mine]
        )
    return claims


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    claims = _claims(partition, context)
    named = claims.value != UNKNOWN
    # Members without names are distinguished by their processes.
    member = np.where(named, claims.value, claims.process)
    order = np.lexsort((claims.operation, member, named, claims.epoch, claims.group))
    claims, member, named = claims.where(order), member[order], named[order]
    differs = [each[1:] != each[:-1] for each in (claims.group, claims.epoch, named)]
    wrong = np.flatnonzero(~np.any(differs, axis=0) & (member[1:] != member[:-1]))
    starts = np.concatenate([[True], np.any([*differs, member[1:] != member[:-1]], axis=0)])[: len(member)]
    number = np.cumsum(starts) - 1  # of each member in each generation
    cell = np.cumsum(np.concatenate([[True], np.any(differs, axis=0)])[: len(member)]) - 1  # of each generation
    is_proven = np.zeros(len(member), bool)
    np.logical_or.at(is_proven, number, claims.has_offsets)

    def witness(index: int) -> Witness:
        text = f"two members of the group held the partition in generation {claims.epoch[index]}"
        return -1, member[index], claims.operation[[index, index + 1]], text

    def permitted(indices: Array) -> Array:
        both, generations = np.stack([indices, indices + 1]), int(cell.max(initial=-1)) + 1
        made, seen = np.full(generations, NEVER), np.full(generations, -NEVER)
        np.minimum.at(made, cell, claims.invoked)
        np.maximum.at(seen, cell, claims.completed)
        reasons = permits_loss(context, partition, made, seen, GROUPS, here=False)
        reasons[_in_one_era(partition, context, claims, cell, number)] = context.contract.permits_loss("all")
        reasons = reasons[cell[indices]]
        return np.where((reasons == "") & ~is_proven[number[both]].all(0), BEGAN_AGAIN, reasons)

    yield from found(RULE.id, partition, wrong, witness, permitted)


def _in_one_era(partition: PartitionHistory, context: Context, claims: _Claims, cell: Array, number: Array) -> Mask:
    """Which generations had two members between two excuses, whatever their members did later: no loss explains that."""
    torn = np.zeros(int(cell.max(initial=-1)) + 1, bool)
    for after, before in eras(context, partition, GROUPS, here=False):
        within = (claims.invoked > after) & ((claims.completed < before) | (before == NEVER))
        within &= claims.is_commit | (after < -NEVER)  # after a loss a former coordinator may answer
        pairs = np.unique(np.stack([cell[within], number[within]]), axis=1)
        torn |= np.bincount(pairs[0], minlength=len(torn)) > 1
    return torn


def former_generation(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    all_claims, commits = _claims(partition, context), partition.rows(Kind.COMMIT)
    for group in np.unique(commits.group):
        mine = commits.where((commits.group == group) & (commits.outcome == Outcome.OK) & (commits.epoch >= 0))
        claims = all_claims.where(all_claims.group == group)
        claims = claims.where(np.argsort(claims.completed, kind="stable"))
        newest = np.maximum.accumulate(claims.epoch)
        before = np.searchsorted(claims.completed, mine.invoked, side="left") - 1
        wrong = np.flatnonzero((before >= 0) & (newest[before] > mine.epoch))

        def witness(
            index: int, mine: Rows = mine, newest: Array = newest, before: Array = before, claims: _Claims = claims
        ) -> Witness:
            later = newest[before[index]]
            text = f"committed in generation {mine.epoch[index]}, after generation {later} had the partition"
            earlier = claims.operation[claims.epoch == later][0]
            return mine.offset[index], mine.value[index], [earlier, mine.operation[index]], text

        def permitted(
            indices: Array, mine: Rows = mine, newest: Array = newest, before: Array = before, claims: _Claims = claims
        ) -> Array:
            known = np.stack([mine.epoch[indices], newest[before[indices]], before[indices]], axis=1).tolist()
            made = [_known_since(claims, *each) for each in known]
            reasons = permits_loss(context, partition, made, mine.completed[indices], GROUPS, here=False)
            surely = np.maximum.accumulate(np.where(claims.has_offsets, claims.epoch, -1))
            is_proven = surely[before[indices]] > mine.epoch[indices]
            for place in np.flatnonzero((reasons == "") & ~is_proven):
                index = indices[place]
                known = claims.invoked[: before[index] + 1] >= _member_since(partition, mine, index, claims)
                is_proven[place] = (claims.epoch[: before[index] + 1][known] > mine.epoch[index]).any()
            return np.where((reasons == "") & ~is_proven, BEGAN_AGAIN, reasons)

        yield from found(FORMER.id, partition, wrong, witness, permitted)


def _known_since(claims: _Claims, commit: int, newest: int, before: int) -> int:
    """When the coordinator was last known to have a later generation than a commit's, by claims up to this place: it accepted a
    commit in one. An assignment may be a former coordinator's answer: the newest generation counts from its first claim."""
    later = claims.is_commit[: before + 1] & (claims.epoch[: before + 1] > commit)
    first = claims.invoked[claims.epoch == newest].min()
    return int(max(first, claims.invoked[: before + 1][later].max(initial=-NEVER)))


def _member_since(partition: PartitionHistory, commits: Rows, index: int, claims: _Claims) -> int:
    """When the member that asked for a commit was known to be in its generation; NEVER where nothing showed that before.

    Later generations that were seen from then on are of the same group: a removed group knows its members no more.
    """
    owned = partition.rows(Kind.OWNERSHIP)
    joined = (owned.group == commits.group[index]) & (owned.process == commits.process[index])
    joined &= owned.operation < commits.operation[index]
    last = owned.where(joined & (owned.epoch >= 0)).operation.max(initial=-1)
    same = (claims.process == commits.process[index]) & (claims.value == commits.value[index])
    same &= (claims.epoch == commits.epoch[index]) & (claims.operation >= last)
    return int(claims.completed[same & (claims.operation < commits.operation[index])].min(initial=NEVER))


RULE = Rule(
    id="two-owners",
    definition="In one generation of a group two members owned the partition, or had commits for it accepted.",
    promise="Violation, unless the contract permits loss: a coordinator that forgot a generation gives it out again. A group "
    "without members and offsets is removed, and begins its generations again: unless it had an offset by then, this is unknown.",
    source="Kafka documentation, consumer groups; GroupMetadataManager.cleanupGroupMetadata; requirement HIS-11",
    needs="assignments or commits with group, generation and member",
    cost="one sort of the claims",
    example="""
        1 commit g t-0@3 generation=3 member=a
        1 assign t-0 group=g generation=4 member=a
        2 assign t-0 group=g generation=4 member=b
    """,
    check=check,
    cut=APART,
)

FORMER = Rule(
    id="commit-of-former-generation",
    definition="A group's commit was accepted in a generation, and asked for after a later generation had held the partition.",
    promise="Violation, unless the contract permits loss: who is fenced must not overwrite its successor's offsets. As for "
    "two-owners the group may have been removed, unless it had an offset by then, or the member had joined before.",
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
