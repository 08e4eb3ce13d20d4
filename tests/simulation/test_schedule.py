"""Schedules as values: files, refusals, drawing by seed and by Hypothesis, shrinking."""

import json
from pathlib import Path
from typing import get_args

import pytest

from linearizability.simulation.choices import SeededChoices
from linearizability.simulation.drawing import draw, recipe
from linearizability.simulation.drawing_clusters import LATE_AT, LATE_EVERY, PARTITION_STEPS, QUORUM_STEPS
from linearizability.simulation.explanation import plan_of
from linearizability.simulation.schedule import (
    ANY_ORDER,
    FAULTS,
    ONE_NODE_FAULTS,
    VOTING,
    BadSchedule,
    Fault,
    Producer,
    Schedule,
    Topic,
    Transactor,
    read_schedule,
)
from linearizability.simulation.shrink import shrink, with_fewer_nodes
from linearizability.simulation.traffic import KINDS as MESSAGES


def test_a_schedule_survives_its_file(tmp_path: Path):
    for seed in range(100):
        path = tmp_path / "schedule.json"
        path.write_text(draw(seed).to_json())
        assert read_schedule(path) == draw(seed)


def test_transactions_may_take_longer_where_the_clock_was_set_back():
    back = Fault(at_ms=1, kind="clock-jump", amount=-900_000)
    clients = (Transactor(), Producer())
    assert Schedule(seed=1, clients=clients, faults=(back,)).contract().bound_after_healing_ms == 960_000
    assert Schedule(seed=1, clients=clients[1:], faults=(back,)).contract().bound_after_healing_ms == 60_000
    ahead = back.model_copy(update={"amount": 900_000})
    assert Schedule(seed=1, clients=clients, faults=(ahead,)).contract().bound_after_healing_ms == 60_000


NODE_OF_ROLE = {
    "": "node 2",
    "leader": "the leader of orders-0",
    "controller": "the active controller",
    "bystander": "a node that neither leads orders-0 nor is the active controller",
    "coordinator": "the groups' coordinator",
    "transaction-coordinator": "the transactions' coordinator",
    "actor": "the node that takes that step",
    "other": "the other node of that step",
    "between": "the two nodes of that step",
}


def test_a_plan_in_words_names_the_node_of_each_role():
    roles = get_args(Fault.model_fields["role"].annotation)
    assert {*roles} == {*NODE_OF_ROLE}
    for role in roles:
        fault = Fault(at_ms=1, kind="pause", role=role, node=2, topic="orders")
        (line,) = [line for line in plan_of(Schedule(seed=1, nodes=3, faults=(fault,))) if line.startswith("1 ms:")]
        assert line.startswith(f"1 ms: pause, {NODE_OF_ROLE[role]} \u2014"), line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no schedule"),
        ("{}[", "no schedule"),
        ("{}", "no schedule: it is empty"),
        ('{"format": "tidegauge-schedule/2"}', "format"),
        ('{"faults": [{"at_ms": 1, "kind": "meteor"}]}', "faults.0.kind"),
        ('{"faults": [{"at_ms": -1, "kind": "crash"}]}', "faults.0.at_ms"),
        ('{"clients": [{"kind": "producer", "acks": "2"}]}', "acks"),
        ('{"surprise": 1}', "surprise"),
        ('{"nodes": 3, "faults": [{"at_ms": 1, "kind": "crash", "node": 4}]}', "names node 4"),
        ('{"faults": [{"at_ms": 1, "kind": "cut"}]}', "several nodes"),
        ('{"nodes": 3, "faults": [{"at_ms": 1, "kind": "config", "topic": "orders", "partition": 1}]}', "orders-1"),
    ],
)
def test_a_file_that_is_no_schedule_is_refused_in_one_line(tmp_path: Path, text: str, says: str):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(BadSchedule, match=says) as refused:
        read_schedule(path)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(BadSchedule, match="No such file"):
        read_schedule(tmp_path / "nothing.json")


def test_drawing_reaches_every_kind_of_client_and_fault():
    drawn = [draw(seed) for seed in range(300)]
    assert {fault.kind for each in drawn for fault in each.faults} == set(ONE_NODE_FAULTS)
    assert set(get_args(Fault.model_fields["kind"].annotation)) == set(FAULTS)
    kinds = {client.kind for each in drawn for client in each.clients}
    assert kinds == {"producer", "consumer", "administrator", "seeker", "updater", "recreator"}
    assert {topic.deletes for each in drawn for topic in each.topics} == {True, False}
    assert {fault.amount for each in drawn for fault in each.faults if fault.kind == "power-loss"} == {0, ANY_ORDER}
    assert {each.always_flushed for each in drawn} == {True, False}
    assert {each.retains for each in drawn} == {True, False}


OF_ZOOKEEPER = {kind for kind in FAULTS if kind.startswith("zookeeper-")}


