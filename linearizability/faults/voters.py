"""An operator takes a controller out of the metadata quorum, and puts it back (KIP-853).

The voters must be in the metadata log. Where they are in the configuration, kraft.version is raised to 1 first, which cannot be
taken back: so the fault is only injected where it is asked for by name.

A quorum without a leader answers no request, and other faults take its leader away. So the operator works in a thread of its own
and asks until the quorum has answered, also after the injection's end: then the node comes back as soon as it is out. What took
effect is counted apart from what was injected (`World.effects`), by answers of the quorum's leader alone.
"""

import threading
from collections.abc import Mapping, Set
from functools import partial
from typing import Any
from uuid import UUID

from linearizability.faults.background import Background
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
from reference.protocol.schema import Message

FEATURE, LEVEL, UPGRADE = "kraft.version", 1, 1
TIMEOUT_MS = int(ASK_TIMEOUT_S * 1000)
EVERY_S = 0.2
OUT = frozenset({ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND})
"""VOTER_NOT_FOUND: an earlier request, whose answer was lost, removed it. A leader gives either for committed voters only."""
BACK = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER})
FEWEST = 3
"""Of two voters none is taken out: the other would decide alone, and a quorum of one is no quorum of several."""
REMOVED, ADDED = "voters removed", "voters added again"


@register
class Voters(Fault):
    """A controller is no voter for a while; it goes on to follow the metadata log."""

    name = "voters"
    nodes = 3
    aims = ("controller", "any")
    apis = (AddRaftVoterRequest,)
    only_by_name = True

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        world.effects.update({REMOVED: 0, ADDED: 0})
        voters = world.voters.keys() or voters_of(described(world)).keys()
        node = world.choose(injection.who, injection.pick)
        left = voters - world.unwanted_voters
        if node not in left or len(left) < FEWEST:
            return None
        world.unwanted_voters.add(node)
        if world.operator is None:
            world.operator = Background("the operator of the quorum", partial(_operate, world))
        return {"node": node}

    def end(self, world: World, done: dict[str, Any]) -> None:
        world.returning_voters.add(done["node"])


def _operate(world: World, stop: threading.Event) -> None:
    removed: set[int] = set()
    while not stop.is_set():
        step(world, removed)
        stop.wait(EVERY_S)


def step(world: World, removed: set[int]) -> None:
    """Request the changes of voters that are still needed. `removed` are the nodes whose removal the quorum has confirmed."""
    quorum = described(world)
    voters = voters_of(quorum)
    if NO_UUID in voters.values():
        change = UpdateFeaturesRequest.FeatureUpdateKey(feature=FEATURE, max_version_level=LEVEL, upgrade_type=UPGRADE)
        wish(world, UpdateFeaturesRequest(feature_updates=[change], timeout_ms=TIMEOUT_MS))
    elif voters:
        world.voters |= {each.node_id: _addition(each, voters) for each in quorum.nodes if each.node_id in voters}
        present = {*voters}
        _remove(world, present, removed)
        _add(world, present, removed)


def _remove(world: World, present: set[int], removed: set[int]) -> None:
    for node in sorted(world.unwanted_voters & world.voters.keys() - removed):
        if node in present and len(present) < FEWEST:
            continue
        world.missing_voters.add(node)  # before it is asked, for the answer may be lost
        directory = world.voters[node].voter_directory_id
        if _ask(world, RemoveRaftVoterRequest(cluster_id=None, voter_id=node, voter_directory_id=directory), OUT):
            present.discard(node)
            removed.add(node)
            _took_effect(world, REMOVED, node)


def _add(world: World, present: set[int], removed: set[int]) -> None:
    """Add missing voters again, also one that a delayed request has removed."""
    world.missing_voters |= world.voters.keys() - present
    back = world.returning_voters & removed
    world.unwanted_voters -= back
    world.returning_voters -= back
    for node in sorted(world.missing_voters - world.unwanted_voters):
        if _ask(world, world.voters[node], BACK):
            world.missing_voters.discard(node)
            if node in removed:
                removed.discard(node)
                _took_effect(world, ADDED, node)


def _took_effect(world: World, what: str, node: int) -> None:
    world.effects[what] += 1
    world.mark("note", text=f"{what}: node {node}", node=node)


def _ask(world: World, request: Message, done: Set[int]) -> bool:
    answer = wish(world, request)
    return answer is not None and answer.error_code in done


def described(world: World) -> Any:
    """The quorum's description by its leader; None where that does not answer."""
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    answer = wish(world, DescribeQuorumRequest(topics=[topic]))
    good = answer is not None and answer.topics and answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    return answer if good else None


def voters_of(quorum: Any) -> dict[int, UUID]:
    """Node -> its directory, of the voters; none where the quorum did not answer."""
    voters = quorum.topics[0].partitions[0].current_voters if quorum else ()
    return {each.replica_id: each.replica_directory_id for each in voters}


def _addition(node: Any, voters: Mapping[int, UUID]) -> AddRaftVoterRequest:
    """The request that would add a voter as it is now."""
    return AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=TIMEOUT_MS,
        voter_id=node.node_id,
        voter_directory_id=voters[node.node_id],
        listeners=[AddRaftVoterRequest.Listener(name=at.name, host=at.host, port=at.port) for at in node.listeners],
    )
