"""One broker beside a ZooKeeper that answers at once, and a controller whose requests a test makes."""

from __future__ import annotations

import random
import uuid
from typing import Any

from linearizability.simulation.znode_tree import ZnodeTree
from reference.controller.image import Endpoint
from reference.node.effects import Respond, Send
from reference.node.identity import Identity
from reference.node.zookeeper.node import ZooKeeperNode
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.update_metadata import UpdateMetadataRequest
from reference.protocol.primitives import BrokerEpoch, LeaderEpoch, NodeId
from reference.protocol.schema import Message
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.simulated_disk import SimulatedDisk
from reference.zookeeper import znodes
from reference.zookeeper.operations import Answered, AskZooKeeper, Create, OpenSession, SessionConnected, Watched
from tests.node.three_nodes import FOLDER, NOW, frame_of

NODE, KAFKAS, THIRD = NodeId(1), NodeId(2), NodeId(3)
"""The broker, one that is the controller, and one more."""
SESSION, OTHER, CLIENT = 1, 2, 7


def new_tree() -> ZnodeTree:
    """A ZooKeeper in which the other broker is the controller."""
    tree = ZnodeTree()
    for path in ("/brokers", znodes.TOPICS):
        tree.carry_out(Create(path, b""), OTHER)
    tree.carry_out(Create(znodes.CONTROLLER, znodes.encode_controller(KAFKAS, NOW), ephemeral=True), OTHER)
    return tree


class Broker:
    """A broker, beside a ZooKeeper that answers at once."""

    def __init__(self, tree: ZnodeTree) -> None:
        self.tree, self.now = tree, NOW
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
        self.sent: list[Send] = []
        """Requests to other brokers."""
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
                elif isinstance(effect, Send):
                    self.sent.append(effect)

    def put(self, body: Message, version: int, client_id: str = "test") -> None:
        """A client's request."""
        self.node.receive(CLIENT, encode_request(body.KEY, version, 1, client_id, body)[4:], self.now)
        self.settle()

    def ask(self, body: Message, version: int) -> Any:
        """A client's request, and its answer."""
        self.put(body, version)
        return decode_response(body.KEY, version, frame_of(self.answers.pop()))[1]


def metadata(node: ZooKeeperNode, *topics: UpdateMetadataRequest.UpdateMetadataTopicState) -> UpdateMetadataRequest:
    """The controller's list of live brokers, and these topics."""
    brokers = [
        UpdateMetadataRequest.UpdateMetadataBroker(
            id=each,
            endpoints=[
                UpdateMetadataRequest.UpdateMetadataEndpoint(port=9092, host=f"node-{each}", listener="PLAINTEXT")
            ],
        )
        for each in (NODE, KAFKAS, THIRD)
    ]
    return UpdateMetadataRequest(
        controller_id=KAFKAS,
        controller_epoch=LeaderEpoch(1),
        broker_epoch=BrokerEpoch(node.broker_epoch),
        live_brokers=brokers,
        topic_states=[*topics],
    )


def change_settings(broker: Broker, **values: str) -> None:
    """Another client writes the broker's settings, and the broker learns of it."""
    path = znodes.config_path(znodes.BROKER_RESOURCE, str(NODE))
    config = znodes.encode_config({name.replace("_", "."): value for name, value in values.items()})
    broker.tree.carry_out(Create(path, config), OTHER)
    change = znodes.encode_config_change(f"brokers/{NODE}")
    broker.tree.carry_out(Create(znodes.CONFIG_CHANGE, change, sequential=True), OTHER)
    broker.node.zookeeper_event(Watched(znodes.CONFIG_CHANGES), broker.now)
    broker.settle()
