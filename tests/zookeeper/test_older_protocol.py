"""Inter-broker protocol 2.8: topics are named, ISRs have no broker epochs, and producer ids come from ZooKeeper."""

from __future__ import annotations

from typing import TypeVar
from unittest.mock import MagicMock

import pytest

from linearizability.simulation.fuzzing import run_schedule
from linearizability.simulation.schedule import Consumer, Fault, Producer, Schedule, Topic
from reference.controller.image import MetadataImage
from reference.node.active_controller import Asked
from reference.node.release import BEFORE_IDS, HIGHEST_IN_2_8, versions_of
from reference.node.zookeeper.apis import zookeeper_apis
from reference.node.zookeeper.older_protocol import OlderForm, with_names
from reference.node.zookeeper.producer_blocks import ProducerBlocks
from reference.protocol.codec import decode_from
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_request, encode_request
from reference.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from reference.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.primitives import NO_UUID, NodeId, TimestampMs
from reference.protocol.schema import Message
from reference.zookeeper import znodes
from tests.zookeeper.local import LocalZooKeeper
from tests.zookeeper.test_controller import TOPIC_ID, Alone

ALTER_PARTITION = 56
NOW = TimestampMs(0)
M = TypeVar("M", bound=Message)


def test_each_request_of_a_broker_of_2_8_is_advertised() -> None:
    """A leader of 2.8.2 sends AlterIsr for ever to a controller that does not advertise version 0, and its ISRs never grow."""
    apis = zookeeper_apis(MagicMock(), MagicMock(), MagicMock())
    served = {key: (apis[key].advertised_from, apis[key].highest) for key in HIGHEST_IN_2_8}
    assert [key for key, (lowest, highest) in served.items() if not lowest <= HIGHEST_IN_2_8[key] <= highest] == []


def as_sent(body: M) -> M:
    """What a broker of 2.8 reads."""
    key = body.KEY
    version = versions_of(key, BEFORE_IDS)[1]
    _, _, view, position = decode_request(encode_request(key, version, 7, "node-1", body)[4:])
    return decode_from(type(body), version, view, position)[0]


def proposal(*isr: int, name: str = "", epochs: bool = False) -> AlterPartitionRequest:
    asked = AlterPartitionRequest.PartitionData(partition_index=0, leader_epoch=5, partition_epoch=0)
    if epochs:
        asked.new_isr_with_epochs = [AlterPartitionRequest.BrokerState(broker_id=each, broker_epoch=4) for each in isr]
    else:
        asked.new_isr = [*isr]
    topic = AlterPartitionRequest.TopicData(topic_name=name, topic_id=NO_UUID if name else TOPIC_ID, partitions=[asked])
    return AlterPartitionRequest(broker_id=1, broker_epoch=-1, topics=[topic])


def test_a_followers_fetch_names_its_topics() -> None:
    unknown = FetchRequest.FetchTopic(topic_id=NO_UUID)
    body = FetchRequest(
        topics=[FetchRequest.FetchTopic(topic_id=TOPIC_ID), unknown],
        forgotten_topics_data=[FetchRequest.ForgottenTopic(topic_id=TOPIC_ID, partitions=[3])],
        replica_state=FetchRequest.ReplicaState(replica_id=2, replica_epoch=9),
    )
    sent = as_sent(with_names(body, lambda id: "t" if id == TOPIC_ID else None))
    assert (sent.replica_id, [each.topic for each in sent.topics]) == (2, ["t"])
    assert [(each.topic, each.partitions) for each in sent.forgotten_topics_data] == [("t", [3])]


def test_a_proposal_names_its_topics_and_has_no_epochs() -> None:
    sent = as_sent(with_names(proposal(1, 2, epochs=True), lambda id: "t"))
    assert [(topic.topic_name, topic.partitions[0].new_isr) for topic in sent.topics] == [("t", [1, 2])]


