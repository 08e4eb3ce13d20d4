"""Draws schedules whose voters change (KIP-853): faults of nodes, and an operator's changes of the quorum."""

from __future__ import annotations

from linearizability.simulation.choices import Choices
from linearizability.simulation.schedule import METADATA_TOPIC, Fault, Schedule

STEPS = ("AppendRecord", "AdvanceHighWatermark", "BecomeLeader", "ApplyFetch", "GrantVote")
"""Steps of the quorum at which a node fails while voters change."""


def with_changing_voters(choices: Choices, schedule: Schedule) -> Schedule:
    """Return the schedule with the same clients and faults, where some nodes vote at first and voters come and go."""
    nodes = [*schedule.node_ids]
    count = choices.one_of((len(nodes), max(1, len(nodes) - 1), len(nodes), max(1, len(nodes) - 2)))
    faults = [*schedule.faults]
    at_ms = choices.integer(100, 600)
    while at_ms < schedule.duration_ms:
        node = choices.one_of(nodes)
        faults += _there_and_back(choices, at_ms, node)
        if choices.integer(0, 2) == 0:
            faults.append(_fall(choices, at_ms, node))
        at_ms += choices.integer(200, 900)
    return schedule.model_copy(
        update={
            "coordination": "changing-voters",
            "voters": tuple(nodes[:count]),
            "faults": tuple(sorted(faults, key=lambda fault: fault.at_ms)),
        }
    )


def _there_and_back(choices: Choices, at_ms: int, node: int) -> list[Fault]:
    """A voter leaves and comes back, or a node joins; another one may be asked for before that is over."""
    order = choices.one_of(
        (("remove-voter", "add-voter"), ("add-voter",), ("remove-voter", "add-voter"), ("remove-voter",))
    )
    later_ms = choices.one_of((1, 100, 400))
    return [
        Fault.model_validate({"at_ms": at_ms + turn * later_ms, "kind": kind, "node": node})
        for turn, kind in enumerate(order)
    ]


def _fall(choices: Choices, at_ms: int, node: int) -> Fault:
    """The active controller, or the node that comes or goes, fails or is cut off at a step of the quorum."""
    role = choices.one_of(("controller", "actor", "other", ""))
    kind = choices.one_of(("crash", "power-loss", "isolate", "pause"))
    for_ms = choices.one_of((300, 900, 1_500))
    said = {"at_ms": at_ms, "kind": kind, "role": role, "node": node, "for_ms": for_ms}
    if role in ("actor", "other"):
        said |= {"after": choices.one_of(STEPS), "topic": METADATA_TOPIC}
    return Fault.model_validate(said)
