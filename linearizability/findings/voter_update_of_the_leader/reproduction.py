"""One UpdateRaftVoter that names the leader of the metadata quorum, sent to it."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import UUID

from linearizability.targets import TargetError, open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.wire import Wire, WireError
from reference.protocol.errors import name_of
from reference.protocol.messages.update_raft_voter import UpdateRaftVoterRequest

ENDS_WITHIN_S = 20.0
UNKNOWN_EPOCH = 0


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Reproduce the finding. Errors: TargetError, WrongTarget."""
    seen: list[str] = []
    with open_target(spec, folder=folder) as target:
        if not isinstance(target, ClusterTarget) or target.size != 1:
            raise TargetError(f"{spec} is no cluster of one node that is started here")
        (member,) = target.members
        request = UpdateRaftVoterRequest(
            cluster_id=target.cluster_id,
            current_leader_epoch=UNKNOWN_EPOCH,
            voter_id=member.node.id,
            voter_directory_id=UUID(int=1),
            listeners=[_listener()],
            k_raft_version_feature=_levels(),
        )
        try:
            with Wire.connect(member.node.host, member.controller_port) as wire:
                if UpdateRaftVoterRequest.KEY not in wire.versions():
                    return None, ["UpdateRaftVoter is not served"]
                request.current_leader_epoch = wire.call(request).current_leader.leader_epoch
                seen.append(f"the leader's epoch is {request.current_leader_epoch}")
                seen.append(f"UpdateRaftVoter of the leader itself: {name_of(wire.call(request).error_code)}")
        except WireError as error:
            seen.append(str(error))
        until = time.monotonic() + ENDS_WITHIN_S
        while target.running(member.node.id) and time.monotonic() < until:
            time.sleep(0.2)
        ended = not target.running(member.node.id)
        fatal = [line for line in member.process.log.read_text(errors="replace").splitlines() if "fatal fault" in line]
        seen += [*fatal[:1], f"the process has {'ended' if ended else 'not ended'}"]
        return ended, seen


def _listener() -> UpdateRaftVoterRequest.Listener:
    return UpdateRaftVoterRequest.Listener(name="CONTROLLER", host="127.0.0.1", port=1)


def _levels() -> UpdateRaftVoterRequest.KRaftVersionFeature:
    return UpdateRaftVoterRequest.KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
