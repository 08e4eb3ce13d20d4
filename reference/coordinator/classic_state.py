"""The states of a classic group, as a table.

- *Empty*: no members; only offsets may be kept.
- *PreparingRebalance*: the members send JoinGroup, until all have or the rebalance timeout passes.
- *CompletingRebalance*: the generation is formed; its members (SyncGroup) wait for the leader's assignment.
- *Stable*: the assignment is written; the members send heartbeats.
- *Dead*: the group is gone, or another node coordinates it.

Source: org.apache.kafka.coordinator.group.classic.ClassicGroupState.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: dict[State, dict[State, str]] = {
    State.EMPTY: {
        State.PREPARING_REBALANCE: "a member joins",
        State.DEAD: "deleted, expired or unloaded",
    },
    State.PREPARING_REBALANCE: {
        State.COMPLETING_REBALANCE: "all have joined, or the time is over",
        State.EMPTY: "no member is left",
        State.DEAD: "unloaded",
    },
    State.COMPLETING_REBALANCE: {
        State.STABLE: "the leader's assignment is written",
        State.PREPARING_REBALANCE: "a member joins, leaves, fails or does not sync in time",
        State.DEAD: "unloaded",
    },
    State.STABLE: {
        State.PREPARING_REBALANCE: "a member joins, leaves, fails or changes what it says of itself",
        State.DEAD: "unloaded",
    },
    State.DEAD: {},
}
"""For each state the next states, with the cause of each transition."""


def diagram() -> str:
    """The table as a Mermaid state diagram, for the documentation."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.EMPTY.value}"]
    for state, after in TRANSITIONS.items():
        lines += [f"    {state.value} --> {to.value}: {why}" for to, why in after.items()]
    return "\n".join([*lines, f"    {State.DEAD.value} --> [*]"])
