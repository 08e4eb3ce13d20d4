"""The controller's decisions and the images of all nodes are judged, each metadata record once."""

from copy import deepcopy
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from linearizability.simulation.cluster_checker import ClusterChecker
from linearizability.simulation.metadata_agreement import MetadataAgreement
from linearizability.simulation.schedule import Schedule, Topic
from linearizability.simulation.world import Violation
from reference.controller.image import MetadataImage
from reference.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.producer_ids_record import ProducerIdsRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.primitives import Offset
from reference.protocol.schema import Message

TOPIC = UUID(int=1)


class Log:
    """A metadata log, and nodes that replay it."""

    def __init__(self) -> None:
        self.records: list[Message] = []
        self.agreement = MetadataAgreement()
        self.images: dict[int, MetadataImage] = {}
        self.reads_from: int | None = None
        self.due: list[str] = []
        """Replicas that do not follow the metadata yet."""

    def add(self, *records: Message) -> None:
        self.records += records

    def replay(self, number: int) -> MetadataImage:
        """Let a node replay all records under the checker. Errors: Violation."""
        is_first = number not in self.images
        image = self.images.setdefault(number, MetadataImage())
        for offset in range(image.end_offset, len(self.records)):
            image.apply(self.records[offset], Offset(offset))
        image.end_offset = Offset(len(self.records))
        quorum = SimpleNamespace(
            records_log=SimpleNamespace(log_start_offset=0),
            is_leader=False,
            high_watermark=len(self.records),
            committed=lambda start: [*enumerate(self.records)][start if self.reads_from is None else self.reads_from :],
        )
        node: Any = SimpleNamespace(
            quorum=quorum,
            image=image,
            broker_epoch=number - 1,
            has_caught_up=True,
            replicas=SimpleNamespace(_due=self.due),
        )
        self.agreement.look_at_replicas(number, node)
        self.agreement.follow(number, node, is_first)
        return image


def change(**fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC, partition_id=0, **fields)


def unfence(broker: int) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=broker - 1, fenced=-1)


def cluster() -> Log:
    """Three brokers that serve, and a partition of two of them."""
    log = Log()
    log.add(*(RegisterBrokerRecord(broker_id=each, broker_epoch=each - 1, fenced=True) for each in (1, 2, 3)))
    for number in (1, 2, 3):
        log.replay(number)
    log.add(*(unfence(each) for each in (1, 2, 3)), TopicRecord(name="orders", topic_id=TOPIC))
    log.add(
        PartitionRecord(
            topic_id=TOPIC, partition_id=0, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0, partition_epoch=0
        )
    )
    log.replay(1)
    return log


ADDING = {"replicas": [1, 2, 3], "adding_replicas": [3], "removing_replicas": []}


def test_a_reassignment_that_ends_when_all_are_in_sync_and_one_that_is_called_off():
    log = cluster()
    log.add(change(**ADDING), change(isr=[1, 2, 3], adding_replicas=[]))
    log.add(change(isr=[1, 2]), change(adding_replicas=[3]), change(replicas=[1, 2], adding_replicas=[], leader=1))
    for number in (2, 1, 3):
        log.replay(number)


@pytest.mark.parametrize(
    ("records", "rule"),
    [
        ([change(**ADDING), change(adding_replicas=[])], "reassigned-too-early"),
        (
            [
                change(replicas=[1, 2, 3, 4], adding_replicas=[3, 4]),
                change(replicas=[1, 2, 3], isr=[1, 2, 3], adding_replicas=[], leader=1),
            ],
            "reassigned-too-early",
        ),
        ([change(isr=[1, 3])], "member-without-replica"),
        ([change(eligible_leader_replicas=[3])], "member-without-replica"),
        ([change(eligible_leader_replicas=[2])], "isr-and-elr-overlap"),
        ([change(isr=[2])], "leader-not-in-isr"),
        ([change(replicas=[1], isr=[1])], "dropped-without-epoch"),
        ([BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=1, fenced=1)], "fenced-member-in-isr"),
        ([RegisterBrokerRecord(broker_id=3, broker_epoch=1)], "broker-epoch-back"),
        ([RegisterBrokerRecord(broker_id=3, broker_epoch=8, fenced=True), unfence(3)], "unfenced-too-early"),
        ([ProducerIdsRecord(next_producer_id=9), ProducerIdsRecord(next_producer_id=9)], "producer-ids-back"),
    ],
)
def test_a_forbidden_decision_is_a_violation(records: list[Message], rule: str):
    log = cluster()
    log.add(*records)
    with pytest.raises(Violation) as found:
        log.replay(1)
    assert found.value.rule == rule


def test_a_broker_whose_replicas_do_not_follow_stays_fenced() -> None:
    log = Log()
    log.add(RegisterBrokerRecord(broker_id=1, broker_epoch=0, fenced=True))
    log.due = ["orders-0"]
    log.add(RegisterBrokerRecord(broker_id=2, broker_epoch=1, fenced=True))
    log.replay(2)
    log.due = []
    log.replay(2)
    log.due = ["orders-1"]
    log.add(unfence(2))
    log.replay(1)
    log.add(RegisterBrokerRecord(broker_id=3, broker_epoch=2, fenced=True))
    log.replay(3)
    log.add(unfence(3))
    with pytest.raises(Violation, match="unfenced-too-early: broker 3 is unfenced before its replicas"):
        log.replay(1)


@pytest.mark.parametrize("part", ["topics", "brokers", "configs", "features"])
def test_images_of_nodes_that_differ_are_found(part: str):
    log = cluster()
    log.replay(2)
    image = deepcopy(log.replay(3))
    log.images[4] = image
    getattr(image, part).clear() if part in ("topics", "brokers") else getattr(image, part).update(x={"y": 1})
    node: Any = SimpleNamespace(
        quorum=SimpleNamespace(records_log=SimpleNamespace(log_start_offset=0), is_leader=False, high_watermark=0),
        image=image,
    )
    with pytest.raises(Violation, match="images-differ"):
        log.agreement.follow(4, node, is_first=True)


def test_a_record_that_is_read_twice_is_found() -> None:
    log = Log()
    log.add(TopicRecord(name="orders", topic_id=TOPIC))
    log.replay(1)
    log.add(PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=[1], isr=[1], leader=1))
    log.reads_from = 0
    with pytest.raises(Violation, match="metadata-out-of-order"):
        log.replay(1)


def test_a_snapshot_of_what_a_killed_step_committed_is_committed() -> None:
    """A leader commits and writes the snapshot in one step, and is killed at a later change of that step."""
    checker = ClusterChecker(Schedule(nodes=3, topics=(Topic(name="orders", replicas=(1, 2, 3)),)))
    checker._metadata = SimpleNamespace(committed_end=5, observe_log=lambda *_: None)  # type: ignore[assignment]
    quorum = SimpleNamespace(
        log_end_offset=8,
        high_watermark=8,
        is_leader=False,
        epoch=1,
        records_log=SimpleNamespace(log_end_offset=8),
        latest_snapshot=SimpleNamespace(end_offset=8),
    )
    node: Any = SimpleNamespace(quorum=quorum)
    with pytest.raises(Violation, match="has a snapshot up to 8, committed up to 5"):
        checker._watch_quorum(1, node)
    checker.on_kill_in_step(node)
    checker._metadata_seen.clear()
    checker._watch_quorum(1, node)
