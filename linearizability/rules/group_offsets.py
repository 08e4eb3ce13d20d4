"""committed-offset-regression, committed-offset-loss and commit-past-undelivered: a group's offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from linearizability.history.facts import NEVER, Kind, Outcome
from linearizability.rules.cut import APART
from linearizability.rules.excusing import GROUPS, TRANSACTIONS, earliest_from, permits_loss
from linearizability.rules.loss import ACKS_BELOW_ALL
from linearizability.rules.partition import Array, PartitionHistory, Rows
from linearizability.rules.retention import COMPACTED, EXPIRED, START_NOT_REPORTED, log_starts
from linearizability.rules.rule import Context, Found, Rule, Witness, found
from linearizability.rules.sessions import known_at, must_be_delivered, promised_slots


def _groups(partition: PartitionHistory) -> Iterator[tuple[Rows, Rows]]:
    """Each group's commits and its answered fetches of committed offsets."""
    commits, fetched = partition.rows(Kind.COMMIT), partition.rows(Kind.COMMITTED)
    for group in np.unique(commits.group):
        answers = fetched.where((fetched.group == group) & (fetched.outcome == Outcome.OK))
        yield commits.where((commits.group == group) & (commits.outcome != Outcome.FAIL)), answers


def _last_commit_before(commits: Rows, fetched: Rows) -> tuple[Array, Array]:
    """For each fetch: of the commits that had ended before it began, the latest beginning, and that commit's index."""
    sure = np.flatnonzero(commits.outcome == Outcome.OK)
    sure = sure[np.argsort(commits.completed[sure], kind="stable")]
    began = np.maximum.accumulate(commits.invoked[sure]) if len(sure) else commits.invoked[sure]
    before = np.searchsorted(commits.completed[sure], fetched.invoked, side="left") - 1
    latest = np.where(before >= 0, began[before] if len(began) else -NEVER, -NEVER)
    which = sure[np.searchsorted(began, latest)] if len(sure) else np.full(len(latest), -1)
    return latest, np.where(before >= 0, which, -1)


def _permitted(
    context: Context, partition: PartitionHistory, commits: Rows, fetched: Rows, which: Array
) -> Callable[[Array], Array]:
    """A commit may be lost with the group's records, or, from within a transaction, with what became of that."""

    def permitted(indices: Array) -> Array:
        made, seen = commits.invoked[which[indices]], fetched.completed[indices]
        reasons = permits_loss(context, partition, made, seen, GROUPS, here=False)
        transactional = commits.transaction[which[indices]] >= 0
        ends = permits_loss(context, partition, made, seen, np.where(transactional, TRANSACTIONS, ""), here=False)
        return np.where(reasons == "", ends, reasons)

    return permitted


