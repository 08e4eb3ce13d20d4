"""high-watermark-, last-stable-offset- and log-start-regression, and lso-above-hw: by each node's own reports."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from linearizability.history.facts import Kind
from linearizability.rules.cut import APART
from linearizability.rules.excusing import in_eras, permits_loss
from linearizability.rules.partition import Array, PartitionHistory, Rows
from linearizability.rules.rule import UNPROVEN, Context, Found, Rule, Witness, found

EPOCH_UNKNOWN = f"{UNPROVEN}the leader epoch; a new leader or a restarted node may begin lower"


def regression(rule: str, kind: Kind, partition: PartitionHistory, context: Context) -> Iterator[Found]:
    states = partition.rows(kind)
    if not len(states):
        return
    highest = _highest_before(states)
    wrong = np.flatnonzero((highest >= 0) & (states.offset < states.offset[highest]))
    unexcused = np.zeros(len(states), bool)
    for within in in_eras(context, partition, states.invoked, states.completed):
        era = states.where(within)
        earlier = _highest_before(era)
        unexcused[np.flatnonzero(within)] |= (earlier >= 0) & (era.offset < era.offset[earlier])

    def witness(index: int) -> Witness:
        before, epoch = highest[index], states.epoch[index]
        text = f"node {states.node[index]} went back from {states.offset[before]} to {states.offset[index]}"
        operations = [states.operation[before], states.operation[index]]
        return states.offset[index], -1, operations, f"{text} in leader epoch {epoch}"

    def permitted(indices: Array) -> Array:
        reasons = permits_loss(context, partition, states.invoked[highest[indices]], states.completed[indices])
        reasons[unexcused[indices]] = context.contract.permits_loss("all")
        return np.where((states.epoch[indices] < 0) & (reasons == ""), EPOCH_UNKNOWN, reasons)

    yield from found(rule, partition, wrong, witness, permitted)


def _highest_before(states: Rows) -> Array:
    """For each state the highest one that its node had reported in its leader epoch before it was asked; -1: none."""
    highest = np.full(len(states), -1)
    order = np.lexsort((states.operation, states.completed, states.epoch, states.node))
    node, epoch = states.node[order], states.epoch[order]
    fresh = np.flatnonzero((node[1:] != node[:-1]) | (epoch[1:] != epoch[:-1])) + 1
    for reported in np.split(order, fresh):  # of one node in one epoch, by the time of the answer
        offset = states.offset[reported]
        rises = np.concatenate([[True], offset[1:] > np.maximum.accumulate(offset)[:-1]])[: len(reported)]
        peak = reported[np.maximum.accumulate(np.where(rises, np.arange(len(reported)), 0))]
        before = np.searchsorted(states.completed[reported], states.invoked[reported], side="left") - 1
        highest[reported] = np.where(before >= 0, peak[np.maximum(before, 0)], -1)
    return highest


def above(partition: PartitionHistory, context: Context) -> Iterator[Found]:
    stable, watermark = partition.rows(Kind.LAST_STABLE_OFFSET), partition.rows(Kind.HIGH_WATERMARK)
    if not len(stable):
        return
    key = np.rec.fromarrays([stable.operation, stable.node])
    other = np.rec.fromarrays([watermark.operation, watermark.node])
    _, mine, theirs = np.intersect1d(key, other, return_indices=True)
    wrong = mine[stable.offset[mine] > watermark.offset[theirs]]
    bound = dict(zip(mine.tolist(), watermark.offset[theirs].tolist(), strict=True))

    def witness(index: int) -> Witness:
        text = (
            f"node {stable.node[index]}: last stable offset {stable.offset[index]} above high watermark {bound[index]}"
        )
        return stable.offset[index], -1, [stable.operation[index]], text

    yield from found(ABOVE.id, partition, np.sort(wrong), witness)


def _rule(name: str, kind: Kind, title: str) -> Rule:
    return Rule(
        id=f"{title.replace(' ', '-')}-regression",
        definition=f"A node's {title} went back within one leader epoch.",
        promise="Violation; permitted across leader epochs and restarts, and where the contract permits loss. Unknown where the "
        "leader epoch is.",
        source="Kafka documentation, replication; KIP-101",
        needs="node states with leader epochs",
        cost="one sort of the node states",
        example=f"""
            9 state t-0 node=1 {name}=5 epoch=2
            9 state t-0 node=1 {name}=3 epoch=2
        """,
        check=partial(regression, f"{title.replace(' ', '-')}-regression", kind),
        cut=APART,
        rests_on_time=True,
    )


HIGH_WATERMARK = _rule("high_watermark", Kind.HIGH_WATERMARK, "high watermark")
LAST_STABLE_OFFSET = _rule("last_stable_offset", Kind.LAST_STABLE_OFFSET, "last stable offset")
LOG_START = _rule("log_start", Kind.LOG_START, "log start")

ABOVE = Rule(
    id="lso-above-hw",
    definition="A node reported a last stable offset above its high watermark.",
    promise="Always a violation.",
    source="KIP-98: the last stable offset never exceeds the high watermark",
    needs="node states that hold both",
    cost="one sort of the node states",
    example="""
        9 state t-0 node=1 high_watermark=3 last_stable_offset=4 epoch=2
    """,
    check=above,
    cut=APART,
)
