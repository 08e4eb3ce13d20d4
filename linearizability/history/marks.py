"""Faults and the heals that ended them, by a run's marks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Mark = dict[str, Any]
NAMED = ("name", "node", "injection", "strike")
"""Fields that distinguish faults; earlier versions recorded `injection` as `strike`."""


def healing(marks: Iterable[Mark]) -> list[tuple[Mark, Mark | None]]:
    """Each fault with the heal that ended it, None where it is still on. Marks come in the order of time.

    A heal ends every open fault that fits what it names: without a node those of all nodes, without a name all.
    """
    ended: list[tuple[Mark, Mark | None]] = []
    still_on: list[Mark] = []
    for mark in marks:
        if mark.get("f") == "fault":
            still_on.append(mark)
        elif mark.get("f") == "heal":
            named = [name for name in NAMED if mark.get(name) is not None]
            over = [fault for fault in still_on if all(fault.get(name) == mark[name] for name in named)]
            ended += [(fault, mark) for fault in over]
            still_on = [fault for fault in still_on if not any(fault is other for other in over)]
    return [*ended, *((fault, None) for fault in still_on)]
