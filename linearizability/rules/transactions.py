"""torn-transaction, G0 and G1c with their process and real-time forms: rules that join what partitions know.

A partition's check cannot see these, so each partition emits rows of four integers, the rows of a run come together in one
place (a second, small shuffle under Spark), and the run's check judges them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from linearizability.history.facts import Flag, Outcome
from linearizability.history.keys import NEVER
from linearizability.rules.graph import Graph, add_precedence, shortest_cycle, strongly_connected
from linearizability.rules.loss import losses, permitted_loss
from linearizability.rules.partition import Array, Mask, PartitionHistory, is_in
from linearizability.rules.retention import COMPACTED
from linearizability.rules.rule import UNPROVEN, Anomaly, Context, Found, RunRule, Weight

WW, WR, NODE = 0, 1, 2
EXCUSED_LOSS = 2
MAX_ALL = 20_000
"""In longer partitions only operations count that write to several partitions or more than once in this one. For cycles of
records that is the same; cycles that only the clock closes within one partition are left to realtime-order."""
MAX_PRECEDENCE = 300_000
"""With more operations than this in a graph, cycles that only a process' order or the clock closes are not looked for. Of
the order of writes realtime-order judges them; of reads no rule does, so the verdict becomes unknown."""
NOT_LOOKED_FOR = f"{UNPROVEN}cycles among more than {MAX_PRECEDENCE} operations are not looked for"


# -- torn transactions ---------------------------------------------------------------------------------------------------


def emit_parts(partition: PartitionHistory, context: Context) -> Array:
    """(transaction, records read, records lost, operation) of each append of a transaction over several partitions.

    A loss counts 1; one that the excuse at place i of the context explains counts EXCUSED_LOSS + i.
    """
    appends = partition.appends
    spread = appends.flag(Flag.MANY_PARTITIONS) & (appends.transaction >= 0) & (appends.outcome != Outcome.FAIL)
    rows = np.flatnonzero(spread)
    if not len(rows):
        return np.empty((0, 4), np.int64)
    lost = losses(partition, context).lost[rows].astype(np.int64)
    if context.excuses and not context.contract.permits_loss("all"):
        reasons = permitted_loss(partition, context, rows)
        for number, excuse in enumerate(context.excuses):
            lost[(lost == 1) & (reasons == excuse.reason)] = EXCUSED_LOSS + number
    return np.stack([appends.transaction[rows], partition.read[rows], lost, appends.operation[rows]], axis=1)


def torn(rows: Array, context: Context) -> Iterator[Found]:
    _, place = np.unique(rows[:, 0], return_inverse=True)
    read = np.bincount(place, weights=rows[:, 1])
    lost = np.bincount(place, weights=rows[:, 2])
    wrong = np.flatnonzero((read > 0) & (lost > 0))
    text = "some of its records were read, others are lost"
    compacted = COMPACTED if context.contract.cleanup == "compact" else ""
    by_reason: dict[str, list[tuple[int, str]]] = {}
    for index in wrong:
        its = rows[place == index]
        least = int(its[its[:, 2] > 0, 2].min())
        reason = (
            context.excuses[least - EXCUSED_LOSS].reason
            if least >= EXCUSED_LOSS
            else context.contract.permits_loss("all") or compacted
        )
        by_reason.setdefault(reason, []).append((int(its[0, 3]), text))
    for reason, witnesses in sorted(by_reason.items()):
        yield from _found(TORN.id, witnesses, reason)


# -- cycles --------------------------------------------------------------------------------------------------------------


def emit_dependencies(partition: PartitionHistory, context: Context) -> Array:
    """(from operation, to operation, kind, 0) for neighbours in the log and for reads; and each operation's times."""
    appends, observations, position = partition.appends, partition.observations, partition.append_position
    at = np.full(len(partition.slot_offset), -1)
    placed = np.flatnonzero(position >= 0)
    at[position[placed[::-1]]] = placed[::-1]
    chain = at[at >= 0]
    owner = np.where(appends.transaction >= 0, appends.transaction, appends.operation)
    chain = chain[np.flatnonzero(np.concatenate([owner[chain[1:]] != owner[chain[:-1]], [True] * (len(chain) > 0)]))]
    if len(chain) > MAX_ALL:
        chain = chain[_may_close_a_cycle(partition, owner, chain)]
    written = _edges(owner[chain[:-1]], owner[chain[1:]], WW)
    # Only a transaction that also sends can be read in turn, so other polls close no cycle.
    reading = (partition.writer >= 0) & (observations.transaction >= 0) & (observations.outcome == Outcome.OK)
    known = np.flatnonzero(reading & observations.flag(Flag.READ_COMMITTED))
    read = _edges(owner[partition.writer[known]], observations.transaction[known], WR)
    named = np.concatenate([chain, partition.writer[known]])
    began, places = np.unique(owner[named], return_index=True)
    places = named[places]
    # A request without a response may take effect at any time after, so its end comes before nothing.
    ended = np.where(appends.outcome[places] == Outcome.OK, appends.completed[places], NEVER)
    times = np.stack([began, appends.invoked[places], np.full(len(began), NODE), ended], axis=1)
    return np.concatenate([written, read, times, _times_of_reading(partition, known)])