def regression(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    for commits, fetched in _groups(partition):
        latest, which = _last_commit_before(commits, fetched)
        values = np.unique(commits.offset)
        if not len(values):
            continue
        last_chance = np.full(len(values) + 1, -NEVER)
        ends = np.where(commits.outcome == Outcome.OK, commits.completed, NEVER)
        np.maximum.at(last_chance, np.searchsorted(values, commits.offset), ends)
        place = np.searchsorted(values, fetched.offset)
        place[(place == len(values)) | (values[np.minimum(place, len(values) - 1)] != fetched.offset)] = len(values)
        wrong = np.flatnonzero((fetched.offset >= 0) & (which >= 0) & (last_chance[place] < latest))

        def witness(index: int, commits: Rows = commits, fetched: Rows = fetched, which: Array = which) -> Witness:
            commit = which[index]
            text = f"offset {fetched.offset[index]} was fetched after {commits.offset[commit]} had been committed"
            return fetched.offset[index], -1, [commits.operation[commit], fetched.operation[index]], text

        yield from found(
            REGRESSION.id, partition, wrong, witness, _permitted(context, partition, commits, fetched, which)
        )


def loss(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    for commits, fetched in _groups(partition):
        _, which = _last_commit_before(commits, fetched)
        wrong = np.flatnonzero((fetched.offset < 0) & (which >= 0))

        def witness(index: int, commits: Rows = commits, fetched: Rows = fetched, which: Array = which) -> Witness:
            commit = which[index]
            text = f"no committed offset was fetched after {commits.offset[commit]} had been committed"
            return commits.offset[commit], -1, [commits.operation[commit], fetched.operation[index]], text

        yield from found(LOSS.id, partition, wrong, witness, _permitted(context, partition, commits, fetched, which))


def past_undelivered(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    commits, observations = partition.rows(Kind.COMMIT), partition.observations
    if not len(commits) or not len(observations):
        return
    required = must_be_delivered(partition)
    for group in np.unique(commits.group):
        mine = np.flatnonzero((observations.group == group) & (partition.observation_slot >= 0))
        accepted = commits.where((commits.group == group) & (commits.outcome == Outcome.OK) & (commits.offset >= 0))
        if not len(mine) or not len(accepted):
            continue
        given = np.zeros(len(required), bool)
        given[partition.observation_slot[mine]] = True
        highest = int(accepted.offset.max())
        offsets = partition.slot_offset
        began = offsets[partition.observation_slot[mine]].min()
        wrong = np.flatnonzero(required & ~given & (offsets < highest) & (offsets >= began))
        by = accepted.operation[int(accepted.offset.argmax())]

        def witness(index: int, by: int = by, highest: int = highest, offsets: Array = offsets) -> Witness:
            text = f"offset {highest} was committed, and no member of the group was given offset {offsets[index]}"
            return offsets[index], partition.log_value[index], [by], text

        def permitted(indices: Array, accepted: Rows = accepted, offsets: Array = offsets) -> Array:
            if context.contract.cleanup == "compact":
                return np.full(len(indices), COMPACTED)
            sent, known = (each[indices] for each in known_at(partition))
            passed = _passed_by(accepted, offsets[indices])
            made, seen = np.minimum(sent, accepted.invoked[passed]), np.maximum(known, accepted.completed[passed])
            reasons = permits_loss(context, partition, made, seen).astype(object)
            if context.contract.cleanup == "delete":
                starts, asked = log_starts(partition), accepted.invoked[passed]
                sure = (offsets[indices] >= starts.highest) & (starts.last_asked > asked)
                reasons[(reasons == "") & ~sure] = START_NOT_REPORTED
                reasons[offsets[indices] < starts.known_at(asked)] = EXPIRED
            reasons[~promised_slots(partition)[indices]] = ACKS_BELOW_ALL
            return reasons.astype(str)

        yield from found(PAST.id, partition, wrong, witness, permitted)


def _passed_by(accepted: Rows, offsets: Array) -> Array:
    """For each offset the commit beyond it that was asked for first."""
    order = np.argsort(accepted.offset, kind="stable")
    first = order[earliest_from(accepted.invoked[order])]
    return first[np.searchsorted(accepted.offset[order], offsets, side="right")]


REGRESSION = Rule(
    id="committed-offset-regression",
    definition="A group's offset was fetched that a later, acknowledged commit had replaced before the fetch began.",
    promise="Violation, unless the contract permits loss. Two commits at once may take effect in either order.",
    source="Kafka documentation, consumer offsets; requirement HIS-10",
    needs="commits and fetches of committed offsets; one monotonic clock for all processes",
    cost="one sort of the commits by time",
    example="""
        1 commit g t-0@3
        1 commit g t-0@5
        2 committed g t-0@3
    """,
    check=regression,
    cut=APART,
    rests_on_time=True,
)

LOSS = Rule(
    id="committed-offset-loss",
    definition="A group had no committed offset after a commit had been acknowledged.",
    promise="Violation, unless the contract permits loss or the offsets expired.",
    source="Kafka documentation, consumer offsets; offsets.retention.minutes",
    needs="commits and fetches of committed offsets; one monotonic clock for all processes",
    cost="one sort of the commits by time",
    example="""
        1 commit g t-0@3
        2 committed g t-0@-1
    """,
    check=loss,
    cut=APART,
    rests_on_time=True,
)

PAST = Rule(
    id="commit-past-undelivered",
    definition="A group's committed offset lies beyond a record that no member of the group was given.",
    promise="Violation of at-least-once by broker or client, unless compaction or retention removed the record, or it may "
    "be lost; what retention removed is judged as by poll-skip. "
    "A group that begins in the middle is judged from the first record it was given.",
    source="Kafka documentation, message delivery semantics; requirement HIS-10",
    needs="polls of consumers whose group is known, and commits",
    cost="linear for each group",
    example="""
        0 send t-0:1@0
        0 send t-0:2@1
        1 subscribe t-0 group=g
        1 poll t-0:1@0
        2 poll t-0:2@1
        1 commit g t-0@2
    """,
    check=past_undelivered,
    rests_on_absence=True,
)
