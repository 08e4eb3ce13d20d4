"""The controller: what it learns while it reads, the leader epochs that it begins, and the order of what it sends."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from reference.controller.configs import Configuration
from reference.controller.image import Endpoint, MetadataImage
from reference.controller.producer_ids import allocate_producer_ids
from reference.node.active_controller import Asked
from reference.node.identity import Identity
from reference.node.zookeeper.apis import DECIDED
from reference.node.zookeeper.controller import ZooKeeperController
from reference.node.zookeeper.controller_requests import ControllerRequests
from reference.node.zookeeper.writer import Writer
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from reference.protocol.messages.alter_partition import AlterPartitionRequest
from reference.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from reference.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from reference.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from reference.protocol.primitives import LeaderEpoch, NodeId, ProducerId
from reference.zookeeper import znodes
from reference.zookeeper.operations import (
    ConnectionLost,
    Delete,
    GetChildren,
    GetData,
    Multi,
    SessionConnected,
    SessionExpired,
    SetData,
    ZnodeVersion,
)
from tests.zookeeper.local import NOW, OTHER, OWN, LocalZooKeeper, nodes

NODE = NodeId(1)
TOPIC_ID = UUID(int=7, version=4)
ANSWERS = {
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    StopReplicaRequest: StopReplicaResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
}


class Alone:
    """Broker 1's controller, beside a ZooKeeper; brokers answer each request at once."""

    def __init__(self) -> None:
        self.zookeeper = LocalZooKeeper()
        self.sent: list[tuple[int, Any]] = []
        self.logged: list[str] = []
        image = MetadataImage()
        self.controller = ZooKeeperController(
            Writer(NODE, image, self.zookeeper.session),
            Configuration(NODE, {}, image),
            Identity(NODE, "cluster", UUID(int=1), ()),
            random.Random(0),
            DECIDED,
            ControllerRequests(NODE, image, self._ask, lambda level, text: self.logged.append(text)),
            None,
        )
        for path in znodes.PERSISTENT:
            self.zookeeper.create(path)
        self.zookeeper.create(znodes.CONTROLLER_EPOCH, b"1")
        self.register(1)

    def register(self, broker: int) -> None:
        endpoints = (Endpoint("PLAINTEXT", "localhost", 9000 + broker, 0),)
        data = znodes.encode_registration(znodes.Registration(endpoints, None), NOW)
        self.zookeeper.create(znodes.broker_path(NodeId(broker)), data, session=OTHER + broker)

    def end(self, broker: int) -> None:
        self.zookeeper.tree.carry_out(Delete(znodes.broker_path(NodeId(broker))), OTHER)
        self.zookeeper._fire()

    def win(self) -> None:
        """The election is over; nothing is read yet."""
        self.controller.won(LeaderEpoch(1), ZnodeVersion(0), True, NOW)

    def win_again(self) -> None:
        """In the same epoch, over another connection."""
        self.zookeeper.session.connections += 1
        self.controller.won(LeaderEpoch(1), ZnodeVersion(0), False, NOW)

    def settle(self) -> None:
        self.zookeeper.settle()
        self.controller.requests.send(NOW)

    def make_topic(self, isr: list[int], leader: int = 1) -> None:
        assignment = znodes.Assignment({0: nodes(1, 2, 3)}, TOPIC_ID, {}, {})
        self.zookeeper.create(znodes.topic_path("t"), znodes.encode_assignment(assignment))
        state = b'{"controller_epoch":1,"leader":%d,"version":1,"leader_epoch":5,"isr":%s}'
        self.zookeeper.create(znodes.state_path("t", 0), state % (leader, str(isr).encode()))

    def data(self) -> bytes:
        found = self.zookeeper.tree.find(znodes.state_path("t", 0))
        assert found is not None
        return found.data

    def state(self) -> znodes.State:
        return znodes.decode_state("", self.data())

    def _ask(self, broker: int, purpose: str, body: Any, answered: Any, now: int) -> None:
        self.sent.append((broker, body))
        answered(ANSWERS[type(body)](), now)


def test_a_broker_that_registers_while_a_new_controller_reads_is_seen() -> None:
    alone = Alone()
    alone.make_topic([1])
    alone.win()
    while alone.zookeeper.step() != GetData(znodes.broker_path(NODE)):
        pass
    alone.register(2)
    alone.settle()
    assert sorted(alone.controller.image.brokers) == [1, 2]


def test_a_topic_that_others_make_while_a_new_controller_reads_is_seen() -> None:
    alone = Alone()
    alone.make_topic([1])
    alone.win()
    while alone.zookeeper.step() != GetChildren(znodes.TOPICS, watch=True):
        pass
    assignment = znodes.Assignment({0: [NODE]}, UUID(int=9, version=4), {}, {})
    alone.zookeeper.create(znodes.topic_path("later"), znodes.encode_assignment(assignment))
    alone.settle()
    assert sorted(alone.controller.image.topics) == ["later", "t"]


