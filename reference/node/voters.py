"""Who votes in the metadata quorum, and where they are found: controller.quorum.voters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from reference.protocol.messages.describe_quorum import DescribeQuorumResponse
from reference.protocol.primitives import NO_UUID, NodeId

Address = tuple[str, int]
Voters = Mapping[NodeId, Address]

QUORUM_LANE, QUORUM_FETCH_LANE = "quorum", "quorum-fetch"
QUORUM_LANES = frozenset({QUORUM_LANE, QUORUM_FETCH_LANE})
"""On these voters ask each other."""

FIRST_DESCRIBE_WITH_NODES = 2

_VOTER = re.compile(r"(\d+)@(\[[0-9a-fA-F:]+\]|[^:@]+):(\d+)")


def voters_of(properties: Mapping[str, str], node: NodeId) -> dict[NodeId, Address]:
    """The voters by id. Where none are named the node is its own quorum, and nobody needs its address.

    Errors: ValueError for what is no `ID@HOST:PORT`.
    """
    text = properties.get("controller.quorum.voters", "")
    found: dict[NodeId, Address] = {}
    for item in text.split(","):
        if item.strip():
            matched = _VOTER.fullmatch(item.strip())
            if matched is None:
                raise ValueError(f"'{item}' is no voter: ID@HOST:PORT is needed")
            found[int(matched[1])] = matched[2].strip("[]"), int(matched[3])
    return found or {node: ("127.0.0.1", 0)}


def describe_quorum(
    response: DescribeQuorumResponse, version: int, voters: Mapping[NodeId, Address], listener: str
) -> DescribeQuorumResponse:
    """What the leader knows of each member, as a version tells it: directories and voters' addresses from version 2 on."""
    if version < FIRST_DESCRIBE_WITH_NODES:
        for member in _members(response):
            member.replica_directory_id = NO_UUID
    else:
        response.nodes = [
            DescribeQuorumResponse.Node(
                node_id=voter, listeners=[DescribeQuorumResponse.Listener(name=listener, host=host, port=port)]
            )
            for voter, (host, port) in sorted(voters.items())
        ]
    return response


def _members(response: DescribeQuorumResponse) -> Iterable[DescribeQuorumResponse.ReplicaState]:
    for topic in response.topics:
        for partition in topic.partitions:
            yield from partition.current_voters
            yield from partition.observers
