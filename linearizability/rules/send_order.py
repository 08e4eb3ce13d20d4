"""nonmonotonic-send, int-nonmonotonic-send and int-send-skip: the order of one producer's records in the log."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Flag, Kind, Outcome
from linearizability.history.keys import NEVER
from linearizability.rules.cut import By, Cut, first_of_each, owned
from linearizability.rules.excusing import in_eras, kept_from, permits_loss
from linearizability.rules.loss import ACKS_BELOW_ALL
from linearizability.rules.partition import Array, Mask, PartitionHistory
from linearizability.rules.rule import UNPROVEN, Context, Found, Rule, Weight, Witness, found

LATER = "a send of unknown outcome may be stored at any later time"
NEW_SESSION = f"{UNPROVEN}whether the producer began again, with a new id, after a send of unknown outcome"
UNORDERED = "a producer without idempotence and with several requests in flight may reorder its records"


def _pairs_within(partition: PartitionHistory) -> tuple[np.ndarray, np.ndarray]:
    """Neighbouring sends of one operation whose positions are known."""
    appends, position = partition.appends, partition.append_position
    first = np.flatnonzero(
        (appends.operation[1:] == appends.operation[:-1]) & (position[1:] >= 0) & (position[:-1] >= 0)
    )
    return first, first + 1


def _reason(partition: PartitionHistory, context: Context, rows: np.ndarray, earlier: np.ndarray) -> np.ndarray:
    """Why it is permitted: the producer asked for no order, or the earlier record may have been lost and its place given away."""
    flags = partition.appends.flag
    known = kept_from(partition, answers_first=True)
    seen = np.maximum(known[earlier], known[rows])
    excused = permits_loss(context, partition, partition.appends.invoked[earlier], seen)
    kept = np.where(flags(Flag.ACKS_ALL)[earlier] & (known[rows] < NEVER), excused, ACKS_BELOW_ALL)
    later = np.where(flags(Flag.IDEMPOTENT)[rows], NEW_SESSION, LATER)
    kept = np.where((kept == "") & _may_come_later(partition)[earlier], later, kept)
    return np.where(flags(Flag.ORDERED)[rows], kept, UNORDERED)


def _may_come_later(partition: PartitionHistory) -> Mask:
    """For each append whether nothing orders it before what its producer sent next: it had no answer, so its request may wait at
    a broker while the producer gives it up. The next transaction of a transactional producer ends the last one first."""
    appends = partition.appends
    answered = (appends.outcome == Outcome.OK) | appends.flag(Flag.ACKNOWLEDGED)
    return ~answered & ~appends.flag(Flag.TRANSACTIONAL)


def within(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    before, after = _pairs_within(partition)
    position, appends = partition.append_position, partition.appends
    wrong = np.flatnonzero(position[after] <= position[before])

    def witness(index: int) -> Witness:
        offsets = partition.slot_offset[position[[before[index], after[index]]]]
        text = f"sent after the record at offset {offsets[0]} by the same operation, and stored at {offsets[1]}"
        return offsets[1], appends.value[after[index]], [appends.operation[after[index]]], text

    yield from found(
        WITHIN.id,
        partition,
        wrong,
        witness,
        lambda indices: _reason(partition, context, after[indices], before[indices]),
        appends.operation[after],
    )


def skip(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    before, after = _pairs_within(partition)
    position, appends, counts = partition.append_position, partition.appends, partition.records_before
    low, high = position[before], position[after]
    wrong = np.flatnonzero((high > low) & (counts[high] - counts[np.minimum(low + 1, high)] > 0))

    def witness(index: int) -> Witness:
        offsets = partition.slot_offset[[low[index], high[index]]]
        text = f"records of others lie between the operation's own at offsets {offsets[0]} and {offsets[1]}"
        return offsets[1], appends.value[after[index]], [appends.operation[after[index]]], text

    reason = "writes of several producers interleave in a partition"
    yield from found(SKIP.id, partition, wrong, witness, reason, partition.slot_offset[high])


def highest_record(partition: PartitionHistory, context: Context) -> Array:
    """The part's last record in the log."""
    slots = np.flatnonzero(partition.in_log)
    slots = slots[owned(partition, partition.slot_offset[slots])][-1:]
    sent = partition.log_appends[np.isin(partition.append_slot[partition.log_appends], slots)]
    seen = np.flatnonzero(np.isin(partition.observation_slot, slots) & (partition.observation_slot >= 0))
    return np.concatenate([partition.places_of(Kind.APPEND, sent), partition.places_of(Kind.OBSERVATION, seen)])


