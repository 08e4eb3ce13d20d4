"""The rules on a group's committed offsets: committed-offset-regression, committed-offset-loss, commit-past-undelivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from linearizability.history.facts import UNKNOWN, Flag, Kind, Outcome
from linearizability.history.keys import NEVER
from linearizability.rules.cut import APART
from linearizability.rules.excusing import GROUPS, TRANSACTIONS, earliest_from, permits_loss
from linearizability.rules.loss import ACKS_BELOW_ALL
from linearizability.rules.partition import Array, Mask, PartitionHistory, Rows
from linearizability.rules.retention import COMPACTED, EXPIRED, START_NOT_REPORTED, log_starts
from linearizability.rules.rule import UNPROVEN, Context, Found, Rule, Witness, found
from linearizability.rules.sessions import known_at, must_be_delivered, promised_slots

SOUGHT = "a member of the group used seek, or the result of one of its polls is not known"
COORDINATOR_UNKNOWN = (
    f"{UNPROVEN}whether the current coordinator answered: a former one that was cut off may answer with stale offsets"
)


@dataclass(frozen=True)
class _Group:
    """A group's commits, and its successful fetches of committed offsets of one kind: stable (KIP-447), or others."""

    commits: Rows
    """The commits that may have taken effect."""
    ends: Array
    """When each commit is certainly in force for these fetches, in ns; NEVER where that is not known."""
    fetched: Rows
    doubtful: Mask
    """The fetches that a former coordinator may have answered."""


def _groups(partition: PartitionHistory, context: Context) -> Iterator[_Group]:
    """Each group twice: with its fetches of stable offsets, and with its others. For these no transaction's commit is certainly
    in force: its marker may be written later."""
    commits, fetched = partition.rows(Kind.COMMIT), partition.rows(Kind.COMMITTED)
    for group in np.unique(commits.group):
        mine = commits.where((commits.group == group) & (commits.outcome != Outcome.FAIL))
        answered = fetched.where((fetched.group == group) & (fetched.outcome == Outcome.OK))
        for stable in (True, False):
            answers = answered.where(answered.flag(Flag.READ_COMMITTED) == stable)
            sure = (mine.outcome == Outcome.OK) & (stable | (mine.transaction < 0))
            ends = np.where(sure, mine.completed, NEVER)
            yield _Group(mine, ends, answers, may_be_stale(partition, context, answers))


def may_be_stale(partition: PartitionHistory, context: Context, fetched: Rows) -> Mask:
    """Which of these fetches of one group a former coordinator may have answered, which does not know that it was replaced.

    Such are fetches between the first fault and the contract's bound after healing. Those of members are excepted, unless a
    commit of a later generation may be missing. A new generation is given to a member once it is written, by a coordinator
    that knows all commits of earlier ones; a former one answers a follower that joins again with the generation that it knows
    (GroupCoordinator, state Stable).
    """
    owned, commits = partition.rows(Kind.OWNERSHIP), partition.rows(Kind.COMMIT)
    joined = owned.where(np.isin(owned.group, fetched.group))
    generation = _generations(joined, fetched)
    asked = commits.where(np.isin(commits.group, fetched.group) & (commits.outcome != Outcome.FAIL))
    order = np.argsort(asked.invoked, kind="stable")
    later = np.maximum.accumulate(np.append(UNKNOWN, np.where(asked.epoch < 0, NEVER, asked.epoch)[order]))
    latest = later[np.searchsorted(asked.invoked[order], fetched.completed, side="left")]
    member = np.isin(fetched.process, joined.process) & ((generation < 0) | (latest <= generation))
    healed = context.heals_at + context.contract.bound_after_healing_ms * 1_000_000
    faulty = (fetched.completed >= context.faults_at) & ((context.heals_at < 0) | (fetched.invoked <= healed))
    return faulty & ~member


def _generations(joined: Rows, fetched: Rows) -> Array:
    """For each fetch its member's generation: the one of the process's last assignment before it, or of the first after; UNKNOWN
    where none was named."""
    joined = joined.where(joined.epoch >= 0)
    order = np.argsort(joined.operation, kind="stable")
    next_one = np.searchsorted(joined.operation[order], fetched.operation)
    process, epoch = (np.append(each[order], UNKNOWN) for each in (joined.process, joined.epoch))
    last, first = np.maximum(next_one - 1, -1), next_one
    after = np.where(process[first] == fetched.process, epoch[first], UNKNOWN)
    return np.where((last >= 0) & (process[last] == fetched.process), epoch[last], after)


