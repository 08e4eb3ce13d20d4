"""DescribeTopicPartitions returns at most max.request.partition.size.limit partitions per page."""

from __future__ import annotations

from typing import Any

import pytest

from reference.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from tests.node.three_nodes import IDS, ThreeNodes


@pytest.mark.parametrize(("limit", "counted"), [("2", 2), ("2000", 5)])
def test_a_page_has_as_many_as_the_file_says(limit: str, counted: int) -> None:
    nodes = ThreeNodes(**{"max.request.partition.size.limit": limit})
    nodes.create("t", 5)
    asked = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")])
    answer: Any = nodes.call(IDS[0], asked)
    assert len(answer.topics[0].partitions) == counted
    assert (answer.next_cursor is not None) == (counted == 2)


def test_a_topic_that_does_not_exist_is_on_the_page_after_a_full_one() -> None:
    """As in Kafka 4.3.1 the cursor names the topic; otherwise the client would get no result for it."""
    nodes = ThreeNodes()
    nodes.create("t", 2)
    names = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in ("t", "u")]
    answer: Any = nodes.call(IDS[0], DescribeTopicPartitionsRequest(topics=names, response_partition_limit=2))
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("u", 0)
    answer = nodes.call(IDS[0], DescribeTopicPartitionsRequest(topics=names))
    with_operations = {each.name: each.topic_authorized_operations for each in answer.topics}
    assert with_operations["u"] == with_operations["t"] > 0
