"""By how many partitions a broker beside ZooKeeper divides groups and transactional ids: by as many as ZooKeeper has at its start.

Seen of Apache Kafka 3.9.2's source: KafkaServer.startup gives the coordinators `zkClient.getTopicPartitionCount(topic)`, or the
configured number. A new controller's first UpdateMetadata names the live brokers and no partition
(KafkaController.onControllerFailover): a broker that takes it has not learned of any topic.
"""

from __future__ import annotations

import uuid

import pytest

from reference.node.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from reference.protocol.messages.list_transactions import ListTransactionsRequest
from reference.protocol.messages.update_metadata import UpdateMetadataRequest
from reference.protocol.primitives import BrokerEpoch, LeaderEpoch, NodeId
from reference.zookeeper import znodes
from reference.zookeeper.operations import Create
from tests.zookeeper.one_broker import KAFKAS, NODE, OTHER, Broker, metadata, new_tree

TOPIC_ID = uuid.UUID(int=77)
COUNT = 3
"""Of partitions; the configured number is 50."""
Updated = UpdateMetadataRequest.UpdateMetadataPartitionState


def beside(topic: str, leader: NodeId) -> Broker:
    """A broker that starts where a topic of a coordinator has three partitions, and has taken the first metadata."""
    tree = new_tree()
    assignment = znodes.encode_assignment(znodes.Assignment({index: [leader] for index in range(COUNT)}, TOPIC_ID))
    tree.carry_out(Create(znodes.topic_path(topic), assignment), OTHER)
    broker = Broker(tree)
    assert broker.ask(metadata(broker.node), 8).error_code == ErrorCode.NONE
    return broker


def update(broker: Broker, topic: str, leader: NodeId) -> None:
    """The controller reports the topic to the broker."""
    states = [Updated(partition_index=index, leader=leader, replicas=[leader], isr=[leader]) for index in range(COUNT)]
    state = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=topic, topic_id=TOPIC_ID, partition_states=states)
    assert broker.ask(metadata(broker.node, state), 8).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("kind", "topic"), [(0, OFFSETS_TOPIC), (1, TRANSACTIONS_TOPIC)])
def test_the_number_is_zookeepers_though_the_first_metadata_have_no_partition(kind: int, topic: str) -> None:
    broker = beside(topic, KAFKAS)
    update(broker, topic, KAFKAS)
    for key in ("g0", "g1", "g2", "g3"):
        found = broker.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), 4).coordinators[0]
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, KAFKAS), partition_for(key, COUNT)


def test_a_role_that_comes_before_the_metadata_is_loaded() -> None:
    """A new controller sends LeaderAndIsr before the UpdateMetadata with partitions."""
    broker = beside(TRANSACTIONS_TOPIC, NODE)
    states = [
        LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=index, leader=NODE, leader_epoch=LeaderEpoch(1), replicas=[NODE], isr=[NODE]
        )
        for index in range(COUNT)
    ]
    role = LeaderAndIsrRequest(
        controller_id=KAFKAS,
        controller_epoch=LeaderEpoch(1),
        broker_epoch=BrokerEpoch(broker.node.broker_epoch),
        topic_states=[
            LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=TRANSACTIONS_TOPIC, topic_id=TOPIC_ID, partition_states=states
            )
        ],
    )
    assert broker.ask(role, 7).error_code == ErrorCode.NONE
    update(broker, TRANSACTIONS_TOPIC, NODE)
    assert broker.ask(ListTransactionsRequest(), 0).error_code == ErrorCode.NONE
