"""What a cluster says of a partition's replicas and of its metadata quorum, and what each of its nodes serves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from conformance.answers import only
from conformance.batches import next_offset, without_rest
from conformance.broker import Broker
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest

SERVED_WITHIN_S = 60.0
"""How long a follower may take to serve what its leader has, on a machine that is busy."""


class DescribedCluster(ABC):
    """The nodes of a target, asked through any of them."""

    broker: Broker

    @abstractmethod
    def address(self, node: int) -> tuple[str, int]:
        """Where clients reach a node."""

    def described(self, topic: Topic) -> Any:
        """Partition 0 as DescribeTopicPartitions reports it, eligible leader replicas included."""
        asked = DescribeTopicPartitionsRequest.TopicRequest(name=topic.name)
        answer = self.broker.call(DescribeTopicPartitionsRequest(topics=[asked]))
        return only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")

    def quorum(self) -> Any:
        """The partition of the metadata's own topic, as DescribeQuorum reports it."""
        partition = DescribeQuorumRequest.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[partition])
        answer = self.broker.call(DescribeQuorumRequest(topics=[topic]))
        self.broker.expect_error(answer.error_code, ErrorCode.NONE, what="DescribeQuorum")
        return only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")

    def log_from(self, topic: Topic, node: int, until: int) -> bytes:
        """The log up to an offset as this very node serves it to consumers; a follower serves up to its own high watermark."""

        def served() -> bytes | None:
            data, offset = bytearray(), 0
            while offset < until:
                part = self.broker.fetch(topic, offset, to=self.broker.connection(self.address(node)))
                if part.error_code != ErrorCode.NONE or not part.records:
                    return None
                data += without_rest(bytes(part.records))
                offset = next_offset(bytes(part.records))
            return bytes(data)

        return self.broker.eventually(served, f"node {node} serves {until} records", within_s=SERVED_WITHIN_S)