def across(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    appends, position = partition.appends, partition.append_position
    rows = np.flatnonzero((position >= 0) & (appends.outcome != Outcome.FAIL))
    if len(rows) < 2:
        return
    # One running maximum for all producers: process numbers lift each producer's positions above those of the former one.
    producer = np.cumsum(np.concatenate([[0], appends.process[rows][1:] != appends.process[rows][:-1]]))
    lifted = position[rows] + producer * (len(partition.slot_offset) + 1)
    highest = np.maximum.accumulate(lifted)
    rises = np.concatenate([[True], highest[1:] > highest[:-1]])
    farthest = rows[np.maximum.accumulate(np.where(rises, np.arange(len(rows)), 0))]  # the first that lies so far up
    operation = appends.operation[rows]
    fresh = np.concatenate([[True], operation[1:] != operation[:-1]])
    same = fresh[1:] & (producer[1:] == producer[:-1])
    wrong = np.flatnonzero(same & (lifted[1:] <= highest[:-1])) + 1
    unexcused = np.zeros(len(rows), bool)
    for kept, within in _kept_in_eras(partition, context, rows):
        highest_kept = np.maximum.accumulate(np.where(kept, lifted, -1))
        unexcused[1:] |= within[1:] & (lifted[1:] <= highest_kept[:-1])

    def witness(index: int) -> Witness:
        earlier, row = farthest[index - 1], rows[index]
        offsets = partition.slot_offset[position[[earlier, row]]]
        text = f"sent after the record at offset {offsets[0]} by the same producer, and stored at {offsets[1]}"
        return offsets[1], appends.value[row], [appends.operation[earlier], appends.operation[row]], text

    def reason(indices: np.ndarray) -> np.ndarray:
        reasons = _reason(partition, context, rows[indices], farthest[indices - 1])
        ordered = appends.flag(Flag.ORDERED)[rows[indices]]
        return np.where(unexcused[indices] & ordered, context.contract.permits_loss("all"), reasons)

    yield from found(ACROSS.id, partition, wrong, witness, reason, operation)


def _kept_in_eras(partition: PartitionHistory, context: Context, rows: Array) -> Iterator[tuple[Mask, Mask]]:
    """For each era which of these appends acks=all keeps in it and orders, and which are kept at all."""
    appends, known = partition.appends, kept_from(partition, answers_first=True)
    for era in in_eras(context, partition, appends.invoked, known):
        within = era & (known < NEVER)
        yield (within & appends.flag(Flag.ACKS_ALL) & ~_may_come_later(partition))[rows], within[rows]


def farthest_sends(partition: PartitionHistory, context: Context) -> Array:
    """Of each process the first of its records that lies farthest up in the log: of all, and of what each era must keep."""
    appends, position = partition.appends, partition.append_position
    rows = np.flatnonzero((position >= 0) & (appends.outcome != Outcome.FAIL))
    rows = rows[owned(partition, appends.operation[rows])]
    rows = rows[np.lexsort((rows, -position[rows], appends.process[rows]))]
    chosen = [rows, *(rows[kept] for kept, _ in _kept_in_eras(partition, context, rows))]
    farthest = np.unique(np.concatenate([each[first_of_each(appends.process[each])] for each in chosen]))
    return partition.places_of(Kind.APPEND, farthest)


ACROSS = Rule(
    id="nonmonotonic-send",
    definition="A producer's later operation was stored before an earlier one of its own.",
    promise="Violation for an idempotent producer or one request in flight, if the earlier record was to be kept (acks=all) and "
    "answered; permitted otherwise. An idempotent producer whose send had no answer may have begun again with a new producer id: "
    "what it sent then is in no order with that send, so this is unknown.",
    source="KIP-98; requirement HIS-06",
    needs="offsets of sends, acknowledged or observed",
    cost="linear",
    example="""
        0 send t-0:1@1
        0 send t-0:2@0
    """,
    check=across,
    cut=Cut(By.OPERATION, "of each process the first of its records that lies farthest up in the log", farthest_sends),
)

WITHIN = Rule(
    id="int-nonmonotonic-send",
    definition="Two records of one operation were stored in the other order.",
    promise="As nonmonotonic-send.",
    source="KIP-98; requirement HIS-06",
    needs="offsets of sends, acknowledged or observed",
    cost="linear",
    example="""
        0 send t-0:1@1 t-0:2@0
    """,
    check=within,
    cut=Cut(By.OPERATION, "nothing: operations are never cut"),
)

SKIP = Rule(
    id="int-send-skip",
    definition="Between two records of one operation lie those of others.",
    promise="Never a violation: partitions interleave their producers. Shows how transactions mix.",
    source="jepsen.tests.kafka",
    needs="offsets of sends, acknowledged or observed",
    cost="linear",
    example="""
        0 send t-0:1@0 t-0:2@2
        1 send t-0:3@1
    """,
    check=skip,
    cut=Cut(By.OFFSET, "the last record before the cut", highest_record),
    weight=Weight.NOTE,
)
