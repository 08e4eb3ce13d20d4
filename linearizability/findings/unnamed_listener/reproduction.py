"""A broker is asked to add a voter with a nameless listener (KIP-853)."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from linearizability.findings import quorum
from linearizability.findings.waiting import await_true
from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.target import Node
from linearizability.targets.wire import Wire, WireError
from reference.protocol.errors import name_of
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest

NEW_VOTER, DIRECTORY = 9, UUID(int=5)
"""There is no such node."""
ANSWERED_WITHIN_S = 10.0
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
            said = _asked(broker, name)
            await_true(lambda: len(_ended(target)) > target.size // 2, ENDS_WITHIN_S if not name else 1.0)
            ended = _ended(target)
            seen.append(f"to add a voter whose listener is named {name!r}: {said}; ended: {ended}")
            if name and ended:
                return None, [*seen, "so nothing can be said of the name"]
        return bool(ended), seen


def _asked(broker: Node, name: str) -> str:
    """Send the request, and return the error."""
    listener = AddRaftVoterRequest.Listener(name=name, host="127.0.0.1", port=1)
    request = AddRaftVoterRequest(
        timeout_ms=1_000, voter_id=NEW_VOTER, voter_directory_id=DIRECTORY, listeners=[listener], cluster_id=None
    )
    try:
        with Wire.connect(broker.host, broker.port, timeout_s=ANSWERED_WITHIN_S) as wire:
            return name_of(wire.call(request).error_code)
    except (WireError, OSError) as error:
        return str(error)


def _ended(target: ClusterTarget) -> list[int]:
    """The nodes whose processes have ended."""
    return [node.id for node in target.nodes if not target.running(node.id)]
