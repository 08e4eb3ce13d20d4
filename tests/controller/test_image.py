"""The image after records are replayed."""

from uuid import UUID

from reference.controller.directory_ids import LOST, MIGRATING, UNASSIGNED
from reference.controller.image import RECOVERED, RECOVERING
from reference.protocol.messages.clear_elr_record import ClearElrRecord
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.primitives import NodeId
from tests.controller.cluster import TOPIC, ControlledCluster, directory_of, topic_id_of, two_brokers


def change(**fields: object) -> PartitionChangeRecord:
    record = PartitionChangeRecord(topic_id=topic_id_of(TOPIC), partition_id=0)
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def test_a_leader_that_is_named_again_begins_another_leader_epoch() -> None:
    cluster = two_brokers()
    cluster.write([change(leader=0)])
    assert (cluster.partition().leader, cluster.partition().leader_epoch, cluster.partition().partition_epoch) == (
        0,
        1,
        1,
    )
    cluster.write([change(isr=[0])])
    assert (cluster.partition().leader_epoch, cluster.partition().partition_epoch) == (1, 2)
    cluster.write([change(leader_recovery_state=RECOVERING)])
    assert cluster.partition().leader_recovery_state == RECOVERING
    cluster.write([change(leader_recovery_state=RECOVERED, directories=[UUID(int=300), UNASSIGNED])])
    assert cluster.partition().leader_recovery_state == RECOVERED
    assert cluster.partition().directory_of(NodeId(0)) == UUID(int=300)
    assert cluster.partition().directory_of(NodeId(7)) is None


def test_a_change_leaves_what_others_hold_as_it_was() -> None:
    cluster = two_brokers()
    held = cluster.partition()
    cluster.fence(0)
    assert (held.leader, held.partition_epoch) == (0, 0)
    assert cluster.partition() != held and not cluster.image.is_active(NodeId(0))


def test_partitions_of_before_directories_had_ids() -> None:
    cluster = ControlledCluster()
    cluster.write(
        [
            TopicRecord(name=TOPIC, topic_id=topic_id_of(TOPIC)),
            PartitionRecord(partition_id=0, topic_id=topic_id_of(TOPIC), replicas=[0, 1], isr=[0, 1], leader=0),
        ]
    )
    assert cluster.partition().directories == [MIGRATING] * 2
    cluster.write([change(replicas=[0, 1, 2])])
    assert cluster.partition().directories == [MIGRATING] * 3


def test_eligible_leader_replicas_are_forgotten_for_one_topic_or_all() -> None:
    cluster = two_brokers()
    cluster.create("other", [0, 1])
    for name in (TOPIC, "other"):
        assert cluster.alter_isr([0], name) == 0
        assert cluster.partition(name).eligible_leader_replicas == [1]
    cluster.write([ClearElrRecord(topic_name="other")])
    assert cluster.partition().eligible_leader_replicas == [1]
    assert cluster.partition("other").eligible_leader_replicas == []
    assert cluster.partition("other").partition_epoch == 2
    cluster.write([ClearElrRecord()])
    assert cluster.partition().eligible_leader_replicas == []
    assert cluster.partition("other").partition_epoch == 2


def test_which_directories_work() -> None:
    cluster = two_brokers()
    broker = cluster.image.brokers[NodeId(0)]
    assert broker.directory_for_new_replica() == directory_of(0)
    assert all(broker.has_online(each) for each in (MIGRATING, UNASSIGNED, directory_of(0)))
    assert not any(broker.has_online(each) for each in (LOST, directory_of(1)))
    broker.directories = [directory_of(0), directory_of(1)]
    assert broker.directory_for_new_replica() == UNASSIGNED
    broker.directories = []
    assert broker.directory_for_new_replica() == MIGRATING
    assert broker.has_online(directory_of(1))
