"""Checks that the controller traces each decision as the right step of the specification.

Only what one row says by itself is judged, since a decision that was traced may be abandoned when its controller is deposed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linearizability.simulation.world import Violation
from reference.controller.image import NO_LEADER

ELECTIONS = frozenset({"ElectLeader", "ElectUncleanLeader"})
DECISIONS = ELECTIONS | {"AlterPartition", "Reassign", "CallOffReassignment"}


def require_decided(action: str, row: Mapping[str, Any]) -> None:
    """Hold the arguments of a traced decision against the partition's state after it. Errors: Violation."""
    arguments = row["args"]
    for name, after in row["partitions"].items():
        kept = sorted({*after["replicas"]} - {*after["removing"]})
        match action:
            case "ElectLeader" | "ElectUncleanLeader":
                _require(arguments["broker"] == after["leader"], action, name, row)
                _require(action != "ElectUncleanLeader" or after["isr"] == [after["leader"]], action, name, row)
            case "AlterPartition":
                _require(arguments["leader"] > NO_LEADER, action, name, row)
            case _:
                _require(arguments["replicas"] == kept, action, name, row)
                _require(action != "CallOffReassignment" or not after["adding"], action, name, row)


def _require(holds: bool, action: str, name: str, row: Mapping[str, Any]) -> None:
    if not holds:
        raise Violation("traced-decision", f"{name}: {action} with {row['args']} leads to {row['partitions'][name]}")
