"""By how many partitions a broker beside ZooKeeper divides groups and transactional ids: by as many as ZooKeeper has at its start.

Seen of Apache Kafka 3.9.2's source: KafkaServer.startup gives the coordinators `zkClient.getTopicPartitionCount(topic)`, or the
configured number. A new controller's first UpdateMetadata names the live brokers and no partition
(KafkaController.onControllerFailover): a broker that takes it has not learned of any topic.
"""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from linearizability.simulation.znode_tree import ZnodeTree
from reference.controller.image import Endpoint
from reference.node.effects import Respond
from reference.node.identity import Identity
from reference.node.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from reference.node.zookeeper.node import ZooKeeperNode
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from reference.protocol.messages.list_transactions import ListTransactionsRequest
from reference.protocol.messages.update_metadata import UpdateMetadataRequest
from reference.protocol.primitives import BrokerEpoch, LeaderEpoch, NodeId
from reference.protocol.schema import Message
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.simulated_disk import SimulatedDisk
from reference.zookeeper import znodes
from reference.zookeeper.operations import Answered, AskZooKeeper, Create, OpenSession, SessionConnected
from tests.node.three_nodes import FOLDER, NOW, frame_of

NODE, KAFKAS = NodeId(1), NodeId(2)
"""The broker, and one that is the controller."""
SESSION, OTHER, CLIENT = 1, 2, 7
TOPIC_ID = uuid.UUID(int=77)
COUNT = 3
"""Of partitions; the configured number is 50."""
Updated = UpdateMetadataRequest.UpdateMetadataPartitionState


class Broker:
    """A broker, beside a ZooKeeper that answers at once."""

    def __init__(self, tree: ZnodeTree) -> None:
        self.tree = tree
        self.now = NOW
        disk = SimulatedDisk()
        disk.make_folder(FOLDER)
        identity = Identity(NODE, "simulated-cluster-id00", uuid.UUID(int=1), (Endpoint("PLAINTEXT", "node-1", 9092),))
        properties = {
            "zookeeper.connect": "zookeeper:2181",
            "inter.broker.protocol.version": "3.9",
            "listeners": "PLAINTEXT://node-1:9092",
            "log.index.size.max.bytes": "2048",
        }
        directory = LogDirectory(disk, FOLDER, id=uuid.UUID(int=4711))
        self.node = ZooKeeperNode(identity, properties, LogManager([directory]), random.Random(1), NOW)
        self.node.connected(CLIENT, "client", "PLAINTEXT")
        self.answers: list[Respond] = []
        self.settle()

    def settle(self) -> None:
        while effects := self.node.take_effects():
            for effect in effects:
                if isinstance(effect, OpenSession):
                    self.node.zookeeper_event(SessionConnected(SESSION), self.now)
                elif isinstance(effect, AskZooKeeper):
                    result = self.tree.carry_out(effect.operation, SESSION)
                    self.node.zookeeper_event(Answered(effect.number, result), self.now)
                elif isinstance(effect, Respond):
                    self.answers.append(effect)

    def ask(self, body: Message, version: int) -> Any:
        self.node.receive(CLIENT, encode_request(body.KEY, version, 1, "test", body)[4:], self.now)
        self.settle()
        return decode_response(body.KEY, version, frame_of(self.answers.pop()))[1]


def metadata(node: ZooKeeperNode, *topics: UpdateMetadataRequest.UpdateMetadataTopicState) -> UpdateMetadataRequest:
    brokers = [
        UpdateMetadataRequest.UpdateMetadataBroker(
            id=each,
            endpoints=[
                UpdateMetadataRequest.UpdateMetadataEndpoint(port=9092, host=f"node-{each}", listener="PLAINTEXT")
            ],
        )
        for each in (NODE, KAFKAS)
    ]
    return UpdateMetadataRequest(
        controller_id=KAFKAS,
        controller_epoch=LeaderEpoch(1),
        broker_epoch=BrokerEpoch(node.broker_epoch),
        live_brokers=brokers,
        topic_states=[*topics],
    )


def beside(topic: str, leader: NodeId) -> Broker:
    """A broker that starts where a topic of a coordinator has three partitions, and has taken the first metadata."""
    tree = ZnodeTree()
    for path in ("/brokers", znodes.TOPICS):
        tree.carry_out(Create(path, b""), OTHER)
    assignment = znodes.encode_assignment(znodes.Assignment({index: [leader] for index in range(COUNT)}, TOPIC_ID))
    tree.carry_out(Create(znodes.topic_path(topic), assignment), OTHER)
    tree.carry_out(Create(znodes.CONTROLLER, znodes.encode_controller(KAFKAS, NOW), ephemeral=True), OTHER)
    broker = Broker(tree)
    assert broker.ask(metadata(broker.node), 8).error_code == ErrorCode.NONE
    return broker


def update(broker: Broker, topic: str, leader: NodeId) -> None:
    """The controller tells the broker of the topic."""
    states = [Updated(partition_index=index, leader=leader, replicas=[leader], isr=[leader]) for index in range(COUNT)]
    told = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=topic, topic_id=TOPIC_ID, partition_states=states)
    assert broker.ask(metadata(broker.node, told), 8).error_code == ErrorCode.NONE


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
