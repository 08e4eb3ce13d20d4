"""stale-read and stale-end-offset: answers that were out of date when they were asked for. Off by default."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from linearizability.history.facts import Flag, Kind, Outcome
from linearizability.rules.excusing import permits_loss
from linearizability.rules.partition import Array, PartitionHistory
from linearizability.rules.rule import Context, Found, Rule, Witness, found

LIST_OFFSETS, FETCH = 0, 1


def check(rule: str, asked_by: int, partition: PartitionHistory, context: Context) -> Iterator[Found]:
    answers = partition.rows(Kind.END_OFFSETS)
    answers = answers.where((answers.position == asked_by) & (answers.offset >= 0))
    appends = partition.appends
    sure = (appends.outcome == Outcome.OK) & appends.flag(Flag.ACKS_ALL) & (appends.offset >= 0)
    rows = np.flatnonzero(sure)
    if not len(rows) or not len(answers):
        return
    rows = rows[np.argsort(appends.completed[rows], kind="stable")]
    highest = np.maximum.accumulate(appends.offset[rows])
    before = np.searchsorted(appends.completed[rows], answers.invoked, side="left") - 1
    due = np.where(before >= 0, highest[before] + 1, 0)

    def witness(index: int) -> Witness:
        earlier = rows[np.flatnonzero(highest[: before[index] + 1] == due[index] - 1)[0]]
        text = f"answered that the log ends at {answers.offset[index]}, after offset {due[index] - 1} had been acknowledged"
        return (
            answers.offset[index],
            appends.value[earlier],
            [appends.operation[earlier], answers.operation[index]],
            text,
        )

    def permitted(indices: Array) -> Array:
        earlier = rows[np.searchsorted(highest, due[indices] - 1)]
        return permits_loss(context, partition, appends.invoked[earlier], answers.completed[indices])

    yield from found(rule, partition, np.flatnonzero(answers.offset < due), witness, permitted)


END_OFFSET = Rule(
    id="stale-end-offset",
    definition="A log end was answered that lies below a record acknowledged before the question.",
    promise="Permitted by default: a leader that was cut off may serve until it learns of its successor. A violation where "
    "the contract asks for strict recency.",
    source="Kafka documentation, replication; KIP-207 on list offsets after an election",
    needs="list_offsets; one monotonic clock for all processes",
    cost="one sort of the acknowledgements by time",
    example="""
        0 send t-0:1@0
        0 send t-0:2@1
        1 list_offsets t-0 start=0 end=1
        1 poll t-0:1@0 t-0:2@1
    """,
    check=partial(check, "stale-end-offset", LIST_OFFSETS),
    rests_on_time=True,
    optional=True,
)

READ = Rule(
    id="stale-read",
    definition="A fetch answered with a high watermark below a record acknowledged before the fetch.",
    promise="As stale-end-offset.",
    source="Kafka documentation, replication",
    needs="polls that carry the high watermarks answered; one monotonic clock for all processes",
    cost="one sort of the acknowledgements by time",
    example="""
        0 send t-0:1@0
        0 send t-0:2@1
        1 poll t-0:1@0 t-0^1
        1 poll t-0:2@1
    """,
    check=partial(check, "stale-read", FETCH),
    rests_on_time=True,
    optional=True,
)