def test_schedules_of_clusters_that_zookeeper_coordinates_reach_every_fault_of_zookeeper():
    drawn = [draw(seed, None, 3, coordination="zookeeper") for seed in range(200)]
    assert {fault.kind for each in drawn for fault in each.faults} >= OF_ZOOKEEPER
    assert len(OF_ZOOKEEPER) == 7
    assert {fault.messages for each in drawn for fault in each.faults} >= {
        "leader-and-isr",
        "stop-replica",
        "update-metadata",
    }
    assert all(Schedule.model_validate_json(each.to_json()) == each for each in drawn)


@pytest.mark.parametrize("nodes", [3, 5])
def test_schedules_of_clusters_reach_every_fault_and_survive_their_files(nodes: int):
    drawn = [draw(seed, None, nodes) for seed in range(400)]
    assert {fault.kind for each in drawn for fault in each.faults} == {*FAULTS} - OF_ZOOKEEPER - VOTING
    assert {each.log_directories for each in drawn} == {1, 2}
    assert {fault.messages for each in drawn for fault in each.faults} == {"", *MESSAGES}
    roles = {"", "leader", "controller", "bystander", "actor", "other", "between"}
    assert {fault.role for each in drawn for fault in each.faults} == roles
    steps = {"", "GiveUpReplica", *PARTITION_STEPS, *QUORUM_STEPS}
    assert {fault.after for each in drawn for fault in each.faults} == steps
    assert all(Schedule.model_validate_json(each.to_json()) == each for each in drawn)


@pytest.mark.parametrize("nodes, workload", [(1, "records"), (3, "transactions")])
def test_what_is_rare_is_added_to_some_seeds_and_changes_nothing_else(nodes: int, workload: str):
    for seed in range(20):
        drawn = draw(seed, None, nodes, workload)
        plain = [client for client in drawn.clients if client.kind not in ("seeker", "updater", "recreator")]
        plainest = LATE_AT if seed % LATE_EVERY == LATE_AT else 0
        # The draws are those of the seed; rare features are those of a seed without any.
        without = recipe(SeededChoices(seed), plainest, None, nodes, workload)
        assert tuple(plain) == without.clients
        assert {fault.kind for fault in without.faults} <= {fault.kind for fault in drawn.faults}
        if seed % 5 < 3:
            assert drawn == without.model_copy(update={"seed": seed})


def test_a_schedule_of_the_first_form_is_still_read(tmp_path: Path):
    path = tmp_path / "old.json"
    fault = {"at_ms": 150, "kind": "power-loss", "node": 0, "for_ms": 20, "amount": 0}
    old = {"format": "tidegauge-schedule/1", "seed": 3, "nodes": 1, "duration_ms": 400, "faults": [fault]}
    path.write_text(json.dumps(old))
    assert read_schedule(path).faults == (Fault(at_ms=150, kind="power-loss", for_ms=20),)


def test_shrinking_keeps_what_fails_and_drops_the_rest():
    def fails(candidate: Schedule) -> bool:
        kinds = [fault.kind for fault in candidate.faults]
        return "power-loss" in kinds and any(isinstance(client, Producer) for client in candidate.clients)

    seed = next(seed for seed in range(200) if len(draw(seed).faults) > 3 and fails(draw(seed)))
    small, trials = shrink(draw(seed), fails)
    assert [fault.kind for fault in small.faults] == ["power-loss"]
    assert len(small.clients) == len(small.topics) == 1
    (writer,) = small.clients
    assert isinstance(writer, Producer) and writer.batches == 1
    assert trials <= 300
    json.loads(small.to_json())


def test_shrinking_tries_fewer_nodes_and_drops_what_needs_the_others():
    cut = Fault(at_ms=10, kind="cut", node=3, others=(4,), for_ms=5)
    crash = Fault(at_ms=20, kind="crash", role="leader", topic="orders", node=2, for_ms=5)
    lead = Fault(at_ms=30, kind="lead", topic="orders", others=(5, 1))
    schedule = Schedule(nodes=5, faults=(cut, crash, lead))
    three = with_fewer_nodes(schedule, 3)
    assert three is not None and three.nodes == 3
    assert [(fault.kind, fault.others) for fault in three.faults] == [("crash", ()), ("lead", (1,))]
    alone = with_fewer_nodes(schedule, 1)
    assert alone is not None and alone.faults == (), "the crash was of node 2"
    small, _ = shrink(schedule, lambda candidate: any(fault.kind == "crash" for fault in candidate.faults))
    assert small.nodes == 2


def test_shrinking_leaves_a_copier_a_topic_to_read_and_one_to_write():
    topics = (Topic(name="a"), Topic(name="b"), Topic(name="c", is_output=True), Topic(name="d", is_output=True))
    small, _ = shrink(Schedule(seed=1, duration_ms=100, topics=topics), lambda schedule: True)
    assert sorted(topic.is_output for topic in small.topics) == [False, True]
