"""A broker is asked to add a voter with a listener that has no host (KIP-853)."""

from __future__ import annotations

from pathlib import Path

from linearizability.findings import quorum
from linearizability.findings.waiting import await_true
from linearizability.targets import open_target

RAISED_WITHIN_S = 60.0
ENDS_WITHIN_S = 20.0


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Reproduce the finding. Errors: TargetError, WrongTarget."""
    seen: list[str] = []
    with open_target(spec, folder=folder) as opened:
        target = quorum.several_nodes(opened)
        if not await_true(lambda: quorum.keep_voters_in_the_log(target), RAISED_WITHIN_S):
            return None, [f"{quorum.FEATURE} was not raised to {quorum.LEVEL}: voters cannot be added"]
        if not await_true(lambda: quorum.knows_what_is_committed(target), RAISED_WITHIN_S):
            return None, ["no node leads the quorum"]
        active = quorum.leader(target)
        broker = next(node for node in target.nodes if node.id != active)
        seen.append(f"node {active} is the active controller, broker {broker.id} is asked")
        for host in ("127.0.0.1", ""):
            said = quorum.add(broker, "CONTROLLER", host)
            await_true(lambda: bool(quorum.ended(target)), 1.0 if host else ENDS_WITHIN_S)
            ended = quorum.ended(target)
            seen.append(f"to add a voter whose listener has the host {host!r}: {said}; ended: {ended}")
            if host and ended:
                return None, [*seen, "so nothing can be said of the host"]
        return bool(ended), seen
