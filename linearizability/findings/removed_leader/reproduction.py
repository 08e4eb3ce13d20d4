"""Of two voters the leader is removed while the other one is down, and is then killed; both are restarted (KIP-853)."""

from __future__ import annotations

import time
from pathlib import Path

from linearizability.findings import quorum
from linearizability.findings.waiting import await_true
from linearizability.targets import TargetError, open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.wire import Wire, WireError
from reference.protocol.errors import name_of
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.primitives import NO_NODE

REMOVED_WITHIN_S = 1.0
"""How long to wait for a response: the leader appends the new voters at once, and leads longer than this without the other
voter."""
WAITS = "no answer yet"
WITHIN_S = 60.0
"""Within this time two running voters elect a leader; their election timeouts are one or two seconds."""


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Reproduce the finding. Errors: TargetError, WrongTarget."""
    seen: list[str] = []
    with open_target(spec, folder=folder) as target:
        if not isinstance(target, ClusterTarget) or target.size != 2:
            raise TargetError(f"{spec} is no cluster of two nodes that is started here")
        if not await_true(lambda: quorum.keep_voters_in_the_log(target), WITHIN_S):
            return None, [f"{quorum.FEATURE} was not raised to {quorum.LEVEL}: voters cannot be removed"]
        _end_and_start(target, seen)
        if not await_true(lambda: quorum.knows_what_is_committed(target), WITHIN_S):
            return None, [*seen, "so nothing can be said of a removal"]
        leader = quorum.leader(target)
        (other,) = {node.id for node in target.nodes} - {leader}
        directory = quorum.voters(target)[leader]
        target.kill(other)
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=leader, voter_directory_id=directory)
        said = _asked_to_leave(target, leader, request)
        seen.append(f"node {other} is killed, leader {leader} is asked to remove itself: {said}")
        if said != WAITS:
            return None, [*seen, "the leader was not removed"]
        if _end_and_start(target, seen):
            return False, seen
        silent = [node.id for node in target.nodes if quorum.answer(target, node.id) is None]
        if silent:
            return None, [*seen, f"but no answer came from {silent}: a node that does not run leads nothing either"]
        return True, seen


def _asked_to_leave(target: ClusterTarget, leader: int, request: RemoveRaftVoterRequest) -> str:
    """The outcome of the request: WAITS where it got no response in time, as it waits for the other voter; else an error."""
    member = target.member(leader)
    try:
        with Wire.connect(member.node.host, member.controller_port) as wire:
            wire.versions()
            try:
                return name_of(wire.call(request, timeout_s=REMOVED_WITHIN_S).error_code)
            except WireError as error:
                if isinstance(error.__cause__, TimeoutError):
                    return WAITS
                raise
    except (WireError, OSError) as error:
        return str(error)


def _end_and_start(target: ClusterTarget, seen: list[str]) -> bool:
    """Kill the running nodes, start both, and wait for a leader. Returns whether one leads."""
    for node in target.nodes:
        if target.running(node.id):
            target.kill(node.id)
    for node in target.nodes:
        target.restart(node.id, wait=False)
    began = time.monotonic()
    is_led = await_true(lambda: quorum.leader(target) != NO_NODE, WITHIN_S)
    waited = f"{time.monotonic() - began:.0f} s after both were started again"
    seen.append(f"node {quorum.leader(target)} leads {waited}" if is_led else f"no node leads {waited}")
    return is_led
