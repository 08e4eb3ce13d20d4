"""nonlinearizable-register and undecided-register: registers, and groups' committed offsets as registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from linearizability.history.facts import UNKNOWN, Flag, Kind, Outcome, identity
from linearizability.history.keys import NEVER
from linearizability.rules.cut import APART
from linearizability.rules.excusing import GROUPS, TRANSACTIONS, permits_loss
from linearizability.rules.group_offsets import may_be_stale
from linearizability.rules.partition import PartitionHistory, Rows
from linearizability.rules.rule import UNPROVEN, Context, Found, Rule, Weight, Witness, found
from linearizability.rules.wgl import CAS, READ, WRITE, RegisterOperation, linearizable, that_matter

Named = list[tuple[RegisterOperation, int]]
SHRINKING_STEPS = 20_000
"""Steps of each search that makes a witness smaller."""
MAX_SHOWN = 30
"""Operations of a witness, and reads that are tried without."""
NOTHING = identity(None)
"""The value of a register that was never written."""


@dataclass(frozen=True)
class Aborted:
    """A commit of a transaction that was aborted."""

    write: RegisterOperation
    marked: int
    """When an answer had shown that the marker was written: it was stable, and did not return what was aborted. NEVER where none
    did, or the commit has no answer: it may arrive behind the marker."""


@dataclass(frozen=True)
class Register:
    """One register under a key."""

    name: str
    operations: Named
    initial: int
    is_committed: bool = False
    """Whether it is a group's committed offset."""
    transactional: frozenset[int] = frozenset()
    """The writes that take effect with the end of a transaction."""
    aborted: tuple[Aborted, ...] = ()
    """The writes of transactions that were aborted; `operations` lacks them."""


