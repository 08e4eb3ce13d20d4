"""An operator takes a controller out of the metadata quorum, and puts it back (KIP-853).

The voters must be in the metadata log. Where they are in the configuration, kraft.version is raised to 1 first, which cannot be
taken back: so the fault is only injected where it is asked for by name.
"""

from typing import Any
from uuid import UUID

from linearizability.faults.fault import Fault, World, register
from linearizability.faults.injection import Injection
from linearizability.faults.operating import ASK_TIMEOUT_S, wish
from linearizability.workload.cluster import METADATA_TOPIC
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.update_features import UpdateFeaturesRequest
from reference.protocol.primitives import NO_UUID

FEATURE, LEVEL, UPGRADE = "kraft.version", 1, 1
TIMEOUT_MS = int(ASK_TIMEOUT_S * 1000)
REMOVED = frozenset({ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND})
"""VOTER_NOT_FOUND: the node was a voter a moment ago, so an earlier request, whose answer was lost, removed it."""
FEWEST = 3
"""Of two voters none is taken out: the other would decide alone, and a quorum of one is no quorum of several."""


@register
class Voters(Fault):
    """A controller is no voter for a while; it goes on to follow the metadata log."""

    name = "voters"
    nodes = 3
    aims = ("controller", "any")
    apis = (AddRaftVoterRequest,)
    only_by_name = True

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        quorum = described(world)
        if quorum is None:
            return None
        voters = {each.replica_id: each.replica_directory_id for each in quorum.topics[0].partitions[0].current_voters}
        if NO_UUID in voters.values():
            change = UpdateFeaturesRequest.FeatureUpdateKey(
                feature=FEATURE, max_version_level=LEVEL, upgrade_type=UPGRADE
            )
            wish(world, UpdateFeaturesRequest(feature_updates=[change], timeout_ms=TIMEOUT_MS))
            return None  # the next one finds the voters in the log
        for each in quorum.nodes:
            if each.node_id in voters:
                listeners = [_fields(at) for at in each.listeners]
                known = {"node": each.node_id, "directory": str(voters[each.node_id]), "listeners": listeners}
                world.voters[each.node_id] = known
        if missing := world.voters.keys() - voters.keys() - world.removed_voters:
            for node in missing:
                add(world, world.voters[node])
            return None
        node = world.choose(injection.who, injection.pick)
        if node is None or node not in voters or node not in world.voters or len(voters) < FEWEST:
            return None
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node, voter_directory_id=voters[node])
        answer = wish(world, request)
        if answer is not None and answer.error_code not in REMOVED:
            return None
        world.removed_voters.add(node)
        return world.voters[node]

    def end(self, world: World, done: dict[str, Any]) -> None:
        world.removed_voters.discard(done["node"])
        add(world, done)


def add(world: World, voter: dict[str, Any]) -> None:
    """Add a controller to the voters. Where that fails, the next injection of this fault finds the voter missing."""
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=TIMEOUT_MS,
        voter_id=voter["node"],
        voter_directory_id=UUID(voter["directory"]),
        listeners=[AddRaftVoterRequest.Listener(**each) for each in voter["listeners"]],
    )
    wish(world, request)


def described(world: World) -> Any:
    """What the leader of the quorum says of it; None where it does not answer."""
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    answer = wish(world, DescribeQuorumRequest(topics=[topic]))
    good = answer is not None and answer.topics and answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    return answer if good else None


def _fields(listener: Any) -> dict[str, Any]:
    """A listener as a history writes it."""
    return {"name": listener.name, "host": listener.host, "port": listener.port}