def _times_of_reading(partition: PartitionHistory, rows: Array) -> Array:
    """When a transaction read: it lasts until its last poll, however early it sent."""
    observations = partition.observations
    owner, place = np.unique(observations.transaction[rows], return_inverse=True)
    began, ended = np.full(len(owner), NEVER), np.full(len(owner), -NEVER)
    np.minimum.at(began, place, observations.invoked[rows])
    np.maximum.at(ended, place, observations.completed[rows])
    return np.stack([owner, began, np.full(len(owner), NODE), ended], axis=1)


def _may_close_a_cycle(partition: PartitionHistory, owner: Array, chain: Array) -> Mask:
    """Operations that write to other partitions too, or more than once in this order; a cycle only passes through others."""
    names, runs = np.unique(owner[chain], return_counts=True)
    interleaved = is_in(owner[chain], names[runs > 1])
    return interleaved | partition.appends.flag(Flag.MANY_PARTITIONS)[chain]


def _edges(before: Array, after: Array, kind: int) -> Array:
    """Each pair once, without loops."""
    apart = np.flatnonzero(before != after)
    before, after = before[apart], after[apart]
    order = np.lexsort((after, before))
    before, after = before[order], after[order]
    fresh = np.flatnonzero(
        np.concatenate([[True] * (len(before) > 0), (before[1:] != before[:-1]) | (after[1:] != after[:-1])])
    )
    return np.stack([before, after, np.full(len(before), kind), np.zeros(len(before), np.int64)], axis=1)[fresh]


def cycles(precedence: str, kind: int, rule: str, rows: Array, context: Context) -> Iterator[Found]:
    """Cycles of one kind of dependency, with no precedence, that of each process, or that of the clock."""
    edges, nodes = rows[rows[:, 2] == kind], rows[rows[:, 2] == NODE]
    graph = Graph(edges[:, 0], edges[:, 1])
    plain = strongly_connected(graph)
    components = plain
    if precedence:
        if kind == WR:  # time passes on what is no edge's end, so it is not needed
            nodes = nodes[is_in(nodes[:, 0], graph.nodes)]
        if len(np.unique(nodes[:, 0])) > MAX_PRECEDENCE:
            if kind == WR:
                yield from _found(rule, [(int(nodes[0, 0]), NOT_LOOKED_FOR)], NOT_LOOKED_FOR)
            return
        if _follow_time(edges, nodes):
            return
        wider = add_precedence(graph, nodes[:, 0], nodes[:, 1], nodes[:, 3], by_process=precedence == "process")
        known = {operation for component in plain for operation in component}
        components = [component for component in strongly_connected(wider) if not known & set(component)]
        if precedence == "realtime":
            narrower = add_precedence(graph, nodes[:, 0], nodes[:, 1], nodes[:, 3], by_process=True)
            known = {operation for component in strongly_connected(narrower) for operation in component}
            components = [component for component in components if not known & set(component)]
        graph = wider
    for component in components:
        cycle = shortest_cycle(graph, component)
        text = f"a cycle of {len(cycle)} operations: each comes before the next in some partition's log or in time"
        yield from _found(rule, [(operation, text) for operation in cycle[:1]], "", tuple(cycle))


def _follow_time(edges: Array, nodes: Array) -> bool:
    """Whether each edge leads to an operation that began later: then none closes a cycle, also with the order of the clock,
    where an operation has ended before the next one begins."""
    order = np.argsort(nodes[:, 0], kind="stable")
    operations, first = np.unique(nodes[order, 0], return_index=True)
    if not is_in(edges[:, :2].ravel(), operations).all():
        return False
    began = np.minimum.reduceat(nodes[order, 1], first)
    before, after = (began[np.searchsorted(operations, edges[:, side])] for side in (0, 1))
    return bool((before < after).all())


