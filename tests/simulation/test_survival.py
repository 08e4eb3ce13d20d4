"""State of a machine's logs that its next process must have."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from linearizability.simulation.survival import Survival
from linearizability.simulation.world import Violation, World
from reference.replication.partition import Partition
from reference.storage.log import Log

ID = UUID(int=7)


def stored(high_watermark: int) -> Survival:
    survival = Survival("node 1", World(7))
    replica: Any = SimpleNamespace(name="orders-0", topic_id=ID)
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
