"""Adds the leader's id and endpoint to a partition's error, so that the client can find it (KIP-951, PRD-02, FET-12)."""

from __future__ import annotations

from collections.abc import Iterator

from reference.controller.image import MetadataImage
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchResponse
from reference.protocol.messages.produce import ProduceResponse
from reference.protocol.primitives import NO_EPOCH, NO_NODE, LeaderEpoch, NodeId, TopicName

FIRST_PRODUCE = 10
FIRST_FETCH = 16
"""The first versions whose responses have these fields."""
NOT_LEADING = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def name_leaders_of_produce(image: MetadataImage, request: Request, response: ProduceResponse) -> None:
    """Add the leader of each partition that is refused with NOT_LEADER_OR_FOLLOWER."""
    if request.version < FIRST_PRODUCE:
        return
    leaders: set[NodeId] = set()
    for topic in response.responses:
        for each in topic.partition_responses:
            if each.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                name = topic.name or image.topic_name(topic.topic_id)
                leader, epoch = _leader(image, name, each.index)
                each.current_leader = ProduceResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.add(leader)
    response.node_endpoints = [
        ProduceResponse.NodeEndpoint(node_id=leader, host=host, port=port, rack=rack)
        for leader, host, port, rack in _reached(image, request, leaders)
    ]


def name_leaders_of_fetch(
    image: MetadataImage, request: Request, response: FetchResponse, from_follower: bool = False
) -> None:
    """Add the leader of each partition that is refused with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH; endpoints for
    consumers only."""
    if request.version < FIRST_FETCH:
        return
    leaders: set[NodeId] = set()
    for topic in response.responses:
        for each in topic.partitions:
            if each.error_code in NOT_LEADING:
                leader, epoch = _leader(image, image.topic_name(topic.topic_id), each.partition_index)
                each.current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.add(leader)
    if from_follower:
        return
    response.node_endpoints = [
        FetchResponse.NodeEndpoint(node_id=leader, host=host, port=port, rack=rack)
        for leader, host, port, rack in _reached(image, request, leaders)
    ]


def _leader(image: MetadataImage, name: TopicName | None, index: int) -> tuple[NodeId, LeaderEpoch]:
    """Leader and leader epoch; both -1 for an unknown partition."""
    found = image.partition(name, index) if name else None
    return (found.leader, found.leader_epoch) if found else (NO_NODE, NO_EPOCH)


def _reached(
    image: MetadataImage, request: Request, leaders: set[NodeId]
) -> Iterator[tuple[NodeId, str, int, str | None]]:
    """Id, endpoint and rack of each unfenced leader, on the listener of the request."""
    for leader in sorted(leaders):
        broker = image.brokers.get(leader)
        for place in broker.endpoints if broker is not None and not broker.fenced else ():
            if place.listener == request.client.listener:
                yield leader, place.host, place.port, broker.rack if broker else None
