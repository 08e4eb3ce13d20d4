"""inconsistent-offsets: two records at one offset."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linearizability.history.facts import Flag, Outcome
from linearizability.history.keys import NEVER
from linearizability.rules.cut import BY_SLOT
from linearizability.rules.excusing import at_slots
from linearizability.rules.loss import ACKS_BELOW_ALL
from linearizability.rules.partition import Array, Mask, PartitionHistory, is_in
from linearizability.rules.rule import UNPROVEN, Context, Found, Rule, Witness, found

NOT_ACKNOWLEDGED = f"{UNPROVEN}whether the send was acknowledged whose completion of unknown outcome names the offset"


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    torn = _torn(partition)
    slots = np.flatnonzero(torn)
    if not len(slots):
        return
    appends, observations, reported = partition.appends, partition.observations, partition.reported_appends

    def witness(index: int) -> Witness:
        slot = slots[index]
        read = observations.value[partition.observation_slot == slot]
        values = np.unique(np.concatenate([appends.value[reported[partition.append_slot[reported] == slot]], read]))
        operations: list[int] = []
        for value in values[:3]:
            seen = observations.operation[(partition.observation_slot == slot) & (observations.value == value)]
            sent = appends.operation[(partition.append_slot == slot) & (appends.value == value)]
            operations += [*sent[:1], *seen[:1]][:1]
        offset = int(partition.slot_offset[slot])
        return offset, int(values[0]), operations, f"offset {offset} holds {' and '.join(map(str, values[:3]))}"

    def permitted(indices: Array) -> Array:
        careful = reported[appends.flag(Flag.ACKS_ALL)[reported]]
        reasons = np.full(len(indices), ACKS_BELOW_ALL, object)
        for among, doubt in ((careful, NOT_ACKNOWLEDGED), (careful[~_only_named(partition)[careful]], "")):
            promised = at_slots(partition, slots[indices], among)  # what was read, or acknowledged with acks=all
            known = promised.contradictions()[1] < NEVER
            explained = promised.reasons(context, partition)
            reasons[known] = np.where(explained == "", doubt, explained)[known]
        return reasons.astype(str)

    yield from found(RULE.id, partition, np.arange(len(slots)), witness, permitted, partition.slot_offset[slots])


def _only_named(partition: PartitionHistory) -> Mask:
    """Appends whose offset only a completion of unknown outcome names, and not that of a whole transaction. The answer to a
    request that timed out at the broker names the offset at which it was appended, and promises nothing."""
    appends = partition.appends
    whole = appends.flag(Flag.TRANSACTIONAL) & (appends.transaction == appends.operation)
    return (appends.outcome == Outcome.INFO) & ~appends.flag(Flag.ACKNOWLEDGED) & ~whole & ~partition.happened


def _torn(partition: PartitionHistory) -> Mask:
    """Slots at which two different values are known, or one was read and another one reported."""
    reported = partition.reported_appends
    beside = reported[~is_in(reported, partition.log_appends)]
    if not len(beside):
        return partition.disagreeing
    placed = np.flatnonzero(partition.observation_slot >= 0)
    read, is_read = np.zeros(len(partition.slot_offset), np.int64), np.zeros(len(partition.slot_offset), bool)
    read[partition.observation_slot[placed]] = partition.observations.value[placed]
    is_read[partition.observation_slot[placed]] = True
    slots, torn = partition.append_slot[beside], partition.disagreeing.copy()
    torn[slots[is_read[slots] & (read[slots] != partition.appends.value[beside])]] = True
    return torn


RULE = Rule(
    id="inconsistent-offsets",
    definition="Two different values are known at one offset of a partition.",
    promise="Violation if two of them were promised: returned by a poll, or acknowledged with acks=all. An offset whose "
    "record was acknowledged with lower acks may be given to another one when the leader is lost. An offset that a "
    "completion of unknown outcome names counts where another record was read there: as a violation for a whole transaction, "
    "whose sends were answered before it ended; else it is unknown, for the answer to a request that timed out names it, too.",
    source="Kafka documentation, design: an offset names one record for ever; requirement HIS-03",
    needs="offsets of acknowledged or polled records",
    cost="linear",
    example="""
        0 send t-0:1@0
        0 send t-0:2@1
        1 poll t-0:1@0
        2 poll t-0:2@0
    """,
    check=check,
    cut=BY_SLOT,
)