def test_answers_get_the_ids_of_their_topics() -> None:
    assigned, image, taken = MetadataImage(), MetadataImage(), []
    assigned.apply(TopicRecord(name="t", topic_id=TOPIC_ID))
    form = OlderForm(assigned, image)
    fetched = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic=name) for name in ("t", "other")])
    judged = AlterPartitionResponse(topics=[AlterPartitionResponse.TopicData(topic_name="t")])
    for answer in (fetched, judged, None):
        _, take = form.translate(FetchRequest(), lambda given, now: taken.append(given))
        take(answer, NOW)
    assert [each.topic_id for each in fetched.responses] == [TOPIC_ID, NO_UUID]
    assert [each.topic_id for each in judged.topics] == [TOPIC_ID]
    assert taken == [fetched, judged, None]


@pytest.mark.parametrize(
    ("body", "error", "isr"),
    [
        (proposal(1, 2, name="t"), ErrorCode.NONE, (1, 2)),
        (proposal(1, 3, name="t"), ErrorCode.OPERATION_NOT_ATTEMPTED, (1,)),
        (proposal(1, 2, name="other"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (1,)),
    ],
)
def test_the_controller_answers_by_name_with_errors_that_are_known(
    body: AlterPartitionRequest, error: ErrorCode, isr: tuple[int, ...]
) -> None:
    alone = Alone()
    alone.register(2)
    alone.make_topic([1])
    alone.win()
    alone.settle()
    body.broker_epoch = alone.controller.image.brokers[NodeId(1)].epoch
    asked = body.topics[0].topic_name
    answers = []
    alone.controller.decide(
        Asked(ALTER_PARTITION, 0, body), lambda answer, now: answers.append(answer), lambda now: None, NOW
    )
    alone.settle()
    (answer,) = answers
    assert [(each.topic_name, each.partitions[0].error_code) for each in answer.topics] == [(asked, error)]
    assert alone.state().isr == isr


def test_no_two_brokers_take_one_block_of_producer_ids() -> None:
    zookeeper = LocalZooKeeper()
    zookeeper.create(znodes.PRODUCER_IDS)
    taken: dict[int, list[Message | None]] = {1: [], 2: []}

    def ask(broker: int) -> None:
        blocks = ProducerBlocks(NodeId(broker), zookeeper.session, lambda level, text: None)
        blocks.ask(lambda answer, now: taken[broker].append(answer), NOW)

    ask(1)
    ask(2)
    zookeeper.settle()
    ask(2)
    zookeeper.settle()
    (first,), (refused, second) = taken[1], taken[2]
    assert isinstance(first, AllocateProducerIdsResponse) and isinstance(second, AllocateProducerIdsResponse)
    assert refused is None, "both had read the same block, and broker 1 was faster"
    assert (first.producer_id_start, second.producer_id_start) == (0, first.producer_id_len)


def test_damaged_producer_ids_are_given_to_no_producer() -> None:
    zookeeper, logged, taken = LocalZooKeeper(), [], []
    zookeeper.create(znodes.PRODUCER_IDS, b"{")
    blocks = ProducerBlocks(NodeId(1), zookeeper.session, lambda level, text: logged.append(text))
    blocks.ask(lambda answer, now: taken.append(answer), NOW)
    zookeeper.settle()
    assert taken == [None] and znodes.PRODUCER_IDS in logged[0]


def test_records_are_replicated_through_faults() -> None:
    schedule = Schedule(
        seed=3,
        nodes=3,
        coordination="zookeeper",
        topics=(Topic(name="orders", configs={"min.insync.replicas": "2"}),),
        clients=(Producer(acks="all", version=9, batches=60, idempotent=True), Consumer()),
        faults=(
            Fault(at_ms=500, kind="pause", role="controller", node=1, for_ms=1_500),
            Fault(at_ms=1_800, kind="crash", role="leader", node=1, topic="orders", for_ms=900),
        ),
        duration_ms=3_000,
        properties={"tidegauge.peers.release": BEFORE_IDS},
    )
    outcome, _ = run_schedule(schedule)
    assert outcome.verdict == "valid", f"{outcome.rule}: {outcome.text}"
    assert outcome.acknowledged_by_all > 0 and outcome.counts["action AlterPartition"] > 0
