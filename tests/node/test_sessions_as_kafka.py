"""Fetch sessions as seen of Kafka 4.3.1: when a topic is deleted and created again, and with few slots."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from reference.protocol.errors import ErrorCode
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.primitives import NodeId
from tests.node.three_nodes import IDS, ThreeNodes


def fetched(nodes: ThreeNodes, leader: NodeId, topic: UUID | None, session: tuple[int, int]) -> Any:
    """The answer to a fetch of a session, which names the topic or nothing."""
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
    topics = [] if topic is None else [FetchRequest.FetchTopic(topic_id=topic, partitions=[partition])]
    id, epoch = session
    body = FetchRequest(max_bytes=1 << 20, session_id=id, session_epoch=epoch, topics=topics)
    answer: Any = nodes.call(leader, body)
    assert answer.error_code == ErrorCode.NONE
    return answer


def errors(answer: Any) -> list[int]:
    return [partition.error_code for topic in answer.responses for partition in topic.partitions]


def test_a_session_keeps_the_name_of_a_deleted_topic() -> None:
    nodes = ThreeNodes()
    nodes.create("t", 1)
    nodes.run_until(lambda: any(nodes.led(id, "t") for id in nodes.nodes))
    leader = next(id for id in nodes.nodes if nodes.led(id, "t"))
    image = nodes.nodes[leader].image
    topic = image.topics["t"].id
    began = fetched(nodes, leader, topic, (0, 0))
    assert errors(began) == [ErrorCode.NONE]
    nodes.call(leader, DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=20_000))
    nodes.run_until(lambda: "t" not in image.topics)
    assert errors(fetched(nodes, leader, None, (began.session_id, 1))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert errors(fetched(nodes, leader, topic, (0, -1))) == [ErrorCode.UNKNOWN_TOPIC_ID]
    nodes.create("t", 1)
    nodes.run_until(lambda: "t" in image.topics)
    assert errors(fetched(nodes, leader, None, (began.session_id, 2))) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert errors(fetched(nodes, leader, topic, (0, -1))) == [ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize(("slots", "has_sessions"), [("7", False), ("8", True)])
def test_there_are_no_sessions_with_fewer_slots_than_kafkas_cache_has_parts(slots: str, has_sessions: bool) -> None:
    nodes = ThreeNodes(**{"max.incremental.fetch.session.cache.slots": slots})
    answer: Any = nodes.call(IDS[0], FetchRequest(max_bytes=1 << 20, session_epoch=0, topics=[]))
    assert (answer.error_code, answer.session_id != 0) == (ErrorCode.NONE, has_sessions)
