"""Requests to the nodes of a target about their metadata quorum, for the reproductions of findings."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from linearizability.findings.waiting import await_true
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.target import Node, Target, TargetError
from linearizability.targets.wire import Wire, WireError
from linearizability.workload.cluster import METADATA_TOPIC
from reference.protocol.errors import name_of
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.update_features import UpdateFeaturesRequest
from reference.protocol.primitives import NO_NODE, NO_UUID

LEADS_WITHIN_S = 30.0
ANSWERED_WITHIN_S = 10.0
NEW_VOTER, DIRECTORY = 9, UUID(int=5)
"""A voter that no node is."""
FEATURE, LEVEL, UPGRADE = "kraft.version", 1, 1


def several_nodes(target: Target) -> ClusterTarget:
    """Wait until a node leads, and return the target. Errors: TargetError where it is no cluster of several nodes, or none
    leads."""
    if not isinstance(target, ClusterTarget) or target.size < 2:
        raise TargetError(f"{target.spec} is no cluster of several nodes that is started here")
    if not await_true(lambda: leader(target) != NO_NODE, LEADS_WITHIN_S):
        raise TargetError(f"no node of {target.spec} leads the metadata quorum")
    return target


def keep_voters_in_the_log(target: ClusterTarget) -> bool:
    """Whether the voters are in the log; requests a higher kraft.version where they are not."""
    known = voters(target)
    if known and NO_UUID not in known.values():
        return True
    change = UpdateFeaturesRequest.FeatureUpdateKey(feature=FEATURE, max_version_level=LEVEL, upgrade_type=UPGRADE)
    ask(target, leader(target), UpdateFeaturesRequest(feature_updates=[change], timeout_ms=10_000))
    return False


def leader(target: ClusterTarget) -> int:
    """The first node that reports that it leads; NO_NODE where none does."""
    return next((node.id for node in target.nodes if described(target, node.id) is not None), NO_NODE)


def knows_what_is_committed(target: ClusterTarget) -> bool:
    """Whether a node leads and has a high watermark: until then Kafka refuses to change the voters (REQUEST_TIMED_OUT)."""
    found = described(target, leader(target))
    return found is not None and found.high_watermark >= 0


def voters(target: ClusterTarget) -> dict[int, UUID]:
    """Voter -> its directory id, from the leader's DescribeQuorum; empty without a leader."""
    found = described(target, leader(target))
    return {} if found is None else {each.replica_id: each.replica_directory_id for each in found.current_voters}


def described(target: ClusterTarget, node: int) -> Any:
    """The quorum's partition from a node's DescribeQuorum; None where the node does not lead, or does not answer."""
    found = answer(target, node)
    if found is None or not found.topics or found.topics[0].partitions[0].error_code:
        return None
    return found.topics[0].partitions[0]


def remove(target: ClusterTarget, leader: int, removed: int, directory: UUID) -> str:
    """Ask the leader to remove a voter, and return the name of the error."""
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=removed, voter_directory_id=directory)
    found = ask(target, leader, request)
    return "no answer" if found is None else name_of(found.error_code)


def add(broker: Node, name: str, host: str) -> str:
    """Ask a broker to add a voter that does not exist, with such a listener, and return the error."""
    listener = AddRaftVoterRequest.Listener(name=name, host=host, port=1)
    request = AddRaftVoterRequest(
        timeout_ms=1_000, voter_id=NEW_VOTER, voter_directory_id=DIRECTORY, listeners=[listener], cluster_id=None
    )
    try:
        with Wire.connect(broker.host, broker.port, timeout_s=ANSWERED_WITHIN_S) as wire:
            return name_of(wire.call(request).error_code)
    except (WireError, OSError) as error:
        return str(error)


def ended(target: ClusterTarget) -> list[int]:
    """The nodes whose processes have ended."""
    return [node.id for node in target.nodes if not target.running(node.id)]


def answer(target: ClusterTarget, node: int) -> Any:
    """A node's DescribeQuorum response, also an error; None where there is none."""
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return ask(target, node, DescribeQuorumRequest(topics=[topic]))


def ask(target: ClusterTarget, node: int, request: Any, within_s: float = 10.0) -> Any:
    """The response of a node's controller; None where there is none in time."""
    if node == NO_NODE or not target.running(node):
        return None
    member = target.member(node)
    try:
        with Wire.connect(member.node.host, member.controller_port, timeout_s=within_s) as wire:
            return wire.call(request)
    except (WireError, OSError):
        return None
