"""Reassignments and preferred elections that tools of 2.8 write into ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from reference.node.active_controller import Asked
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition import AlterPartitionRequest
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.zookeeper import znodes
from reference.zookeeper.operations import Delete, Multi, SetData, ZnodeVersion
from tests.zookeeper.local import NOW, OTHER, nodes
from tests.zookeeper.test_controller import TOPIC_ID, Alone

REPLICAS = [1, 2, 3]


def cluster(brokers: list[int], isr: list[int], leader: int = 1) -> Alone:
    """Topic t with one partition on brokers 1 to 3."""
    alone = Alone()
    for broker in brokers:
        if broker != 1:
            alone.register(broker)
    alone.make_topic(isr, leader)
    return alone


def begun(brokers: list[int], isr: list[int], leader: int = 1) -> Alone:
    alone = cluster(brokers, isr, leader)
    alone.win()
    alone.settle()
    return alone


def entry(replicas: list[int], topic: str = "t", index: int = 0) -> dict[str, Any]:
    return {"topic": topic, "partition": index, "replicas": replicas}


def write(alone: Alone, path: str, *entries: dict[str, Any]) -> None:
    alone.zookeeper.create(path, json.dumps({"version": 1, "partitions": entries}).encode())


def data_at(alone: Alone, path: str) -> bytes | None:
    found = alone.zookeeper.tree.find(path)
    return None if found is None else found.data


def asked(alone: Alone) -> list[dict[str, Any]] | None:
    data = data_at(alone, znodes.REASSIGNMENTS)
    return None if data is None else json.loads(data)["partitions"]


def assignment(alone: Alone) -> znodes.Assignment:
    data = data_at(alone, znodes.topic_path("t"))
    assert data is not None
    return znodes.decode_assignment("", data)


def propose(alone: Alone, isr: Sequence[int]) -> None:
    """The leader's AlterPartition."""
    partition = alone.controller.image.topics["t"].partitions[0]
    wanted = AlterPartitionRequest.PartitionData(
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=[
            AlterPartitionRequest.BrokerState(broker_id=each, broker_epoch=alone.controller.image.brokers[each].epoch)
            for each in nodes(*isr)
        ],
    )
    body = AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=alone.controller.image.brokers[partition.leader].epoch,
        topics=[AlterPartitionRequest.TopicData(topic_id=TOPIC_ID, partitions=[wanted])],
    )
    found: list[Any] = []
    alone.controller.decide(Asked(56, 3, body), lambda answer, now: found.append(answer), lambda now: None, NOW)
    alone.settle()
    assert found[0].topics[0].partitions[0].error_code == ErrorCode.NONE


def ask_to_reassign(alone: Alone, replicas: list[int] | None) -> int:
    """Send AlterPartitionReassignments; the partition's error code."""
    wanted = None if replicas is None else nodes(*replicas)
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=wanted)
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[partition])
    body = AlterPartitionReassignmentsRequest(topics=[topic])
    found: list[Any] = []
    alone.controller.decide(Asked(45, 0, body), lambda answer, now: found.append(answer), lambda now: None, NOW)
    alone.settle()
    return found[0].responses[0].partitions[0].error_code


def test_a_reassignment_is_begun_and_its_znode_goes_when_it_is_complete() -> None:
    alone = begun([1, 2, 3, 4], REPLICAS)
    write(alone, znodes.REASSIGNMENTS, entry([1, 2, 4]))
    alone.settle()
    assert (assignment(alone).adding, assignment(alone).removing) == ({0: [4]}, {0: [3]})
    assert asked(alone) == [entry([1, 2, 4])], "it is under way"
    propose(alone, [1, 2, 3, 4])
    assert (assignment(alone).partitions, assignment(alone).adding) == ({0: [1, 2, 4]}, {})
    assert asked(alone) is None
    write(alone, znodes.REASSIGNMENTS, entry([1, 2, 3]))
    alone.settle()
    assert assignment(alone).adding == {0: [3]}, "the next one is seen"


