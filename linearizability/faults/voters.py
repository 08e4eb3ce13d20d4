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
ADDED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER})
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
        if world.former_voters:
            for done in list(world.former_voters.values()):
                self.end(world, done)
            return None
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
        node = world.choose(injection.who, injection.pick)
        if node is None or node not in voters or len(voters) < FEWEST:
            return None
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node, voter_directory_id=voters[node])
        answer = wish(world, request)
        if answer is not None and answer.error_code not in REMOVED:
            return None
        # without an answer it may be removed, and is added again like one that was
        listeners = next(([_fields(at) for at in each.listeners] for each in quorum.nodes if each.node_id == node), [])
        return {"node": node, "directory": str(voters[node]), "listeners": listeners}

    def end(self, world: World, done: dict[str, Any]) -> None:
        """Add the voter. Where that fails, the next injection of this fault tries again."""
        listeners = [AddRaftVoterRequest.Listener(**each) for each in done["listeners"]]
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=TIMEOUT_MS,
            voter_id=done["node"],
            voter_directory_id=UUID(done["directory"]),
            listeners=listeners,
        )
        answer = wish(world, request)
        world.former_voters[done["node"]] = done
        if answer is not None and answer.error_code in ADDED:
            del world.former_voters[done["node"]]


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