def check(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    yield from (item for answer, item in judged(partition, context) if answer is False)


def undecided(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    yield from (item for answer, item in judged(partition, context) if answer is None)


def judged(partition: PartitionHistory, context: Context) -> list[tuple[bool | None, Found]]:
    """The results of the search for each register here, computed once."""
    return partition.once("registers", lambda: list(_judged(partition, context)))


def _judged(partition: PartitionHistory, context: Context) -> Iterator[tuple[bool | None, Found]]:
    for register in _registers(partition, context):
        initial, name = register.initial, register.name
        operations = [register.operations[i] for i in that_matter([each for each, _ in register.operations])]
        answer = linearizable([operation for operation, _ in operations], initial)
        if answer:
            continue
        least = shrink(operations, initial) if answer is False else operations[:1]

        def witness(index: int, least: Named = least, name: str = name, answer: bool | None = answer) -> Witness:
            if answer is None:
                return -1, -1, [number for _, number in least], f"{name}: the search was given up"
            last = least[-MAX_SHOWN:]
            text = f"{name}: no order of these {len(last)} operations within their durations explains what was read"
            return -1, -1, [number for _, number in last], text

        rule = RULE if answer is False else UNDECIDED
        for item in found(
            rule.id, partition, np.zeros(1, np.int64), witness, _permitted(register, least, partition, context)
        ):
            yield answer, item


def _permitted(register: Register, least: Named, partition: PartitionHistory, context: Context) -> str:
    """Why a register may be as it was read; empty where it may not."""
    # The oldest write that no read shows must have been lost (see `_without_oldest`); where each is shown, any may have been.
    made = min(operation.invoked for operation, _ in _unread(least) or least)
    seen = max(NEVER if operation.completed is None else operation.completed for operation, _ in least)
    reason = permits_loss(context, partition, made, seen, GROUPS if register.is_committed else "", here=False)[0]
    if reason or not register.transactional:
        return str(reason)
    # A lost decision of the transactions' coordinator explains that a commit never took effect. What was read of one stays.
    undone = str(permits_loss(context, partition, made, seen, TRANSACTIONS, here=False)[0])
    forgotten = _forgotten(register, least, partition, context, seen)
    reason = undone or next(iter(forgotten.values()), "")
    if not reason:
        return ""
    over = _last_end(context, seen, TRANSACTIONS)
    lossy = [
        replace(each, may_be_lost=number in register.transactional and each.invoked <= over)
        for each, number in register.operations
    ]
    answer = linearizable([*lossy, *forgotten], register.initial)
    if answer is None:
        return f"{UNPROVEN}whether lost transactions explain it: the search was given up"
    return reason if answer else ""


def _forgotten(
    register: Register, least: Named, partition: PartitionHistory, context: Context, seen: int
) -> dict[RegisterOperation, str]:
    """The writes of aborted transactions that were read, and may have taken effect with the producer's next end; why.

    The abort was forgotten where the coordinator lost its decision before the marker was written, or the group's log the
    marker.
    """
    read = {operation.value for operation, _ in least if operation.function == READ}
    came_back: dict[RegisterOperation, str] = {}
    for each in register.aborted:
        if each.write.value in read:
            begun = {GROUPS: seen, TRANSACTIONS: min(seen, each.marked)}
            reasons = (
                str(permits_loss(context, partition, each.write.invoked, before, topic, here=False)[0])
                for topic, before in begun.items()
            )
            if reason := next(filter(None, reasons), ""):
                came_back[each.write] = reason
    return came_back


def _last_end(context: Context, seen: int, *topics: str) -> int:
    """When the last of the excuses was over that touch one of these topics and had begun by then."""
    excuses = [each for each in context.excuses if any(map(each.touches, topics)) and each.begins <= seen]
    return max((excuse.ends for excuse in excuses), default=-NEVER)


def shrink(operations: Named, initial: int) -> Named:
    """Fewer operations that are not linearizable either: the shortest such prefix, without unneeded operations."""
    ordered = sorted(operations, key=lambda item: item[0].invoked)
    low, high = 1, len(ordered)
    while low < high:  # a prefix by invocation: what began later is left out
        middle = (low + high) // 2
        if _is_broken(ordered[:middle], initial):
            high = middle
        else:
            low = middle + 1
    least = ordered[:low]
    if not _is_broken(least, initial):
        return ordered
    reads = [item for item in least[:-1] if item[0].function == READ]
    for item in reads[-MAX_SHOWN:]:
        # The write of its value stays: without it a read would have no source, and that would prove nothing.
        others = [other for other in least if other is not item]
        least = others if _is_broken(others, initial) else least
    return _without_oldest(least, initial)


def _without_oldest(least: Named, initial: int) -> Named:
    """Without as many of the oldest writes as can be left out of those whose value no operation needs: what is left begins with
    one that must have been lost, if what was read is to be explained."""
    unread = _unread(least)
    low, high = 0, len(unread)
    while low < high:  # without more of them the others are more easily ordered
        middle = (low + high + 1) // 2
        if _is_broken(_without(unread[:middle], least), initial):
            low = middle
        else:
            high = middle - 1
    return _without(unread[:low], least)


def _unread(least: Named) -> Named:
    """The writes whose value no read or CAS among these operations needs, the oldest first."""
    needed = {operation.value for operation, _ in least if operation.function == READ}
    needed |= {operation.expected for operation, _ in least if operation.function == CAS}
    return [item for item in least if item[0].function == WRITE and item[0].value not in needed]


def _without(some: Named, least: Named) -> Named:
    dropped = {id(item) for item in some}
    return [item for item in least if id(item) not in dropped]


def _is_broken(operations: Named, initial: int) -> bool:
    return linearizable([operation for operation, _ in operations], initial, SHRINKING_STEPS) is False


def _registers(partition: PartitionHistory, context: Context) -> Iterator[Register]:
    """The registers under this key: the key itself, and each group's committed offset."""
    rows = partition.rows(Kind.REGISTER)
    if len(rows):
        operations = [_operation(rows, i, int(rows.position[i])) for i in _relevant(rows)]
        yield Register(f"register {partition.name}", operations, NOTHING)
    commits, fetched = partition.rows(Kind.COMMIT), partition.rows(Kind.COMMITTED)
    for group in np.unique(fetched.group):
        written, read = commits.where(commits.group == group), fetched.where(fetched.group == group)
        read = read.where(~may_be_stale(partition, context, read))
        stable = bool(
            read.flag(Flag.READ_COMMITTED).all()
        )  # else a transaction's commit may be seen later than its end
        operations = [_offset(written, i, WRITE, stable or written.transaction[i] < 0) for i in _relevant(written)]
        operations += [_offset(read, i, READ) for i in _relevant(read)]
        in_transactions = written.transaction >= 0
        transactional = frozenset(written.operation[in_transactions].tolist())
        ended = np.flatnonzero(in_transactions & (written.outcome == Outcome.FAIL))
        aborted = tuple(_aborted(written, i, read) for i in ended.tolist())
        yield Register(f"committed offset of {partition.name}", operations, UNKNOWN, True, transactional, aborted)


def _aborted(written: Rows, i: int, read: Rows) -> Aborted:
    """A commit that was aborted, and the first stable answer after the abort's that lacks it."""
    after = read.flag(Flag.READ_COMMITTED) & (read.outcome == Outcome.OK) & (read.invoked > written.completed[i])
    shows = after & (read.offset != written.offset[i]) & bool(written.flag(Flag.ACKNOWLEDGED)[i])
    return Aborted(_offset(written, i, WRITE)[0], int(read.completed[shows].min(initial=NEVER)))


def _relevant(rows: Rows) -> list[int]:
    return np.flatnonzero(rows.outcome != Outcome.FAIL).tolist()


def _operation(rows: Rows, i: int, function: int) -> tuple[RegisterOperation, int]:
    done = int(rows.completed[i]) if rows.outcome[i] == Outcome.OK else None
    operation = RegisterOperation(function, int(rows.value[i]), int(rows.extra[i]), int(rows.invoked[i]), done)
    return operation, int(rows.operation[i])


def _offset(rows: Rows, i: int, function: int, in_force: bool = True) -> tuple[RegisterOperation, int]:
    done = int(rows.completed[i]) if in_force and rows.outcome[i] == Outcome.OK else None
    operation = RegisterOperation(function, int(rows.offset[i]), UNKNOWN, int(rows.invoked[i]), done)
    return operation, int(rows.operation[i])


RULE = Rule(
    id="nonlinearizable-register",
    definition="No order of a register's operations within their durations explains what was read.",
    promise="Violation for imported registers, and for a group's committed offset, whose coordinator is one log; permitted "
    "where the contract permits loss.",
    source="Wing and Gong 1993; Lowe 2017",
    needs="one monotonic clock for all processes",
    cost="exponential in the number of concurrent operations at worst, bounded",
    example="""
        0 write key=x value=1
        0 write key=x value=2
        1 read key=x value=1
    """,
    check=check,
    cut=APART,
    rests_on_time=True,
    rests_on_absence=True,
)

UNDECIDED = Rule(
    id="undecided-register",
    definition="The search for a register's order was given up.",
    promise="Not a violation: the verdict becomes unknown.",
    source="Gibbons and Korach 1997: the question is NP-complete",
    needs="-",
    cost="bounded by the number of steps",
    example="""
        1 [0 100] write key=x value=1
        2 [0 100] write key=x value=2
        3 [0 100] write key=x value=3
        4 [0 100] write key=x value=4
        5 [0 100] write key=x value=5
        6 [0 100] write key=x value=6
        7 [0 100] write key=x value=7
        8 [0 100] write key=x value=8
        9 [0 100] write key=x value=9
        10 [0 100] write key=x value=10
        11 [0 100] write key=x value=11
        12 [0 100] write key=x value=12
        13 [0 100] write key=x value=13
        14 [0 100] write key=x value=14
        15 [0 100] write key=x value=15
        16 [0 100] write key=x value=16
        17 [0 100] write key=x value=17
        0 [110 115] read key=x value=1
        0 [120 125] read key=x value=2
    """,
    check=undecided,
    cut=APART,
    weight=Weight.UNPROVEN,
)
