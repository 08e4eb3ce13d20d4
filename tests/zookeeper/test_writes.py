"""Decisions as conditional writes."""

import json
from typing import Any
from uuid import UUID

import pytest

from reference.controller.image import TOPIC_RESOURCE, MetadataImage
from reference.protocol.errors import KafkaError
from reference.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.remove_topic_record import RemoveTopicRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.primitives import LeaderEpoch, NodeId
from reference.zookeeper.operations import Check, Create, Delete, SetData, Write, ZnodeVersion
from reference.zookeeper.writes import MAX_WRITES, Condition, multis, writes_of
from tests.zookeeper.local import nodes

EPOCH = LeaderEpoch(5)
ID = UUID(int=7, version=4)
TOPIC = [
    TopicRecord(name="t", topic_id=ID),
    PartitionRecord(
        partition_id=0, topic_id=ID, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1, leader_epoch=0, partition_epoch=0
    ),
]


def image_with_topic() -> MetadataImage:
    image = MetadataImage()
    for record in TOPIC:
        image.apply(record)
    return image


def document(write: Write) -> dict[str, Any]:
    assert isinstance(write, Create | SetData)
    return json.loads(write.data)


def nothing(path: str) -> bool:
    return False


def test_a_new_topic_is_its_assignment_settings_and_states():
    records = [TOPIC[0], ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="a", value="b"), TOPIC[1]]
    writes = writes_of(MetadataImage(), records, EPOCH, nothing)
    assert [(type(each), each.path) for each in writes] == [
        (Create, "/brokers/topics/t"),
        (Create, "/brokers/topics/t/partitions"),
        (Create, "/config/topics/t"),
        (Create, "/brokers/topics/t/partitions/0"),
        (Create, "/brokers/topics/t/partitions/0/state"),
    ]
    assert document(writes[2]) == {"version": 1, "config": {"a": "b"}}
    assert document(writes[4])["controller_epoch"] == 5


def test_a_change_is_conditional_on_the_partition_epoch_that_it_builds_on():
    image = image_with_topic()
    records = [
        PartitionChangeRecord(partition_id=0, topic_id=ID, isr=nodes(1, 2)),
        PartitionChangeRecord(partition_id=0, topic_id=ID, leader=NodeId(2)),
    ]
    first, second = writes_of(image, records, EPOCH, nothing)
    assert isinstance(first, SetData) and isinstance(second, SetData)
    assert (first.version, second.version) == (0, 1)
    assert document(second) == {
        "controller_epoch": 5,
        "leader": 2,
        "version": 1,
        "leader_epoch": 1,
        "isr": [1, 2],
    }
    partition = image.partition("t", 0)
    assert partition is not None and partition.isr == [1, 2, 3], "nothing is true before it is written"


def test_a_reassignment_also_writes_the_assignment():
    change = PartitionChangeRecord(
        partition_id=0, topic_id=ID, replicas=nodes(4, 1, 2, 3), adding_replicas=nodes(4), removing_replicas=nodes(3)
    )
    assignment, state = writes_of(image_with_topic(), [change], EPOCH, nothing)
    assert isinstance(assignment, SetData) and document(assignment)["adding_replicas"] == {"0": [4]}
    assert isinstance(state, SetData) and state.version == 0


def test_changed_settings_are_announced():
    change = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="a", value="b")
    written, announced = writes_of(image_with_topic(), [change], EPOCH, lambda path: path == "/config/topics/t")
    assert isinstance(written, SetData)
    assert isinstance(announced, Create)
    assert announced.sequential and document(announced) == {"version": 2, "entity_path": "topics/t"}


def test_a_topic_is_removed_with_its_order_to_be_deleted_last():
    writes = writes_of(image_with_topic(), [RemoveTopicRecord(topic_id=ID)], EPOCH, lambda path: True)
    assert all(isinstance(each, Delete) for each in writes)
    assert writes[0].path.endswith("/0/state") and writes[-1].path == "/admin/delete_topics/t"


def test_what_is_not_kept_in_zookeeper_is_refused():
    with pytest.raises(KafkaError):
        writes_of(MetadataImage(), [AccessControlEntryRecord()], EPOCH, nothing)


@pytest.mark.parametrize(("count", "pieces"), [(0, 1), (1, 1), (MAX_WRITES, 1), (MAX_WRITES + 1, 2)])
def test_every_multi_checks_the_controller_epoch_first(count, pieces):
    made = multis([Delete(f"/{number}") for number in range(count)], Condition(LeaderEpoch(9), ZnodeVersion(4)))
    assert len(made) == pieces
    assert all(each.operations[0] == Check("/controller_epoch", ZnodeVersion(4)) for each in made)
    assert sum(len(each.operations) - 1 for each in made) == count
