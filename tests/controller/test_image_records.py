"""The records of a snapshot restore the image."""

import random
from uuid import UUID

import pytest

from reference.authorizer.acl import Acl
from reference.controller.image import _REPLAY, MetadataImage  # pyright: ignore[reportPrivateUsage]
from reference.controller.image_records import image_records
from reference.controller.metadata_records import RECORDS, decode_metadata_record, encode_metadata_record
from reference.protocol.acls import Operation, PatternType, Permission, ResourceType
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from reference.protocol.schema import Message
from tests.controller.test_kafka_decides_alike import Incarnation


def read_again(record: Message) -> Message:
    found = decode_metadata_record(encode_metadata_record(record))
    assert found is not None
    return found


def test_the_records_of_an_image_make_it_again() -> None:
    """After random runs, which bring brokers and partitions into many states."""
    for seed in range(20):
        incarnation = Incarnation(seed)
        for _ in range(60):
            incarnation.step()
        image = incarnation.cluster.image
        again = MetadataImage()
        for record in image_records(image):
            again.apply(read_again(record))
        assert [*image_records(again)] == [*image_records(image)]
        assert again.topics == image.topics
        assert again.configs == {key: values for key, values in image.configs.items() if values}
        assert (again.features, again.next_producer_id) == (image.features, image.next_producer_id)
        assert {*again.brokers} == {*image.brokers}
        for broker in image.brokers.values():
            other = again.brokers[broker.id]
            assert (other.epoch, other.fenced, other.in_controlled_shutdown) == (
                broker.epoch,
                broker.fenced,
                broker.in_controlled_shutdown,
            )
            assert (other.directories, other.cordoned_directories) == (broker.directories, broker.cordoned_directories)


def test_acls_are_records_of_a_snapshot() -> None:
    image, again = MetadataImage(), MetadataImage()
    acl = Acl(ResourceType.TOPIC, "a", PatternType.PREFIXED, "User:a", "*", Operation.READ, Permission.DENY)
    for number in (1, 2):
        image.apply(read_again(acl.as_record(UUID(int=number))))
    image.apply(read_again(RemoveAccessControlEntryRecord(id=UUID(int=1))))
    for record in image_records(image):
        again.apply(read_again(record))
    assert again.acls.by_id == {UUID(int=2): acl}
    again.clear()
    assert not again.acls.by_id and not [*again.acls.of(ResourceType.TOPIC, "ab")]


def test_every_record_that_is_replayed_can_be_read() -> None:
    assert set(_REPLAY) <= set(RECORDS.values())


def test_the_metadata_version_comes_first_and_brokers_before_their_partitions() -> None:
    incarnation = Incarnation(random.Random(1).randrange(100))
    records = [*image_records(incarnation.cluster.image)]
    assert isinstance(records[0], FeatureLevelRecord) and records[0].name == "metadata.version"
    kinds = [type(each) for each in records]
    assert kinds.index(RegisterBrokerRecord) == 2
    assert [*image_records(MetadataImage())] == []


@pytest.mark.parametrize(
    ("record", "level", "version"),
    [
        (RegisterBrokerRecord(), 30, 4),
        (RegisterBrokerRecord(), 29, 3),
        (RegisterBrokerRecord(), 21, 3),
        (RegisterBrokerRecord(), 16, 2),
        (RegisterBrokerRecord(), 7, 1),
        (PartitionRecord(), 30, 2),
        (PartitionRecord(), 23, 2),
        (PartitionRecord(), 22, 1),
        (PartitionRecord(), 16, 0),
        (FeatureLevelRecord(), 21, 0),
    ],
)
def test_a_record_has_the_version_of_its_metadata_version(record: Message, level: int, version: int) -> None:
    """As MetadataVersion.registerBrokerRecordVersion and partitionRecordVersion of Kafka 4.3.1 say."""
    written = encode_metadata_record(record, level)
    assert (written[1], written[2]) == (record.KEY, version)
    assert read_again(record) == decode_metadata_record(written)
