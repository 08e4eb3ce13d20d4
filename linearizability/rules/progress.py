"""no-progress and availability-gap: whether the system worked, and how long it did not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Flag, Outcome
from linearizability.history.keys import NEVER
from linearizability.rules.partition import Mask, PartitionHistory
from linearizability.rules.rule import UNPROVEN, Context, Found, Rule, Weight, Witness, found

REFUSED = (
    f"{UNPROVEN}why the sends failed: a record too large, a fenced producer's and those of an aborted transaction do"
)
GAP_NS = 1_000_000_000
"""A pause between successful sends that is worth a note, while sends were tried."""


def no_progress(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    appends = partition.appends
    if context.heals_at < 0 or not len(appends):
        return
    bound = context.contract.bound_after_healing_ms * 1_000_000
    late = appends.invoked > context.heals_at + bound
    waited = np.minimum(appends.completed, context.ends_at) - appends.invoked
    waited_long = (appends.invoked > context.heals_at) & (waited > bound)
    late |= waited_long
    failed = late & (appends.outcome != Outcome.OK) & ~appends.flag(Flag.ACKNOWLEDGED) & ~appends.flag(Flag.UNANSWERED)
    failed &= waited_long | ~_went_on(partition, context.ends_at, bound, late)
    refused = failed & (appends.outcome == Outcome.FAIL) & ~waited_long
    permitted = REFUSED if np.array_equal(refused, failed) else ""
    if permitted and (late & (appends.outcome == Outcome.OK)).any():
        return
    rows = np.flatnonzero(refused if permitted else failed & ~refused)[:1]

    def witness(index: int) -> Witness:
        text = (
            f"{int(failed.sum())} of {int(late.sum())} sends that began more than "
            f"{context.contract.bound_after_healing_ms} ms after the last fault, or lasted that long since, did not succeed"
        )
        return -1, appends.value[index], [appends.operation[index]], text

    yield from found(PROGRESS.id, partition, rows, witness, permitted)


def _went_on(partition: PartitionHistory, ends_at: int, bound: int, late: Mask) -> Mask:
    """For each send of unknown outcome whether another succeeded within the bound since it began, or may have after the history's
    end: leaders also change without a fault, and a client that does not send again is answered once that they did."""
    appends = partition.appends
    successful = appends.outcome == Outcome.OK
    done = np.append(np.sort(appends.completed[successful]), NEVER)
    soon = done[np.searchsorted(done, appends.invoked)] <= appends.invoked + bound
    left_open = (appends.invoked + bound > ends_at) & (late & successful).any()
    return (appends.outcome == Outcome.INFO) & (soon | left_open)


def gaps(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    appends = partition.appends
    done = np.sort(appends.completed[appends.outcome == Outcome.OK])
    if len(done) < 2 or done[-1] - done[0] <= GAP_NS:
        return
    tried = np.sort(appends.invoked)
    wide = np.flatnonzero(np.diff(done) > GAP_NS)
    waiting = np.searchsorted(tried, done[wide + 1]) > np.searchsorted(tried, done[wide], side="right")
    wide = wide[waiting]

    def witness(index: int) -> Witness:
        first = int(np.flatnonzero(appends.completed == done[index + 1])[0])
        text = f"no send succeeded for {(done[index + 1] - done[index]) / 1e6:.0f} ms, though sends were tried"
        return appends.offset[first], appends.value[first], [appends.operation[first]], text

    yield from found(GAP.id, partition, wide, witness)


PROGRESS = Rule(
    id="no-progress",
    definition="Sends that began later than the bound after the last fault had ended, or waited longer than the bound since, "
    "did not succeed.",
    promise="Violation of the declared bound (`bound_after_healing_ms`). Sends with acks=0 have no answer. Of a send that soon "
    "failed for sure a history does not record why: it is no violation beside one that succeeded, and unknown by itself. A send "
    "that soon ended without a known outcome is none where another succeeded within the bound since it began: leaders change "
    "without faults, too. Polls and commits are not judged: a consumer that was fenced, or lost its partitions, fails rightly, "
    "and a history does not record why one failed.",
    source="requirement HIS-12",
    needs="marks of faults and healing; sends after the healing",
    cost="linear",
    example="""
        0 send t-0:1@0
        ! [10 -] fault name=kill
        ! [20 -] heal name=kill
        0 [70000000000 70000000005] send t-0:2 info
    """,
    check=no_progress,
    rests_on_time=True,
)

GAP = Rule(
    id="availability-gap",
    definition="Between two successful sends lies more than a second in which others were tried without effect.",
    promise="Never a violation: faults cost availability. The sizes are worth knowing.",
    source="Kafka documentation, availability and durability guarantees",
    needs="sends with times",
    cost="two sorts by time",
    example="""
        0 send t-0:1@0
        1 [500000000 900000000] send t-0:2 info
        0 [2000000000 2500000000] send t-0:3@1
    """,
    check=gaps,
    weight=Weight.NOTE,
    rests_on_time=True,
)
