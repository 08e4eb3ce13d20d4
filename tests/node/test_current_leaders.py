"""A refused client learns the leader and its address, in the versions that have the fields (KIP-951)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reference.node.current_leaders import name_leaders_of_fetch, name_leaders_of_produce
from reference.node.requests import Client, Request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchResponse
from reference.protocol.messages.produce import ProduceResponse

PLACES = [
    SimpleNamespace(listener="INTERNAL", host="i", port=1),
    SimpleNamespace(listener="PLAINTEXT", host="p", port=2),
]
BROKERS = {
    1: SimpleNamespace(rack="a", fenced=False, endpoints=PLACES),
    2: SimpleNamespace(rack=None, fenced=True, endpoints=PLACES),
}
LEADERS = {0: (1, 7), 1: (2, 8), 2: (1, 9)}
"""Partition -> leader and its epoch; the broker does not know partition 3."""


def partition(topic: str, index: int) -> Any:
    leader = LEADERS.get(index) if topic == "t" else None
    return leader and SimpleNamespace(leader=leader[0], leader_epoch=leader[1])


IMAGE: Any = SimpleNamespace(brokers=BROKERS, partition=partition, topic_name=lambda topic_id: "t")


def request(version: int) -> Request:
    return Request(Client(1, "127.0.0.1", "PLAINTEXT"), 0, version, 1, None)


@pytest.mark.parametrize("kind", ["produce", "fetch"])
@pytest.mark.parametrize(
    ("error", "named"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, [(1, 7), (2, 8), (1, 9), (-1, -1)]),
        (ErrorCode.KAFKA_STORAGE_ERROR, [(-1, -1)] * 4),
    ],
)
def test_leaders_are_named_and_those_alive_have_an_address(kind: str, error: ErrorCode, named: list[Any]) -> None:
    def response_of(version: int) -> tuple[Any, list[Any]]:
        if kind == "produce":
            results: list[Any] = [ProduceResponse.PartitionProduceResponse(index=i, error_code=error) for i in range(4)]
            topic: Any = ProduceResponse.TopicProduceResponse(name="t", partition_responses=results)
            response: Any = ProduceResponse(responses=[topic])
            name_leaders_of_produce(IMAGE, request(version), response)
        else:
            results = [FetchResponse.PartitionData(partition_index=i, error_code=error) for i in range(4)]
            response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=results)])
            name_leaders_of_fetch(IMAGE, request(version), response)
        return response, [(each.current_leader.leader_id, each.current_leader.leader_epoch) for each in results]

    response, found = response_of({"produce": 10, "fetch": 16}[kind])
    assert found == named
    alive = [(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
    assert alive == ([(1, "p", 2, "a")] if error == ErrorCode.NOT_LEADER_OR_FOLLOWER else [])
    response, found = response_of({"produce": 9, "fetch": 15}[kind])
    assert found == [(-1, -1)] * 4 and response.node_endpoints == []


def test_a_fenced_epoch_names_the_leader_in_fetch_alone() -> None:
    fenced = ErrorCode.FENCED_LEADER_EPOCH
    one = ProduceResponse.PartitionProduceResponse(index=0, error_code=fenced)
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[one])
    name_leaders_of_produce(IMAGE, request(13), ProduceResponse(responses=[topic]))
    assert one.current_leader.leader_id == -1
    other = FetchResponse.PartitionData(partition_index=0, error_code=fenced)
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[other])])
    name_leaders_of_fetch(IMAGE, request(17), response)
    assert other.current_leader.leader_id == 1