def _found(
    rule: str, witnesses: list[tuple[int, str]], permitted: str, operations: tuple[int, ...] = ()
) -> Iterator[Found]:
    if not witnesses:
        return
    anomalies = tuple(
        Anomaly(rule, "", -1, -1, -1, operations or (operation,), text, permitted)
        for operation, text in witnesses[:100]
    )
    yield Found(rule, permitted, len(witnesses), anomalies)


TORN = RunRule(
    id="torn-transaction",
    definition="Of one transaction some records were read, and others, in other partitions, are lost.",
    promise="Violation, unless the contract permits loss, compaction may have removed the lost records or excuses cover "
    "them: it happens everywhere or nowhere.",
    source="KIP-98; requirement HIS-09",
    needs="transactions over several partitions; best a final drain of each",
    cost="linear in the records of such transactions",
    example="""
        0 txn send t-0:1@0 send t-1:2@0 info
        0 send t-1:3@1
        1 poll t-0:1@0 t-1:3@1
    """,
    check=torn,
    emit=emit_parts,
    rests_on_absence=True,
    rests_on_time=True,  # as lost-write
)


def _cycle_rule(
    name: str, kind: int, precedence: str, definition: str, promise: str, weight: Weight, example: str
) -> RunRule:
    rule = f"{name}-{precedence}" if precedence else name
    return RunRule(
        id=rule,
        definition=definition,
        promise=promise,
        source="Adya, Liskov, O'Neil 2000; Elle 2020",
        needs="offsets of sends" if kind == WW else "polls whose writers are known",
        cost="linear in the edges",
        example=example,
        check=partial(cycles, precedence, kind, rule),
        emit=emit_dependencies,
        weight=weight,
        rests_on_time=bool(precedence),
    )


_INTERLEAVE = "Never a violation: Kafka does not isolate writes, and transactions interleave in their partitions."
G0 = _cycle_rule(
    "G0",
    WW,
    "",
    "Operations whose records precede each other in a cycle of partitions.",
    _INTERLEAVE,
    Weight.NOTE,
    """
        0 [0 30] send t-0:1@0 t-1:2@1
        1 [5 25] send t-0:3@1 t-1:4@0
    """,
)
G0_PROCESS = _cycle_rule(
    "G0",
    WW,
    "process",
    "As G0, where the order of one process's operations closes the cycle.",
    _INTERLEAVE,
    Weight.NOTE,
    """
        0 send t-0:1@1
        0 send t-0:2@0
    """,
)
G0_REALTIME = _cycle_rule(
    "G0",
    WW,
    "realtime",
    "As G0, where the clock closes the cycle: an operation ended before another began.",
    "Never a violation by itself; within one partition it is realtime-order.",
    Weight.NOTE,
    """
        0 send t-0:1@1
        1 send t-0:2@0
    """,
)
_COMMITTED = (
    "Violation: what a read_committed consumer is given had committed before. Polls of read_uncommitted may be given "
    "anything, and are left out."
)
G1C = _cycle_rule(
    "G1c",
    WR,
    "",
    "Transactions that polled each other's records in a cycle.",
    f"{_COMMITTED} Cycles that need the order of writes are G0's.",
    Weight.VIOLATION,
    """
        0 [0 30] txn send t-0:1@0 poll t-1:2@0
        1 [5 25] txn send t-1:2@0 poll t-0:1@0
    """,
)
G1C_PROCESS = _cycle_rule(
    "G1c",
    WR,
    "process",
    "As G1c, where the order of one process's transactions closes the cycle: it read what rests on what it sent later.",
    _COMMITTED,
    Weight.VIOLATION,
    """
        0 [0 10] txn send t-0:1@0 poll t-1:2@0
        1 [0 40] txn send t-1:2@0 poll t-2:3@0
        0 [20 30] txn send t-2:3@0
    """,
)
G1C_REALTIME = _cycle_rule(
    "G1c",
    WR,
    "realtime",
    "As G1c, where the clock closes the cycle: a transaction read what rests on one that began after it had ended.",
    _COMMITTED,
    Weight.VIOLATION,
    """
        0 [0 10] txn send t-0:1@0 poll t-1:2@0
        1 [0 40] txn send t-1:2@0 poll t-2:3@0
        2 [20 30] txn send t-2:3@0
    """,
)
