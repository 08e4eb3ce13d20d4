"""State of a machine's logs that its next process must have."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from linearizability.simulation.survival import Survival
from linearizability.simulation.world import Violation, World
from reference.replication.partition import Partition
from reference.storage.checkpoints import HIGH_WATERMARKS
from reference.storage.log import Log
from reference.storage.simulated_disk import SimulatedDisk

ID = UUID(int=7)


def stored(high_watermark: int) -> Survival:
    survival = Survival("node 1", World(7))
    replica: Any = SimpleNamespace(name="orders-0", topic_id=ID, index=0)
    survival.committed(cast(Partition, replica), high_watermark)
    return survival


def log(end: int, topic_id: UUID = ID) -> Log:
    there: Any = SimpleNamespace(topic="orders", partition=0, topic_id=topic_id, log_end_offset=end)
    return cast(Log, there)


@pytest.mark.parametrize(("end", "written"), [(137, 137), (99, 99), (99, 120), (200, 137)])
def test_a_high_watermark_is_carried_over_as_far_as_its_log_goes(end: int, written: int) -> None:
    survival = stored(137)
    survival.carried_over(log(end), written)
    with pytest.raises(
        Violation, match=f"{written - 1} is written, where {written} was stored and the log ends at 500"
    ):
        survival.carried_over(log(500), written - 1)


@pytest.mark.parametrize(("end", "written"), [(137, 136), (99, 98), (200, 0)])
def test_a_high_watermark_that_is_forgotten_is_found(end: int, written: int) -> None:
    with pytest.raises(Violation) as broken:
        stored(137).carried_over(log(end), written)
    assert broken.value.rule == "high-watermark-forgotten"


def test_the_log_of_another_topic_of_this_name_owes_nothing() -> None:
    stored(137).carried_over(log(9, UUID(int=8)), 0)


DISK, OTHER_DISK = object(), object()


def replica(high_watermark: int, topic_id: UUID = ID, log_start: int = 0) -> Partition:
    log: Any = SimpleNamespace(_disk=DISK, log_start_offset=log_start)
    there: Any = SimpleNamespace(name="orders-0", topic_id=topic_id, index=0, high_watermark=high_watermark, log=log)
    return cast(Partition, there)


def written(survival: Survival, partition: Partition, *lines: str, disk: object = DISK) -> None:
    """A node with this replica writes a checkpoint of high watermarks."""
    node: Any = SimpleNamespace(partitions={("orders", 0): partition}, logs=SimpleNamespace(holder=lambda key: None))
    data = "\n".join(["0", str(len(lines)), *lines, ""]).encode()
    survival.checkpoint_written(node, cast(SimulatedDisk, disk), HIGH_WATERMARKS, data)


def test_a_checkpoint_that_forgets_a_deleted_topic_repeats_what_the_others_had() -> None:
    survival = Survival("node 1", World(7))
    written(survival, replica(87), "orders 0 87", "again 0 5")
    written(survival, replica(77), "orders 0 87")
    with pytest.raises(Violation, match="says 87 of orders-0, where 77 is the most"):
        written(survival, replica(77), "orders 0 87")


@pytest.mark.parametrize(("disk", "topic_id"), [(DISK, ID), (OTHER_DISK, ID), (DISK, UUID(int=8))])
def test_a_replica_begins_with_what_was_stored_for_its_topic(disk: object, topic_id: UUID) -> None:
    """A log that is being moved has its line in either directory; a deleted topic of the name has one, too."""
    survival = Survival("node 1", World(7))
    written(survival, replica(9, topic_id), "orders 0 9", disk=disk)
    begins = replica(9)
    survival._require_committed(begins, 20, 0 if topic_id != ID or disk is OTHER_DISK else 9)
    most = 9 if topic_id == ID else 0
    survival._require_committed(begins, 20, most)
    with pytest.raises(
        Violation, match=f"begins with the high watermark {most + 1}, where {most} is the most"
    ) as broken:
        survival._require_committed(begins, 20, most + 1)
    assert broken.value.rule == "high-watermark-not-stored"


def test_a_replica_begins_no_lower_than_its_log() -> None:
    Survival("node 1", World(7))._require_committed(replica(5, log_start=5), 20, 5)