def test_what_cannot_be_reassigned_leaves_the_znode_and_the_rest_goes_on() -> None:
    alone = begun([1, 2, 3, 4], REPLICAS)
    entries = entry([1, 2], "unknown"), entry([1, 2, 4]), entry([1, 2], "t", 7)
    write(alone, znodes.REASSIGNMENTS, *entries)
    alone.settle()
    assert asked(alone) == [entry([1, 2, 4])]
    assert [text for text in alone.logged if "unknown-0 is not reassigned" in text]
    assert [text for text in alone.logged if "t-7 is not reassigned" in text]


@pytest.mark.parametrize("replicas", [[], [2, 2]])
def test_a_list_that_cannot_be_is_refused(replicas: list[int]) -> None:
    alone = begun([1, 2, 3], REPLICAS)
    write(alone, znodes.REASSIGNMENTS, entry(replicas))
    alone.settle()
    assert asked(alone) is None and assignment(alone).partitions == {0: REPLICAS}
    assert [text for text in alone.logged if "t-0 is not reassigned" in text]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version":1}', b'{"partitions":[{"topic":"t"}]}', b"\xff"])
def test_damaged_requests_stop_nothing(data: bytes) -> None:
    """As in Kafka a damaged reassignment stays, a damaged election goes; what is written instead is acted upon."""
    alone = cluster([1, 2, 3, 4], REPLICAS, leader=2)
    alone.zookeeper.create(znodes.REASSIGNMENTS, data)
    alone.zookeeper.create(znodes.PREFERRED_ELECTION, data)
    alone.win()
    alone.settle()
    assert alone.controller.is_active
    for path in (znodes.REASSIGNMENTS, znodes.PREFERRED_ELECTION):
        assert [text for text in alone.logged if text.startswith(path)]
    assert data_at(alone, znodes.REASSIGNMENTS) == data
    assert data_at(alone, znodes.PREFERRED_ELECTION) is None
    alone.zookeeper.tree.carry_out(Delete(znodes.REASSIGNMENTS), OTHER)
    write(alone, znodes.REASSIGNMENTS, entry([1, 2, 4]))
    alone.settle()
    assert assignment(alone).adding == {0: [4]}


@pytest.mark.parametrize("replica", ['"4"', "-1", "2147483648", "true", "[4]", "null", '"x"'])
def test_no_odd_number_becomes_a_replica(replica: str) -> None:
    alone = begun([1, 2, 3, 4], REPLICAS)
    text = json.dumps({"version": 1, "partitions": [entry([7])]}).replace("7", replica)
    alone.zookeeper.create(znodes.REASSIGNMENTS, text.encode())
    alone.settle()
    found = [each for replicas in assignment(alone).partitions.values() for each in replicas]
    assert all(type(each) is int and 1 <= each <= 4 for each in found)
    assert alone.controller.is_active


def test_a_broker_that_is_down_may_be_named_and_is_waited_for() -> None:
    alone = begun([1, 2, 3], REPLICAS)
    write(alone, znodes.REASSIGNMENTS, entry([1, 2, 4]))
    alone.settle()
    assert assignment(alone).adding == {0: [4]}
    alone.register(4)
    alone.settle()
    propose(alone, [1, 2, 3, 4])
    assert asked(alone) is None and assignment(alone).partitions == {0: [1, 2, 4]}


@pytest.mark.parametrize("steps", range(12))
def test_a_later_controller_goes_on_where_the_former_stopped(steps: int) -> None:
    """The term ends at any moment of the beginning; in the end it is begun once, and no entry is left over."""
    alone = begun([1, 2, 3, 4], REPLICAS)
    write(alone, znodes.REASSIGNMENTS, entry([1, 2, 4]))
    write(alone, znodes.PREFERRED_ELECTION, {"topic": "t", "partition": 0})
    for _ in range(steps):
        if alone.zookeeper._asked:
            alone.zookeeper.step()
    alone.controller.resign(NOW)
    alone.zookeeper.settle()
    alone.win_again()
    alone.settle()
    assert (assignment(alone).adding, assignment(alone).removing) == ({0: [4]}, {0: [3]})
    assert asked(alone) == [entry([1, 2, 4])] and data_at(alone, znodes.PREFERRED_ELECTION) is None
    propose(alone, [1, 2, 3, 4])
    assert asked(alone) is None


