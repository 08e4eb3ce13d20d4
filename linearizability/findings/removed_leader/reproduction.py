"""Of two voters the leader is removed while the other one is down, and falls; then both are started again (KIP-853)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

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
WITHIN_S = 60.0
"""Within this time two voters that are there elect a leader; their election timeouts are of one or two seconds."""


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Errors: TargetError, WrongTarget."""
    seen: list[str] = []
    with open_target(spec, folder=folder) as target:
        if not isinstance(target, ClusterTarget) or target.size != 2:
            raise TargetError(f"{spec} is no cluster of two nodes that is started here")
        if not _await(lambda: _keep_voters_in_the_log(target), WITHIN_S):
            return None, [f"{FEATURE} was not raised to {LEVEL}: voters cannot be removed"]
        _end_and_start(target, seen)
        if _leader(target) == NO_NODE:
            return None, [*seen, "so nothing can be said of a removal"]
        leader = _leader(target)
        (other,) = {node.id for node in target.nodes} - {leader}
        directory = _voters(target)[leader]
        target.kill(other)
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=leader, voter_directory_id=directory)
        said = _ask(target, leader, request, REMOVED_WITHIN_S)
        answered = "no answer" if said is None else name_of(said.error_code)
        seen.append(f"node {other} is killed, leader {leader} is asked to remove itself: {answered}")
        if said is not None:
            return None, [*seen, "the leader was not removed"]
        return not _end_and_start(target, seen), seen


def _end_and_start(target: ClusterTarget, seen: list[str]) -> bool:
    """Kill what runs, start both nodes, and wait for a leader."""
    for node in target.nodes:
        if target.running(node.id):
            target.kill(node.id)
    for node in target.nodes:
        target.restart(node.id, wait=False)
    began = time.monotonic()
    is_led = _await(lambda: _leader(target) != NO_NODE, WITHIN_S)
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


def _voters(target: ClusterTarget) -> dict[int, UUID]:
    """The voters and their directories, as the leader describes them."""
    found = _described(target, _leader(target))
    return {} if found is None else {each.replica_id: each.replica_directory_id for each in found.current_voters}


def _described(target: ClusterTarget, node: int) -> Any:
    """What a node that leads the quorum says of it; None where it does not lead, or does not answer."""
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    answer = _ask(target, node, DescribeQuorumRequest(topics=[topic]))
    if answer is None or not answer.topics or answer.topics[0].partitions[0].error_code:
        return None
    return answer.topics[0].partitions[0]


def _ask(target: ClusterTarget, node: int, request: Any, timeout_s: float = 10.0) -> Any:
    """The answer of a node's controller; None where there is none."""
    if node == NO_NODE or not target.running(node):
        return None
    member = target.member(node)
    try:
        with Wire.connect(member.node.host, member.controller_port, timeout_s=timeout_s) as wire:
            return wire.call(request)
    except (WireError, OSError):
        return None


def _await(condition: Callable[[], bool], within_s: float) -> bool:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.5)
    return False