def _last_commit_before(group: _Group) -> tuple[Array, Array]:
    """For each fetch, of the commits in force before it was invoked, the one that was invoked last: its time of invocation and
    its index; -1 where there is none."""
    commits, fetched = group.commits, group.fetched
    sure = np.flatnonzero(group.ends < NEVER)
    sure = sure[np.argsort(group.ends[sure], kind="stable")]
    began = np.maximum.accumulate(commits.invoked[sure]) if len(sure) else commits.invoked[sure]
    before = np.searchsorted(group.ends[sure], fetched.invoked, side="left") - 1
    latest = np.where(before >= 0, began[before] if len(began) else -NEVER, -NEVER)
    which = sure[np.searchsorted(began, latest)] if len(sure) else np.full(len(latest), -1)
    return latest, np.where(before >= 0, which, -1)


def _permitted(context: Context, partition: PartitionHistory, group: _Group, which: Array) -> Callable[[Array], Array]:
    """Why each of these violations is permitted: the contract permits the loss of the group's records, or of the decision on the
    commit's transaction; or a former coordinator may have answered."""

    commits, fetched = group.commits, group.fetched

    def permitted(indices: Array) -> Array:
        made, seen = commits.invoked[which[indices]], fetched.completed[indices]
        reasons = permits_loss(context, partition, made, seen, GROUPS, here=False)
        transactional = commits.transaction[which[indices]] >= 0
        ends = permits_loss(context, partition, made, seen, np.where(transactional, TRANSACTIONS, ""), here=False)
        reasons = np.where(reasons == "", ends, reasons)
        return np.where((reasons == "") & group.doubtful[indices], COORDINATOR_UNKNOWN, reasons)

    return permitted


