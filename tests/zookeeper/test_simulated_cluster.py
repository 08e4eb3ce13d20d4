"""Three simulated brokers beside a simulated ZooKeeper."""

import pytest

from linearizability.simulation.drawing import draw
from linearizability.simulation.fuzzing import run_schedule
from linearizability.simulation.schedule import FAULTS, Consumer, Fault, Producer, Schedule, Topic

TOPIC = Topic(name="orders", configs={"min.insync.replicas": "2"})
CLIENTS = (Producer(acks="all", version=9, batches=60), Consumer())


def completed(*faults: Fault, seed: int = 0, duration_ms: int = 3_000):
    schedule = Schedule(
        seed=seed,
        nodes=3,
        coordination="zookeeper",
        topics=(TOPIC,),
        clients=CLIENTS,
        faults=faults,
        duration_ms=duration_ms,
    )
    outcome, _ = run_schedule(schedule)
    assert outcome.verdict == "valid", f"{outcome.rule}: {outcome.text}"
    assert outcome.acknowledged_by_all > 0
    return outcome


def test_the_first_broker_wins_and_records_are_committed():
    outcome = completed()
    assert outcome.counts["action CreateTopic"] == 1
    assert outcome.counts["action ElectController"] >= 1
    assert outcome.counts["zookeeper Multi NODE_EXISTS"] >= 1, "the others stood for election too"


def test_a_controller_that_stands_still_is_followed_by_another():
    outcome = completed(Fault(at_ms=500, kind="pause", role="controller", node=1, for_ms=1_500))
    assert outcome.counts["zookeeper session expired"] >= 1
    assert outcome.counts["action ResignController"] >= 1
    assert outcome.counts["action RemoveReplicaFromIsr"] >= 1


def test_a_broker_that_dies_is_replaced_as_a_leader():
    outcome = completed(Fault(at_ms=500, kind="crash", role="leader", node=1, topic="orders", for_ms=1_500))
    assert outcome.leader_changes >= 1


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind.startswith("zookeeper-")])
def test_faults_of_zookeeper_cost_no_record(kind):
    completed(Fault(at_ms=600, kind=kind, role="controller", node=1, for_ms=1_200, amount=40))


def test_a_schedule_has_one_trace():
    schedule = draw(6, None, 3, "records", "zookeeper")
    assert run_schedule(schedule)[0].digest == run_schedule(schedule)[0].digest


def test_a_quorum_has_no_zookeeper_to_be_cut_from():
    with pytest.raises(ValueError, match="needs a cluster that ZooKeeper coordinates"):
        Schedule(nodes=3, faults=(Fault(at_ms=1, kind="zookeeper-cut", node=1),))
