"""Three simulated brokers beside a simulated ZooKeeper."""

from typing import Literal, get_args

import pytest

from linearizability.simulation.drawing import draw
from linearizability.simulation.fuzzing import run_planted, run_schedule
from linearizability.simulation.run import SimulatedRun
from linearizability.simulation.schedule import FAULTS, Consumer, Fault, Producer, Schedule, Topic
from linearizability.simulation.settling import unfinished
from reference.protocol.primitives import NodeId
from reference.zookeeper import znodes

TOPIC = Topic(name="orders", configs={"min.insync.replicas": "2"})
CLIENTS = (Producer(acks="all", version=9, batches=60), Consumer())


def schedule_of(*faults: Fault) -> Schedule:
    return Schedule(
        nodes=3, coordination="zookeeper", topics=(TOPIC,), clients=CLIENTS, faults=faults, duration_ms=3_000
    )


def completed(*faults: Fault):
    outcome, _ = run_schedule(schedule_of(*faults))
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


Befalls = Literal["crash", "zookeeper-expire", "zookeeper-depose", "zookeeper-cut", "pause"]
BEFALLS = get_args(Befalls)


@pytest.mark.parametrize("at_ms", [595, 605, 615])
@pytest.mark.parametrize("kind", BEFALLS)
def test_a_reassignment_that_a_tool_wrote_is_carried_out_by_one_controller_or_the_next(kind: Befalls, at_ms: int):
    written = Fault(at_ms=600, kind="zookeeper-reassign", topic="orders", others=(3, 1))
    befalls = Fault(at_ms=at_ms, kind=kind, role="controller", node=1, for_ms=900)
    run = SimulatedRun(schedule_of(*sorted((written, befalls), key=lambda fault: fault.at_ms)))
    run.run()
    zookeeper = run.cluster.zookeeper
    assert zookeeper is not None and zookeeper.world.counts["zookeeper /admin/reassign_partitions written"] == 1
    topic = zookeeper.tree.find(znodes.topic_path("orders"))
    assert topic is not None
    found = znodes.decode_assignment("", topic.data)
    assert (found.partitions, found.adding, found.removing) == ({0: [3, 1]}, {}, {})


@pytest.mark.parametrize("kind", BEFALLS)
def test_a_preferred_election_that_a_tool_wrote_is_held(kind: Befalls):
    befalls = Fault(at_ms=605, kind=kind, role="controller", node=1, for_ms=900)
    outcome = completed(Fault(at_ms=600, kind="zookeeper-elect"), befalls)
    assert outcome.counts["zookeeper /admin/preferred_replica_election written"] == 1


@pytest.mark.parametrize("others", [(1, 2), (2, 3), (3, 1)])
def test_a_broker_that_gives_up_its_replica_keeps_the_topic_s_settings(others: tuple[int, ...]):
    """It may be the controller, which would write the settings without those that it forgot."""
    completed(Fault(at_ms=600, kind="zookeeper-reassign", topic="orders", others=others))


@pytest.mark.parametrize("mutant, verdict", [(None, "valid"), ("given-up-request-obeyed", "invalid")])
def test_a_list_of_brokers_that_arrives_behind_a_later_one_is_refused(mutant: str | None, verdict: str):
    """The controller has sent it again meanwhile, on its next connection: 3 is gone in the former list, and back in the later."""
    held = Fault(
        at_ms=600, kind="hold", role="controller", node=1, messages="update-metadata", for_ms=2_000, amount=700
    )
    gone = Fault(at_ms=601, kind="zookeeper-cut", role="bystander", topic="orders", node=3, for_ms=700)
    outcome, _ = run_planted(schedule_of(held, gone).model_copy(update={"mutant": mutant}))
    assert outcome.verdict == verdict, outcome.text
    assert outcome.rule == ("zookeeper-not-followed" if mutant else "")


def test_a_request_that_is_never_taken_is_a_violation(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("reference.node.zookeeper.admin_requests.AdminRequests.next_step", lambda *arguments: None)
    assert run_schedule(schedule_of(Fault(at_ms=600, kind="zookeeper-elect")))[0].rule == "zookeeper-not-followed"


def test_drawn_runs_in_which_tools_write_requests_keep_every_promise():
    drawn = (draw(seed, None, 3, "records", "zookeeper") for seed in range(60))
    chosen = [each for each in drawn if any(fault.kind == "zookeeper-reassign" for fault in each.faults)][:6]
    assert len(chosen) == 6
    found = [run_schedule(each)[0] for each in chosen]
    assert [(each.rule, each.text) for each in found if each.verdict != "valid"] == []
    assert sum(each.counts["zookeeper /admin/reassign_partitions written"] for each in found) > 0


@pytest.mark.parametrize("what", ["broker", "leader", "topic"])
def test_what_a_broker_reports_otherwise_than_zookeeper_is_found(what: str):
    run = SimulatedRun(schedule_of())
    run.run()
    run._wait_for_replicas()  # its last steps started a broker again
    node = run.cluster.machine(2).node
    assert node is not None
    match what:
        case "broker":
            node.image.brokers.pop(NodeId(3))
        case "leader":
            node.image.topics["orders"].partitions[0].leader_epoch += 1
        case _:
            node.image.topics.pop("orders")
    (found,) = unfinished(run.cluster)
    assert found.startswith("node 2 ")