def regression(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    for group in _groups(partition, context):
        commits, fetched = group.commits, group.fetched
        latest, which = _last_commit_before(group)
        values = np.unique(commits.offset)
        if not len(values):
            continue
        last_chance = np.full(len(values) + 1, -NEVER)
        np.maximum.at(last_chance, np.searchsorted(values, commits.offset), group.ends)
        place = np.searchsorted(values, fetched.offset)
        place[(place == len(values)) | (values[np.minimum(place, len(values) - 1)] != fetched.offset)] = len(values)
        wrong = np.flatnonzero((fetched.offset >= 0) & (which >= 0) & (last_chance[place] < latest))

        def witness(index: int, commits: Rows = commits, fetched: Rows = fetched, which: Array = which) -> Witness:
            commit = which[index]
            text = f"offset {fetched.offset[index]} was fetched after {commits.offset[commit]} had been committed"
            return fetched.offset[index], -1, [commits.operation[commit], fetched.operation[index]], text

        yield from found(REGRESSION.id, partition, wrong, witness, _permitted(context, partition, group, which))


def loss(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    for group in _groups(partition, context):
        commits, fetched = group.commits, group.fetched
        _, which = _last_commit_before(group)
        wrong = np.flatnonzero((fetched.offset < 0) & (which >= 0))

        def witness(index: int, commits: Rows = commits, fetched: Rows = fetched, which: Array = which) -> Witness:
            commit = which[index]
            text = f"no committed offset was fetched after {commits.offset[commit]} had been committed"
            return commits.offset[commit], -1, [commits.operation[commit], fetched.operation[index]], text

        yield from found(LOSS.id, partition, wrong, witness, _permitted(context, partition, group, which))


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
        first = _first_that_binds(accepted) if np.isin(group, partition.groups_from_end) else None
        if first is not None:
            began = first.offset.min(initial=NEVER)
        elif _begins_at_start(partition, context, int(group), mine):
            began = 0
        else:
            began = offsets[partition.observation_slot[mine]].min()
        wrong = np.flatnonzero(required & ~given & (offsets < highest) & (offsets >= began))
        by = accepted.operation[int(accepted.offset.argmax())]

        def witness(index: int, by: int = by, highest: int = highest, offsets: Array = offsets) -> Witness:
            text = (
                f"offset {highest} was committed, and no poll of the group's members returned offset {offsets[index]}"
            )
            return offsets[index], partition.log_value[index], [by], text

        def permitted(
            indices: Array,
            accepted: Rows = accepted,
            offsets: Array = offsets,
            first: Rows | None = first,
            sought: bool = bool(np.isin(group, partition.groups_with_seeks)),
        ) -> Array:
            if sought:
                return np.full(len(indices), SOUGHT)
            if context.contract.cleanup == "compact":
                return np.full(len(indices), COMPACTED)
            sent, known = (each[indices] for each in known_at(partition))
            passed = _passed_by(accepted, offsets[indices])
            made, seen = np.minimum(sent, accepted.invoked[passed]), np.maximum(known, accepted.completed[passed])
            reasons = permits_loss(context, partition, made, seen).astype(object)
            if first is not None:
                # without its committed offset, or where retention passed it, a member continues at the log end
                forgotten = permits_loss(context, partition, first.invoked, seen, GROUPS, here=False)
                reasons = np.where(reasons == "", forgotten, reasons).astype(object)
            if context.contract.cleanup == "delete":
                starts, asked = log_starts(partition, context), accepted.invoked[passed]
                place = offsets[indices] if first is None else np.broadcast_to(first.offset, indices.shape)
                sure = (place >= starts.highest) & (starts.last_asked > asked)
                reasons[(reasons == "") & ~sure] = START_NOT_REPORTED
                reasons[place < starts.known_at(asked)] = EXPIRED
            reasons[~promised_slots(partition)[indices]] = ACKS_BELOW_ALL
            return reasons.astype(str)

        yield from found(PAST.id, partition, wrong, witness, permitted)


def _begins_at_start(partition: PartitionHistory, context: Context, group: int, mine: Array) -> bool:
    """Whether a member was given a record before any commit of the group was asked for: it had no offset to begin at, and so
    began at the log start (`auto.offset.reset=earliest`). Where records may leave the log that lies anywhere."""
    commits, observations = partition.rows(Kind.COMMIT), partition.observations
    asked = commits.invoked[commits.group == group].min(initial=NEVER)
    return (
        context.contract.cleanup == "keep" and context.is_timed and bool((observations.completed[mine] < asked).any())
    )


def _first_that_binds(accepted: Rows) -> Rows:
    """For a group whose members begin at the log end, the commit that was acknowledged first: later members begin at the group's
    committed offset. No rows where a client that is no member commits: such clients read independently of each other."""
    plain = accepted.where(accepted.transaction < 0)
    is_of_members = (accepted.epoch >= 0).all() and len(plain) > 0
    return plain.where(np.arange(len(plain)) == (plain.completed.argmin() if is_of_members else -1))


def _passed_by(accepted: Rows, offsets: Array) -> Array:
    """For each offset, of the commits beyond it, the one that was invoked first."""
    order = np.argsort(accepted.offset, kind="stable")
    first = order[earliest_from(accepted.invoked[order])]
    return first[np.searchsorted(accepted.offset[order], offsets, side="right")]


_IN_FORCE = (
    "A transaction's commit is in force once its marker is written, which may be after EndTxn is answered. Only a fetch of "
    "stable offsets (KIP-447) waits for it. Under faults a former coordinator may answer a client that is no member: unknown."
)
REGRESSION = Rule(
    id="committed-offset-regression",
    definition="A fetch returned a committed offset that a later, acknowledged commit had replaced before the fetch began.",
    promise=f"Violation, unless the contract permits loss. Concurrent commits may take effect in either order. {_IN_FORCE}",
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
    rests_on_absence=True,
)

LOSS = Rule(
    id="committed-offset-loss",
    definition="A fetch returned no committed offset of a group after a commit had been acknowledged.",
    promise=f"Violation, unless the contract permits loss or the offsets expired. {_IN_FORCE}",
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
    definition="A group's committed offset is beyond a record that no poll of the group's members returned.",
    promise="Violation of at-least-once delivery by broker or client, unless a member used seek, compaction or retention "
    "removed the record, or the contract permits its loss; retention is judged as by poll-skip. "
    "A group whose members were given a record before any commit is judged from the log start if nothing may leave the log, and "
    "another one from the lowest offset that its polls returned. One whose members begin at the log end "
    "(`auto.offset.reset=latest`) is judged from its first commit, and as long as the log does not begin beyond that.",
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
