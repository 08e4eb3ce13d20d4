"""A topic that is deleted and created again under its name: what one holds is never another's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.compacted_oracle import CompactedOracle
from linearizability.simulation.drawing import draw
from linearizability.simulation.drawing_rare import RECREATES
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.recreating import Own, SimulatedRecreator
from linearizability.simulation.schedule import Fault, Recreator, Schedule
from linearizability.simulation.world import Violation
from reference.protocol.primitives import Offset, TimestampMs
from reference.protocol.records.record import Record
from reference.replication.partition import Partition

FAULTS = (
    Fault(at_ms=400, after="GiveUpReplica", kind="crash", role="actor", for_ms=300),
    Fault(at_ms=1_200, kind="stop", node=2, for_ms=400),
)
OURS, OTHER = UUID(int=7), UUID(int=8)


def schedule(nodes: int) -> Schedule:
    faults = FAULTS if nodes > 1 else (Fault(at_ms=400, kind="crash", for_ms=300),)
    return Schedule(seed=5, nodes=nodes, duration_ms=2_500, clients=(Recreator(batches=6, pause_ms=5),), faults=faults)


@pytest.mark.parametrize("nodes", [1, 3])
def test_topics_of_one_name_come_and_go_under_faults(nodes: int) -> None:
    outcome, _ = run_schedule(schedule(nodes))
    assert (outcome.rule, outcome.text) == ("", "")
    assert outcome.counts["topics created under one name"] > 5
    assert outcome.counts["records in topics that are created again"] > 20
    assert outcome.counts["topics of one name read"] > 2


def test_some_seeds_have_such_a_topic_and_are_no_traces() -> None:
    every, remainder = RECREATES
    for seed in range(2 * every):
        drawn = draw(seed, None, 3)
        recreates = any(isinstance(client, Recreator) for client in drawn.clients)
        assert recreates == (seed % every == remainder)
        assert not (recreates and drawn.is_traceable)


def test_a_marker_may_be_lost_in_a_compacted_topic_that_may_have_lost_records() -> None:
    oracle, partition = CompactedOracle("__consumer_offsets-0", 2, is_excused=False), cast(Partition, None)
    assert not oracle.lost_ends(1, partition)
    oracle.is_excused = True
    assert oracle.lost_ends(1, partition)


def reader() -> tuple[SimulatedRecreator, Own]:
    cluster = SimulatedCluster(schedule(1))
    recorder = cluster.new_recorder(None)
    return SimulatedRecreator(cluster, recorder.process, recorder, Recreator()), Own(OURS, 1, stored={4: 9}, end=5)


def record(offset: int, number: int, topic_id: UUID = OURS) -> Record:
    return Record(Offset(offset), TimestampMs(0), None, topic_id.bytes + number.to_bytes(4, "big"))


def test_a_reader_takes_what_was_acknowledged_or_may_have_come() -> None:
    client, topic = reader()
    client._judge(topic, record(4, 9))
    client._judge(topic, record(5, 10))


@pytest.mark.parametrize(
    ("found", "rule", "text"),
    [
        (record(5, 10, OTHER), "record-of-a-deleted-topic", f"a record that was sent to topic {OTHER}"),
        (record(4, 8), "record-replaced", "record 8, where 9 was acknowledged"),
    ],
)
def test_a_reader_takes_no_record_of_another_topic_and_none_in_the_place_of_another(
    found: Record, rule: str, text: str
) -> None:
    client, topic = reader()
    with pytest.raises(Violation, match=text) as broken:
        client._judge(topic, found)
    assert broken.value.rule == rule


def test_a_refused_batch_of_a_new_topic_is_excused_by_a_loss_alone() -> None:
    client, topic = reader()
    answer: Any = SimpleNamespace(
        responses=[SimpleNamespace(partition_responses=[SimpleNamespace(error_code=45, base_offset=-1)])]
    )
    with pytest.raises(Violation, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        client._on_produced(answer, (topic, range(1)))
    cast(Any, client.cluster.machines[0]).power_losses = 1
    client._on_produced(answer, (topic, range(1)))
