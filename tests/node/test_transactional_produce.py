"""The partitions of a request that are verified with the transaction coordinator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from conformance.batches import TRANSACTIONAL, batch
from reference.coordinator.transaction_state import TopicPartition
from reference.node.transactional_produce import verify
from reference.protocol.messages.produce import ProduceRequest
from reference.storage.simulated_disk import SimulatedDisk
from tests.node.test_metadata_snapshots import FOLDER, NOW, create, start


def transactional(epoch: int) -> bytes:
    return batch(b"v", attributes=TRANSACTIONAL, producer_id=7, producer_epoch=epoch, base_sequence=0)


def verified_partitions(*records: tuple[str, int, bytes]) -> list[TopicPartition]:
    """The partitions that are verified for a request with these records."""
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW)
    create(node, "t", NOW)
    create(node, "u", NOW)
    asked: list[TopicPartition] = []

    def ask(id: str, identity: Any, partitions: tuple[TopicPartition, ...], *rest: Any) -> None:
        asked.extend(partitions)

    table = ProduceRequest.PartitionProduceData
    topics = [
        ProduceRequest.TopicProduceData(name=name, partition_data=[table(index=index, records=data)])
        for name, index, data in records
    ]
    body = ProduceRequest(transactional_id="x", topic_data=topics)
    coordinator: Any = SimpleNamespace(is_enabled=True, ask=ask)
    verify(node.context, coordinator, 12, body, NOW, lambda verdicts, then: None)
    return asked


def test_a_batch_for_an_unknown_partition_is_left_out() -> None:
    """Kafka ignores its producer id, of which a request may have only one."""
    assert verified_partitions(("t", 0, transactional(0)), ("u", 9, transactional(1))) == [TopicPartition("t", 0)]


def test_records_that_are_not_one_batch_add_no_partition_to_the_transaction() -> None:
    found = verified_partitions(("t", 0, transactional(0)), ("u", 0, transactional(0) * 2))
    assert found == [TopicPartition("t", 0)]
