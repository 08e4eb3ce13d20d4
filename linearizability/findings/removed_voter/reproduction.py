"""Of three voters a frozen one is removed, and resumes while a BeginQuorumEpoch waits for it (KIP-853)."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import UUID

from linearizability.findings import quorum
from linearizability.findings.waiting import await_true
from linearizability.targets import TargetError, open_target
from linearizability.targets.cluster import ClusterTarget
from reference.protocol.errors import ErrorCode, name_of

WITHIN_S = 60.0
STANDS_STILL_S = 2.2
"""A leader sends BeginQuorumEpoch each second, and waits two seconds for the response."""
ENDS_WITHIN_S = 10.0
ATTEMPTS = 3
"""On a busy machine the response may come after the leader's timeout."""


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Reproduce the finding. Errors: TargetError, WrongTarget."""
    seen: list[str] = []
    for attempt in range(ATTEMPTS):
        shown, lines = _attempt(spec, folder / str(attempt))
        seen += lines
        if shown is not False:
            return shown, seen
    return False, seen


def _attempt(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    with open_target(spec, folder=folder) as target:
        if not isinstance(target, ClusterTarget) or target.size != 3:
            raise TargetError(f"{spec} is no cluster of three nodes that is started here")
        if not await_true(lambda: quorum.keep_voters_in_the_log(target), WITHIN_S):
            return None, [f"{quorum.FEATURE} was not raised to {quorum.LEVEL}: voters cannot be removed"]
        if not await_true(lambda: quorum.knows_what_is_committed(target), WITHIN_S):
            return None, ["no node leads the quorum"]
        leader, voters = quorum.leader(target), quorum.voters(target)
        removed = next(node for node in sorted(voters) if node != leader)
        stood_s, said = _remove_as_it_stands_still(target, leader, removed, voters[removed])
        seen = [
            f"voter {removed} stood still for {stood_s:.1f} s; leader {leader} was asked to remove it meanwhile: {said}"
        ]
        if said != name_of(ErrorCode.NONE):
            return None, [*seen, "the voter was not removed"]
        ended = await_true(lambda: not target.running(leader), ENDS_WITHIN_S)
        log = target.member(leader).process.log.read_text(errors="replace").splitlines()
        faults = [number for number, line in enumerate(log) if "fatal fault" in line]
        seen += [line for number in faults[:1] for line in log[number : number + 2]]
        return ended, [*seen, f"leader {leader} has {'ended' if ended else 'not ended'}"]


def _remove_as_it_stands_still(target: ClusterTarget, leader: int, removed: int, directory: UUID) -> tuple[float, str]:
    """Pause a voter until a BeginQuorumEpoch waits for it, remove it, and resume it. Returns the seconds of the pause, and
    the error."""
    began = time.monotonic()
    target.pause(removed)
    try:
        time.sleep(STANDS_STILL_S)
        said = quorum.remove(target, leader, removed, directory)
    finally:
        target.resume(removed)
    return time.monotonic() - began, said
