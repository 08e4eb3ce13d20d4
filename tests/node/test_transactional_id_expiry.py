"""Transactional ids that are not used are forgotten, however many they are."""

from __future__ import annotations

from reference.coordinator.transaction_records import transaction_record
from reference.coordinator.transaction_state import Transaction
from reference.protocol.primitives import ProducerEpoch, ProducerId
from reference.storage.simulated_disk import SimulatedDisk
from tests.node.test_metadata_snapshots import FOLDER, NOW, create, start

EXPIRATION_MS = 7 * 24 * 3_600_000


def test_more_tombstones_than_one_batch_takes_are_written() -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW, **{"transaction.state.log.num.partitions": "1"})
    create(node, "__transaction_state", NOW)
    coordination = node.transactions.coordination
    ids = [f"{number:01000}" for number in range(1_100)]
    for first in range(0, len(ids), 100):
        some = [
            Transaction(id, ProducerId(7), ProducerEpoch(0), 1_000, updated_at=NOW) for id in ids[first : first + 100]
        ]
        coordination.write(0, [transaction_record(each, 1) for each in some], NOW)
    ((_, coordinator),) = coordination.loaded()
    assert len(coordinator.transactions) == len(ids)
    node.transactions.tick(NOW + EXPIRATION_MS)
    assert not coordinator.transactions