@pytest.mark.parametrize("times", [1, 2])
def test_partitions_that_others_add_to_a_topic_are_led(times: int) -> None:
    alone = Alone()
    alone.make_topic([1])
    alone.win()
    alone.settle()
    for count in range(2, 2 + times):
        partitions = {0: nodes(1, 2, 3)} | {index: [NODE] for index in range(1, count)}
        assignment = znodes.encode_assignment(znodes.Assignment(partitions, TOPIC_ID, {}, {}))
        alone.zookeeper.tree.carry_out(SetData(znodes.topic_path("t"), assignment), OTHER)
        alone.zookeeper._fire()
        alone.settle()
    led = {index: each.leader for index, each in alone.controller.image.topics["t"].partitions.items()}
    assert led == dict.fromkeys(range(1 + times), 1)
    assert alone.state().leader_epoch == 5, "the first partition is left as it is"


def test_a_dead_follower_leaves_the_isr_in_a_new_leader_epoch() -> None:
    """The leader ignores LeaderAndIsr of the epoch that it acts in, and would wait for the dead broker."""
    alone = Alone()
    alone.register(2)
    alone.register(3)
    alone.make_topic([1, 2, 3])
    alone.win()
    alone.settle()
    alone.end(3)
    alone.settle()
    assert (alone.state().leader, alone.state().isr, alone.state().leader_epoch) == (1, (1, 2), 6)


def test_no_role_names_a_broker_before_its_receiver_knows_it() -> None:
    alone = Alone()
    alone.register(2)
    alone.make_topic([1, 2, 3])
    alone.win()
    alone.settle()
    alone.sent.clear()
    alone.register(3)
    alone.end(1)
    alone.settle()
    assert alone.state().leader == 2
    for broker in (2, 3):
        known: set[int] = set()
        bodies = [body for to, body in alone.sent if to == broker]
        for body in bodies:
            if isinstance(body, UpdateMetadataRequest):
                known = {each.id for each in body.live_brokers}
            else:
                assert {state.leader for topic in body.topic_states for state in topic.partition_states} <= known
        assert any(isinstance(body, LeaderAndIsrRequest) for body in bodies)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"leader":"x"}', b"\xff"])
def test_a_damaged_state_is_named_and_left_as_it_is(data: bytes) -> None:
    alone = Alone()
    alone.make_topic([1])
    alone.zookeeper.tree.carry_out(SetData(znodes.state_path("t", 0), data), OTHER)
    alone.win()
    alone.settle()
    assert [text for text in alone.logged if znodes.state_path("t", 0) in text]
    assert alone.controller.is_active and alone.controller.image.topics["t"].partitions == {}
    assert alone.data() == data


def test_no_producer_id_is_allocated_beside_a_damaged_block() -> None:
    """Those of the block may be in use: Kafka's controller fails to parse it, too."""
    for data, allocated in ((znodes.encode_producer_block(NODE, ProducerId(0), ProducerId(999)), 1000), (b"{", None)):
        alone = Alone()
        alone.zookeeper.tree.carry_out(SetData(znodes.PRODUCER_IDS, data), OTHER)
        alone.win()
        alone.settle()
        assert [text for text in alone.logged if znodes.PRODUCER_IDS in text] == [] if allocated else alone.logged
        image = alone.controller.image
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=image.brokers[NODE].epoch)
        if allocated is not None:
            assert allocate_producer_ids(image, request).response.producer_id_start == allocated
        else:
            with pytest.raises(KafkaError):
                allocate_producer_ids(image, request)


@pytest.mark.parametrize("event", [ConnectionLost(), SessionExpired()])
def test_a_session_that_ends_in_the_middle_of_a_multi_ends_the_term(event: ConnectionLost | SessionExpired) -> None:
    """Whether it was written is not known: nothing is decided before everything is read again."""
    alone = Alone()
    alone.register(2)
    alone.make_topic([1, 2])
    alone.win()
    alone.settle()
    alone.end(2)
    while not isinstance(alone.zookeeper.next, Multi):
        alone.zookeeper.step()
    alone.zookeeper.session.take(event, NOW)
    assert not alone.controller.is_active
    alone.zookeeper.session.take(SessionConnected(OWN), NOW)
    alone.zookeeper.settle()  # what was asked before is carried out, and answers to no one
    assert alone.state().isr == (1,)
    alone.win()
    alone.settle()
    assert alone.controller.image.topics["t"].partitions[0].isr == [1]


@pytest.mark.parametrize(("isr", "error"), [([1, 2], ErrorCode.NONE), ([1], ErrorCode.INVALID_UPDATE_VERSION)])
def test_a_proposal_that_is_written_already_is_accepted_again(isr: list[int], error: ErrorCode) -> None:
    """Its leader did not receive the answer: it repeats the proposal on the version of before."""
    alone = Alone()
    alone.register(2)
    alone.make_topic([1, 2])
    alone.zookeeper.tree.carry_out(SetData(znodes.state_path("t", 0), alone.data()), OTHER)
    alone.win()
    alone.settle()
    asked = AlterPartitionRequest.PartitionData(
        leader_epoch=5,
        partition_epoch=0,
        new_isr_with_epochs=[AlterPartitionRequest.BrokerState(broker_id=each, broker_epoch=-1) for each in isr],
    )
    body = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=alone.controller.image.brokers[NODE].epoch,
        topics=[AlterPartitionRequest.TopicData(topic_id=TOPIC_ID, partitions=[asked])],
    )
    found: list[Any] = []
    alone.controller.decide(Asked(56, 3, body), lambda answer, now: found.append(answer), lambda now: None, NOW)
    alone.settle()
    (answer,) = found[0].topics[0].partitions
    assert (answer.error_code, answer.partition_epoch) == (error, 1 if error is ErrorCode.NONE else 0)
