"""Of two voters the leader is removed while the other one is down, and falls; then both are started again (KIP-853)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import UUID

from linearizability.findings.waiting import await_true
from linearizability.targets import TargetError, open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.wire import Wire, WireError
from linearizability.workload.cluster import METADATA_TOPIC
from reference.protocol.errors import name_of
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.update_features import UpdateFeaturesRequest
from reference.protocol.primitives import NO_NODE, NO_UUID

FEATURE, LEVEL, UPGRADE = "kraft.version", 1, 1
REMOVED_WITHIN_S = 1.0
"""A leader appends the new voters as it receives the request; this is less than it leads on without the other voter."""
WAITS = "no answer yet"
WITHIN_S = 60.0
"""Within this time two voters that are there elect a leader; their election timeouts are of one or two seconds."""


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Errors: TargetError, WrongTarget."""
    seen: list[str] = []
    with open_target(spec, folder=folder) as target:
        if not isinstance(target, ClusterTarget) or target.size != 2:
            raise TargetError(f"{spec} is no cluster of two nodes that is started here")
        if not await_true(lambda: _keep_voters_in_the_log(target), WITHIN_S):
            return None, [f"{FEATURE} was not raised to {LEVEL}: voters cannot be removed"]
        _end_and_start(target, seen)
        if not await_true(lambda: _knows_what_is_committed(target), WITHIN_S):
            return None, [*seen, "so nothing can be said of a removal"]
        leader = _leader(target)
        (other,) = {node.id for node in target.nodes} - {leader}
        directory = _voters(target)[leader]
        target.kill(other)
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=leader, voter_directory_id=directory)
        said = _asked_to_leave(target, leader, request)
        seen.append(f"node {other} is killed, leader {leader} is asked to remove itself: {said}")
        if said != WAITS:
            return None, [*seen, "the leader was not removed"]
        if _end_and_start(target, seen):
            return False, seen
        silent = [node.id for node in target.nodes if _answer(target, node.id) is None]
        if silent:
            return None, [*seen, f"but no answer came from {silent}: a node that does not run leads nothing either"]
        return True, seen


def _asked_to_leave(target: ClusterTarget, leader: int, request: RemoveRaftVoterRequest) -> str:
    """What came of the request: WAITS where it was received, and waits for the other voter."""
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
    """Kill what runs, start both nodes, and wait for a leader."""
    for node in target.nodes:
        if target.running(node.id):
            target.kill(node.id)
    for node in target.nodes:
        target.restart(node.id, wait=False)
    began = time.monotonic()
    is_led = await_true(lambda: _leader(target) != NO_NODE, WITHIN_S)
    waited = f"{time.monotonic() - began:.0f} s after both were started again"
    seen.append(f"node {_leader(target)} leads {waited}" if is_led else f"no node leads {waited}")
    return is_led


def _keep_voters_in_the_log(target: ClusterTarget) -> bool:
    """Raise kraft.version, and say whether the voters are in the log."""
    voters = _voters(target)
    if voters and NO_UUID not in voters.values():
        return True
    change = UpdateFeaturesRequest.FeatureUpdateKey(feature=FEATURE, max_version_level=LEVEL, upgrade_type=UPGRADE)
    _ask(target, _leader(target), UpdateFeaturesRequest(feature_updates=[change], timeout_ms=10_000))
    return False


def _leader(target: ClusterTarget) -> int:
    """The node that says that it leads; NO_NODE where none does."""
    return next((node.id for node in target.nodes if _described(target, node.id) is not None), NO_NODE)


def _knows_what_is_committed(target: ClusterTarget) -> bool:
    """Whether a node leads and has a high watermark: until then Kafka refuses to change the voters (REQUEST_TIMED_OUT)."""
    found = _described(target, _leader(target))
    return found is not None and found.high_watermark >= 0


def _voters(target: ClusterTarget) -> dict[int, UUID]:
    """The voters and their directories, as the leader describes them."""
    found = _described(target, _leader(target))
    return {} if found is None else {each.replica_id: each.replica_directory_id for each in found.current_voters}


def _described(target: ClusterTarget, node: int) -> Any:
    """What a node that leads the quorum says of it; None where it does not lead, or does not answer."""
    answer = _answer(target, node)
    if answer is None or not answer.topics or answer.topics[0].partitions[0].error_code:
        return None
    return answer.topics[0].partitions[0]


def _answer(target: ClusterTarget, node: int) -> Any:
    """What a node answers when it is asked for its quorum, an error too; None where there is no answer."""
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return _ask(target, node, DescribeQuorumRequest(topics=[topic]))


def _ask(target: ClusterTarget, node: int, request: Any) -> Any:
    """The answer of a node's controller; None where there is none."""
    if node == NO_NODE or not target.running(node):
        return None
    member = target.member(node)
    try:
        with Wire.connect(member.node.host, member.controller_port) as wire:
            return wire.call(request)
    except (WireError, OSError):
        return None
