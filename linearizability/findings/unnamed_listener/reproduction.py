"""A broker is asked to add a voter with a nameless listener (KIP-853)."""

from __future__ import annotations

from pathlib import Path

from linearizability.findings import quorum
from linearizability.findings.waiting import await_true
from linearizability.targets import open_target

ENDS_WITHIN_S = 20.0
"""A broker repeats the request at the next controller, which then ends too."""


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Reproduce the finding. Errors: TargetError, WrongTarget."""
    seen: list[str] = []
    with open_target(spec, folder=folder) as opened:
        target = quorum.several_nodes(opened)
        active = quorum.leader(target)
        broker = next(node for node in target.nodes if node.id != active)
        seen.append(f"node {active} is the active controller, broker {broker.id} is asked")
        for name in ("CONTROLLER", ""):
            said = quorum.add(broker, name, "127.0.0.1")
            await_true(lambda: len(quorum.ended(target)) > target.size // 2, ENDS_WITHIN_S if not name else 1.0)
            ended = quorum.ended(target)
            seen.append(f"to add a voter whose listener is named {name!r}: {said}; ended: {ended}")
            if name and ended:
                return None, [*seen, "so nothing can be said of the name"]
        return bool(ended), seen
