"""Requests of the controller that a broker takes, and those that it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from reference.controller.image import MetadataImage
from reference.node.zookeeper.orders import OWN, Order, Orders
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from reference.protocol.messages.stop_replica import StopReplicaRequest
from reference.protocol.messages.update_metadata import UpdateMetadataRequest
from reference.protocol.primitives import BrokerEpoch, LeaderEpoch, NodeId, TimestampMs, TopicName
from tests.zookeeper.local import NOW

NODE, CONTROLLER = NodeId(1), NodeId(2)
TOPIC_ID = UUID(int=7)


class Broker:
    """A broker's `Orders`, and what was answered."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        configs: Any = SimpleNamespace(ensure=lambda names, then, now: then(now), forget=lambda name: None)
        self.orders = Orders(NODE, self.image, MetadataImage(), configs, lambda: BrokerEpoch(5), None)

    def take(self, body: Order, connection: int = OWN) -> ErrorCode:
        answers: list[Any] = []
        self.orders.take(body, lambda answer, now: answers.append(answer), NOW, connection)
        (answer,) = answers
        return ErrorCode(answer.error_code)


def brokers(*live: int, epoch: int = 1) -> UpdateMetadataRequest:
    named = [UpdateMetadataRequest.UpdateMetadataBroker(id=NodeId(each)) for each in live]
    return UpdateMetadataRequest(
        controller_id=CONTROLLER, controller_epoch=LeaderEpoch(epoch), broker_epoch=BrokerEpoch(5), live_brokers=named
    )


def deleted() -> StopReplicaRequest:
    state = StopReplicaRequest.StopReplicaPartitionState(partition_index=0, delete_partition=True)
    topic = StopReplicaRequest.StopReplicaTopicState(topic_name=TopicName("t"), partition_states=[state])
    return StopReplicaRequest(
        controller_id=CONTROLLER, controller_epoch=LeaderEpoch(1), broker_epoch=BrokerEpoch(5), topic_states=[topic]
    )


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_list_of_brokers_on_an_earlier_connection_is_the_older_one(epoch: int):
    broker = Broker()
    assert broker.take(brokers(1, 2), 7) is ErrorCode.NONE
    assert broker.take(brokers(1, 2, 3, epoch=epoch), 9) is ErrorCode.NONE
    expected = ErrorCode.REQUEST_TIMED_OUT if epoch == 1 else ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.take(brokers(1, 2), 7) is expected
    assert broker.take(deleted(), 8) is expected
    assert sorted(broker.image.brokers) == [1, 2, 3]


def test_connections_of_two_controllers_are_not_compared():
    broker = Broker()
    assert broker.take(brokers(1, 2), 9) is ErrorCode.NONE
    assert broker.take(brokers(1, epoch=2), 4) is ErrorCode.NONE
    assert broker.take(brokers(1, 3, epoch=3)) is ErrorCode.NONE
    assert broker.take(brokers(1, epoch=4), 2) is ErrorCode.NONE
    assert sorted(broker.image.brokers) == [1]


def test_requests_on_one_connection_follow_each_other():
    broker = Broker()
    for live in ((1,), (1, 2), (1, 3)):
        assert broker.take(brokers(*live), 4) is ErrorCode.NONE
        assert sorted(broker.image.brokers) == list(live)


def test_what_waits_for_the_registration_is_taken_in_order():
    broker = Broker()
    registered, epoch = BrokerEpoch(5), [BrokerEpoch(-1)]
    broker.orders._broker_epoch = lambda: epoch[0]
    answers: list[Any] = []

    def note(answer: Any, now: TimestampMs) -> None:
        answers.append(answer.error_code)

    for live, connection in (((1, 2), 8), ((1,), 6)):
        broker.orders.take(brokers(*live), note, NOW, connection)
    assert not answers
    epoch[0] = registered
    broker.orders.registered(NOW)
    assert answers == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    assert sorted(broker.image.brokers) == [1, 2]


def test_roles_of_a_given_up_request_are_not_taken():
    broker = Broker()
    assert broker.take(brokers(1, 2), 9) is ErrorCode.NONE
    state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=0, leader=NODE, leader_epoch=LeaderEpoch(3), isr=[NODE], replicas=[NODE]
    )
    topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(
        topic_name=TopicName("t"), topic_id=TOPIC_ID, partition_states=[state]
    )
    body = LeaderAndIsrRequest(
        controller_id=CONTROLLER, controller_epoch=LeaderEpoch(1), broker_epoch=BrokerEpoch(5), topic_states=[topic]
    )
    assert broker.take(body, 3) is ErrorCode.REQUEST_TIMED_OUT
    assert broker.take(body, 9) is ErrorCode.NONE
