"""Partitions and the metadata quorum as the cluster describes them, and the log as each node serves it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

from conformance.answers import only
from conformance.batches import next_offset, without_rest
from conformance.broker import Broker
from conformance.cluster_state import State
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest

UNNAMED = -1
"""The leader and the epoch in a response that names none."""
SERVED_WITHIN_S = 60.0
"""How long a follower may take to serve its leader's records on a busy machine."""


class DescribedCluster(ABC):
    """The nodes of a target, queried through any of them."""

    broker: Broker

    @abstractmethod
    def address(self, node: int) -> tuple[str, int]:
        """The address of a node for clients."""

    @abstractmethod
    def state(self, topic: Topic, via: int | None = None) -> State:
        """The state of partition 0, from the Metadata of node `via`, or of the default one."""

    def described(self, topic: Topic) -> Any:
        """Partition 0 as DescribeTopicPartitions reports it, eligible leader replicas included."""
        asked = DescribeTopicPartitionsRequest.TopicRequest(name=topic.name)
        answer = self.broker.call(DescribeTopicPartitionsRequest(topics=[asked]))
        return only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")

    def quorum(self) -> Any:
        """The partition of `__cluster_metadata`, from DescribeQuorum."""
        partition = DescribeQuorumRequest.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[partition])
        answer = self.broker.call(DescribeQuorumRequest(topics=[topic]))
        self.broker.expect_error(answer.error_code, ErrorCode.NONE, what="DescribeQuorum")
        return only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")

    def log_from(self, topic: Topic, node: int, until: int) -> bytes:
        """Wait until this node serves the log up to an offset, and return its bytes. A follower serves up to its high
        watermark."""

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

    def expect_leader_named(self, topic: Topic, reported: tuple[int, int], endpoints: Collection[Any]) -> None:
        """Require that a response names the leader of partition 0, its epoch and its address (KIP-951).

        Tolerates what it leaves out: clients then ask for metadata, as before the KIP (Metadata.updatePartitionLeadership).
        """
        if UNNAMED in reported:
            self.broker.tolerate(f"the leader and epoch that are named are {reported}")
            return
        state = self.state(topic)
        self.broker.expect_equal("the leader and epoch that are named", reported, (state.leader, state.epoch))
        places = {one.node_id: (one.host, one.port) for one in endpoints}
        if state.leader in places:
            self.broker.expect_equal("where the leader is", places[state.leader], self.address(state.leader))
        else:
            self.broker.tolerate(f"no address of the leader {state.leader} is given")