def test_a_reassignment_that_ended_without_a_controller_leaves_its_znode() -> None:
    alone = cluster([1, 2, 3, 4], REPLICAS)
    write(alone, znodes.REASSIGNMENTS, entry(REPLICAS), entry([4], "gone"))
    alone.win()
    alone.settle()
    assert asked(alone) is None and alone.state().leader_epoch == 5


@pytest.mark.parametrize(("replicas", "adding"), [([1, 3, 5], [5]), (None, [])])
def test_the_latest_request_counts(replicas: list[int] | None, adding: list[int]) -> None:
    alone = begun([1, 2, 3, 4, 5], REPLICAS)
    write(alone, znodes.REASSIGNMENTS, entry([1, 2, 4]))
    alone.settle()
    assert ask_to_reassign(alone, replicas) == ErrorCode.NONE
    assert asked(alone) is None
    assert assignment(alone).adding.get(0, []) == adding


def test_the_znode_is_left_before_another_target_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that follows between the two would bring the former request back."""
    alone = begun([1, 2, 3, 4, 5], REPLICAS)
    write(alone, znodes.REASSIGNMENTS, entry([1, 2, 4]))
    alone.settle()
    seen: list[type] = []
    carry_out = alone.zookeeper.tree.carry_out

    def noted(operation: Any, session: int) -> Any:
        if isinstance(operation, Multi):
            seen.extend(type(each) for each in operation.operations[1:])
        return carry_out(operation, session)

    monkeypatch.setattr(alone.zookeeper.tree, "carry_out", noted)
    ask_to_reassign(alone, [1, 3, 5])
    assert seen[0] is Delete and SetData in seen[1:]


def test_a_refused_request_leaves_the_znode() -> None:
    alone = begun([1, 2, 3, 4], REPLICAS)
    write(alone, znodes.REASSIGNMENTS, entry([1, 2, 4]))
    alone.settle()
    assert ask_to_reassign(alone, [1, 2, 9]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert asked(alone) == [entry([1, 2, 4])]


def test_replicas_that_stay_need_not_be_alive() -> None:
    """As validateReplicas of Kafka 3.9.2: only new ones must be."""
    alone = begun([1, 2, 4], [1, 2])
    assert ask_to_reassign(alone, [1, 3, 4]) == ErrorCode.NONE
    assert assignment(alone).adding == {0: [4]}


@pytest.mark.parametrize("isr", [[2, 3], [1, 2, 3]])
def test_preferred_replicas_are_elected_where_they_may_lead(isr: list[int]) -> None:
    alone = begun([1, 2, 3], isr, leader=2)
    places = ({"topic": "t", "partition": 0}, {"topic": "t", "partition": 3}, {"topic": "none", "partition": 0})
    write(alone, znodes.PREFERRED_ELECTION, *places)
    alone.settle()
    assert alone.state().leader == (1 if 1 in isr else 2)
    assert data_at(alone, znodes.PREFERRED_ELECTION) is None
    assert [text for text in alone.logged if "No such topic as none" in text]


def test_an_election_is_asked_for_again() -> None:
    alone = begun([1, 2, 3], REPLICAS)
    for _ in range(2):
        write(alone, znodes.PREFERRED_ELECTION, {"topic": "t", "partition": 0})
        alone.settle()
        assert data_at(alone, znodes.PREFERRED_ELECTION) is None
    assert alone.state().leader_epoch == 5, "it was not needed"


def test_a_znode_that_another_client_changes_meanwhile_is_read_again() -> None:
    alone = begun([1, 2, 3, 4], REPLICAS)
    write(alone, znodes.REASSIGNMENTS, entry([1, 2], "unknown"))
    while not isinstance(alone.zookeeper.next, Multi):
        alone.zookeeper.step()
    other = json.dumps({"version": 1, "partitions": [entry([1, 2, 4])]}).encode()
    alone.zookeeper.tree.carry_out(SetData(znodes.REASSIGNMENTS, other, ZnodeVersion(0)), OTHER)
    alone.zookeeper._fire()
    alone.controller.reload = lambda now: alone.win_again()
    alone.settle()
    assert alone.controller.is_active and assignment(alone).adding == {0: [4]}
    assert asked(alone) == [entry([1, 2, 4])]


@pytest.mark.parametrize("is_znode", [True, False])
def test_what_a_former_reassignment_was_about_to_add_is_forgotten(is_znode: bool) -> None:
    """As ReplicaAssignment.reassignTo of Kafka 3.9.2; by the rule of KRaft this one would never end."""
    alone = begun([1, 2, 3, 4, 5], REPLICAS)
    assert ask_to_reassign(alone, [1, 2, 4]) == ErrorCode.NONE
    if is_znode:
        write(alone, znodes.REASSIGNMENTS, entry([1, 3, 5]))
        alone.settle()
    else:
        ask_to_reassign(alone, [1, 3, 5])
    found = assignment(alone)
    assert (found.partitions, found.adding, found.removing) == ({0: [1, 3, 5, 2]}, {0: [5]}, {0: [2]})
    propose(alone, [1, 2, 3, 5])
    assert (assignment(alone).partitions, asked(alone)) == ({0: [1, 3, 5]}, None)
    ask_to_reassign(alone, [1, 3, 4])
    assert ask_to_reassign(alone, [1, 3, 5]) == ErrorCode.NONE
    assert (assignment(alone).partitions, assignment(alone).adding) == ({0: [1, 3, 5]}, {})


@pytest.mark.parametrize(("replicas", "error"), [([1, 9], ErrorCode.NONE), ([9], ErrorCode.INVALID_REPLICA_ASSIGNMENT)])
def test_a_new_topic_may_be_given_to_a_broker_that_is_down(replicas: list[int], error: ErrorCode) -> None:
    alone = begun([1, 2, 3], REPLICAS)
    alone.controller.image.is_beside_zookeeper = True
    by_hand = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    topic = CreateTopicsRequest.CreatableTopic(
        name="new", num_partitions=-1, replication_factor=-1, assignments=[by_hand]
    )
    found: list[Any] = []
    body = CreateTopicsRequest(topics=[topic])
    alone.controller.decide(Asked(19, 5, body), lambda answer, now: found.append(answer), lambda now: None, NOW)
    alone.settle()
    assert found[0].topics[0].error_code == error


def test_a_reassignment_ends_when_all_target_replicas_are_in_sync() -> None:
    """Replica 2 stays, and is down: with a metadata quorum Kafka does not wait for it."""
    alone = begun([1, 3, 4], [1, 3])
    alone.controller.image.is_beside_zookeeper = True
    assert ask_to_reassign(alone, [1, 2, 4]) == ErrorCode.NONE
    propose(alone, [1, 3, 4])
    assert (assignment(alone).adding, assignment(alone).removing) == ({0: [4]}, {0: [3]})
    alone.register(2)
    alone.zookeeper._fire()
    alone.settle()
    propose(alone, [1, 2, 3, 4])
    assert (assignment(alone).partitions, assignment(alone).adding) == ({0: [1, 2, 4]}, {})


def test_no_reassignment_leaves_only_replicas_that_are_not_in_sync() -> None:
    alone = begun([1, 2, 3, 4, 5], REPLICAS)
    ask_to_reassign(alone, [4, 5])
    propose(alone, [1, 4])
    for broker in (1, 2, 3):
        alone.end(broker)
    alone.settle()
    assert alone.state().isr == (4,)
    assert ask_to_reassign(alone, [5]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
