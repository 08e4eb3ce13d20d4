"""Which anomalies an excuse explains (see `history.excuses`).

Each rule says of an anomaly when what it misses was *made* (a record sent, an offset committed: that or earlier) and when it
was *seen* that it is not there (then or later at the latest). An excuse that was over before the one, or began after the other,
explains nothing. Where either of two records may be the one that was lost, the earlier one counts as made, the later one as seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from linearizability.history.excuses import Excuse
from linearizability.history.facts import Flag
from linearizability.history.keys import NEVER
from linearizability.rules.partition import Array, Mask, PartitionHistory, is_in
from linearizability.rules.rule import UNPROVEN, Context

GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
"""Topics of groups' offsets and generations, and of transactions' outcomes: a loss there shows in other topics."""


def permits_loss(
    context: Context,
    partition: PartitionHistory,
    made: Any,
    seen: Any,
    also: Any = "",
    *,
    here: bool = True,
    by_contract: str | None = None,
) -> Array:
    """For each pair of times why the loss is permitted; empty where it is not.

    `also` names an internal topic whose excuses count besides the partition's own (one for all, or one each); without `here`
    those alone count. `by_contract` is what the contract permits, where that is not any loss.
    """
    made, seen, also = np.broadcast_arrays(np.atleast_1d(made), seen, also)
    reasons = np.full(made.shape, context.contract.permits_loss("all") if by_contract is None else by_contract, object)
    for excuse in context.excuses:
        covered = np.full(made.shape, here and excuse.covers(partition.topic, partition.partition))
        covered |= np.isin(also, [topic for topic in (GROUPS, TRANSACTIONS) if excuse.touches(topic)])
        reasons[covered & (made <= excuse.ends) & (seen >= excuse.begins) & (reasons == "")] = excuse.reason
    return reasons.astype(str)


def explained(context: Context, partition: PartitionHistory, unexcused: Mask, made: Array, also: str = "") -> Array:
    """Reasons, empty where `unexcused`; of several excuses one that was not over when it was made, if there is one."""
    by_contract = context.contract.permits_loss("all")
    likely, possible = (
        permits_loss(context, partition, each, NEVER, also) for each in (made, np.full(len(made), -NEVER))
    )
    return np.where(unexcused, by_contract, np.where(likely == "", possible, likely))


def eras(context: Context, partition: PartitionHistory, also: str = "", *, here: bool = True) -> list[tuple[int, int]]:
    """The times outside of the partition's excuses, as pairs (after, before). No excuse explains an anomaly exactly if, for some
    pair, the missing record was made after `after` and its absence seen before `before`. `also` and `here` as in permits_loss."""
    spans = sorted(
        (excuse.begins, excuse.ends)
        for excuse in context.excuses
        if (here and excuse.covers(partition.topic, partition.partition)) or (also and excuse.touches(also))
    )
    bounds = [-NEVER - 1]
    for begins, ends in spans:
        if len(bounds) > 1 and begins <= bounds[-1]:
            bounds[-1] = max(bounds[-1], ends)
        else:
            bounds += [begins, ends]
    bounds.append(NEVER)
    return [*zip(bounds[::2], bounds[1::2], strict=True)]


def in_eras(context: Context, partition: PartitionHistory, made: Array, seen: Array) -> list[Mask]:
    """For each era which of these facts were made and seen in it."""
    return [(made > after) & ((seen < before) | (before == NEVER)) for after, before in eras(context, partition)]


def sent_at(partition: PartitionHistory) -> Array:
    """For each observation when its record was sent; long ago where the writer is not known."""
    writer = partition.writer
    return np.where(writer >= 0, np.append(partition.appends.invoked, 0)[writer], -NEVER)


class LostMarks(Excuse):
    """Stands for the excuses that may be missing from a damaged history: of any partition, at any time."""

    def covers(self, topic: str, partition: int) -> bool:
        return True

    def touches(self, topic: str) -> bool:
        return True

    @property
    def reason(self) -> str:
        return f"{UNPROVEN}whether an excuse explains it, for marks of the history may be missing"


LOST_MARKS = LostMarks(-1, "", frozenset(), (), begins=-NEVER)


@dataclass(frozen=True)
class Claims:
    """Reported records of several places, or reported places of several records, row by row."""

    groups: int
    group: Array
    """The place (or the record), numbered from 0."""
    member: Array
    """The record there (or the record's place). A group with two different members contradicts itself."""
    made: Array
    seen: Array

    def contradictions(self) -> tuple[Array, Array]:
        """For each group when the first of its members was made, and when two had been seen: NEVER where there are not two."""
        first_made, complete = np.full(self.groups, NEVER), np.full(self.groups, NEVER)
        np.minimum.at(first_made, self.group, self.made)
        order = np.lexsort((self.seen, self.member, self.group))
        order = order[_differs(self.group[order]) | _differs(self.member[order])]  # when each member was seen first
        order = order[np.lexsort((self.seen[order], self.group[order]))]
        second = np.flatnonzero(~_differs(self.group[order]))
        np.minimum.at(complete, self.group[order[second]], self.seen[order[second]])
        return first_made, complete

    def reasons(self, context: Context, partition: PartitionHistory) -> Array:
        """For each group that contradicts itself why that is permitted. Empty where two of its members lie in one era: that
        others of them may have been lost explains nothing of these two."""
        reasons = permits_loss(context, partition, *self.contradictions())
        for within in in_eras(context, partition, self.made, self.seen):
            pairs = np.unique(np.stack([self.group[within], self.member[within]]), axis=1)
            reasons[np.bincount(pairs[0], minlength=self.groups) > 1] = context.contract.permits_loss("all")
        return reasons


def _differs(values: Array) -> Mask:
    """Where each of these values is another one than the value before it."""
    return np.concatenate([np.ones(min(1, len(values)), bool), values[1:] != values[:-1]])


def at_slots(partition: PartitionHistory, slots: Array, acknowledged: Array) -> Claims:
    """The records that lie at each of these slots (sorted): those appends, and what was read."""
    appends, observations = partition.appends, partition.observations
    mine = acknowledged[np.isin(partition.append_slot[acknowledged], slots)]
    read = np.flatnonzero(np.isin(partition.observation_slot, slots))
    return Claims(
        len(slots),
        np.searchsorted(slots, np.concatenate([partition.append_slot[mine], partition.observation_slot[read]])),
        np.concatenate([appends.value[mine], observations.value[read]]),
        np.concatenate([appends.invoked[mine], sent_at(partition)[read]]),
        np.concatenate([appends.completed[mine], observations.completed[read]]),
    )


def of_values(partition: PartitionHistory, values: Array) -> Claims:
    """The places at which each of these values (sorted) lies."""
    appends, observations = partition.appends, partition.observations
    mine = partition.log_appends[is_in(appends.value[partition.log_appends], values)]
    read = np.flatnonzero((partition.observation_slot >= 0) & is_in(observations.value, values))
    return Claims(
        len(values),
        np.searchsorted(values, np.concatenate([appends.value[mine], observations.value[read]])),
        np.concatenate([partition.append_slot[mine], partition.observation_slot[read]]),
        np.concatenate([appends.invoked[mine], sent_at(partition)[read]]),
        np.concatenate([appends.completed[mine], observations.completed[read]]),
    )


def kept_from(partition: PartitionHistory, answers_first: bool = False) -> Array:
    """For each append when its position was first known to be kept: by an answer to acks=all, or by a read there; else NEVER. A
    leader that was deposed without knowing it may have answered lower acks, and lose the record.

    With `answers_first` reads count only where no answer named a position: a part of some operations lacks the other reads."""
    appends, writer = partition.appends, partition.writer
    known = np.where((partition.append_slot >= 0) & appends.flag(Flag.ACKS_ALL), appends.completed, NEVER)
    read = np.flatnonzero((writer >= 0) & (partition.observation_slot >= 0))
    read = read[partition.observation_slot[read] == partition.append_position[writer[read]]]
    if answers_first:
        read = read[partition.append_slot[writer[read]] < 0]
    np.minimum.at(known, writer[read], partition.observations.completed[read])
    return known


def earliest_from(times: Array) -> Array:
    """For each place the first place from there on that has the smallest time of all from there on."""
    smallest = np.minimum.accumulate(times[::-1])[::-1]
    attains = np.where(times == smallest, np.arange(len(times)), len(times))
    return np.minimum.accumulate(attains[::-1])[::-1]
