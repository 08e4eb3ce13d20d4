"""After all faults are healed, each partition with an eligible replica has a leader, also those of internal topics."""

from __future__ import annotations

import pytest

from linearizability.simulation.fuzzing import run_planted
from linearizability.simulation.run import SimulatedRun
from linearizability.simulation.schedule import Fault, Member, Producer, Schedule, Topic
from linearizability.simulation.settling import leaderless
from reference.controller.image import NO_LEADER
from reference.protocol.primitives import NodeId


def schedule(**changed: object) -> Schedule:
    plain = Schedule(
        nodes=3,
        duration_ms=600,
        topics=(Topic(name="orders", replicas=(1,)),),
        clients=(Producer(batches=3),),
    )
    return plain.model_copy(update=changed)


def test_a_partition_without_a_leader_is_excused_where_no_replica_may_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linearizability.simulation.run.lose_one", lambda *_: None)
    run = SimulatedRun(schedule())
    run.run()
    run._wait_for_replicas()  # its last steps started a broker again
    active = run.cluster.active_controller()
    node = run.cluster.machine(active).node if active is not None else None
    assert node is not None and leaderless(run.cluster) == []
    partition = node.image.topics["orders"].partitions[0]
    partition.leader = NO_LEADER
    (found,) = leaderless(run.cluster)
    assert found.startswith("orders-0 has no leader, though [1] may lead it")
    partition.eligible_leader_replicas, partition.isr = partition.isr, []
    assert len(leaderless(run.cluster)) == 1
    node.image.brokers[NodeId(1)].fenced = True
    assert leaderless(run.cluster) == []


def test_an_internal_topic_that_no_node_leads_is_found() -> None:
    away = tuple(
        Fault(at_ms=600 + 2_500 * turn, kind="crash", node=node, for_ms=1_500) for turn, node in enumerate((1, 2, 3))
    )
    plan = schedule(
        topics=(Topic(name="orders", replicas=(1, 2, 3)),),
        clients=(Producer(batches=3), Member()),
        faults=away,
        duration_ms=8_000,
        properties={"offsets.topic.replication.factor": "1"},
    )
    for mutant, rule in ((None, ""), ("internal-topics-without-a-leader", "partition-not-led")):
        outcome, _ = run_planted(plan.model_copy(update={"mutant": mutant}))
        assert outcome.rule == rule, outcome.text
