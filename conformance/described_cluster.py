"""What a cluster says of a partition's replicas and of its metadata quorum, beside Metadata."""

from __future__ import annotations

from typing import Any

from conformance.answers import only
from conformance.broker import Broker
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest


class DescribedCluster:
    """The nodes of a target, asked through any of them."""

    broker: Broker

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
