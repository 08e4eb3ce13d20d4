"""`JudgedCluster`: which nodes it asks and restores, and what it reports where the target cannot be complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

import conformance.cluster
import conformance.observations
from conformance.batches import batch
from conformance.broker import Broker
from conformance.cluster import JudgedCluster, cluster
from conformance.cluster_state import State, Writes
from conformance.host import addresses
from conformance.known_bugs import known_bugs
from conformance.levels import MAY
from conformance.moments import ATTEMPTS, Moment, in_time
from conformance.observations import Skipped
from conformance.requirement import Requirement, catalogue
from conformance.requirements import elections, reassignments, transaction_completion
from conformance.requirements.group_survival import group_at
from conformance.subject import LEADER_AND_ISR, Subject
from conformance.wire import BrokerConnection, Failed, NoAnswer
from linearizability.client.requests import Topic
from linearizability.targets import AddressMap
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.primitives import NO_UUID
from tests.conformance.parrot import Flock


class Hooks:
    """A target that only records the calls of its hooks."""

    hooks = ("kill", "stop", "restart", "pause", "resume")
    addresses = AddressMap()
    coordinator: int | None = None
    security = None

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []
        self.cuts: list[Any] = []

    def partition(self, groups: Any) -> None:
        self.cuts.append(groups)

    def heal(self) -> None:
        """Nothing was really cut."""

    def running(self, node: int) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda node, **_: self.done.append((name, node))


class Clock:
    """A clock that advances only by `sleep`."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s


@pytest.fixture
def flock() -> Iterator[Flock]:
    bird = Flock()
    yield bird
    bird.close()


@pytest.fixture
def broker(flock: Flock) -> Iterator[Broker]:
    record = Requirement(id="REP-99", level=MAY, sentence="A sentence.", source="a test", deadline_s=5)
    subject = Subject(addresses(flock.bootstrap) * 3, "4.3.1", flock.ranges(), Hooks(), nodes=3)
    with Broker(subject, record) as held:
        yield held


def test_whatever_was_done_is_undone(broker: Broker) -> None:
    with cluster(broker) as nodes:
        nodes.pause(1)
        nodes.kill(2)
        assert nodes.reachable == [3]
        assert broker.entrance == nodes.address(3)
    assert broker.target.done == [("pause", 1), ("kill", 2), ("resume", 1), ("restart", 2)]
    assert nodes.reachable == [1, 2, 3]
    assert broker.entrance is None


def test_a_request_may_be_forwarded_to_a_frozen_controller_first(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker of Kafka asks the controller that answered it last, and another one after 30 s of silence."""
    as_it_is = BrokerConnection.call

    def call(self: BrokerConnection, request: Any, version: int, *, timeout_s: float | None = None) -> Any:
        if isinstance(request, (AlterPartitionReassignmentsRequest, DescribeQuorumRequest)) and (timeout_s or 0) <= 31:
            raise NoAnswer("no answer in time")
        return as_it_is(self, request, version)

    with cluster(broker) as nodes:
        nodes.pause(1)
        monkeypatch.setattr(BrokerConnection, "call", call)
        for request in (AlterPartitionReassignmentsRequest(topics=[]), DescribeQuorumRequest(topics=[])):
            assert broker.call(request, timeout_s=30).error_code == ErrorCode.NONE


def test_an_isr_may_shrink_after_a_frozen_controller_was_asked(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower lags for 4.5 s, and the leader asks an earlier controller for 30 s; a busy machine needs longer for both."""
    clock = Clock()
    with cluster(broker) as nodes:
        topic = nodes.topic(1, 2)
        monkeypatch.setattr(conformance.observations, "time", clock)
        broker.deadline.at_s = 1e9
        nodes.await_state(topic, lambda _: clock.now_s > 50, "node 2 is not in sync")


@pytest.mark.parametrize(("back_s", "skips"), [(70, False), (1e6, True)])
def test_a_broker_that_is_fenced_at_the_start_fails_nothing(
    back_s: float, skips: bool, broker: Broker, flock: Flock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    whole = JudgedCluster._living  # pyright: ignore[reportPrivateUsage]

    def living(nodes: JudgedCluster, to: tuple[str, int] | None = None) -> dict[int, tuple[str, int]]:
        found = whole(nodes, to)
        return found if clock.now_s > back_s else {1: found[1]}

    broker.deadline.at_s = 1e9
    monkeypatch.setattr(JudgedCluster, "_living", living)
    monkeypatch.setattr(conformance.observations, "time", clock)
    if skips:
        with pytest.raises(Skipped, match=r"needs 3 brokers; Metadata reports \[1\] alone"):
            JudgedCluster(broker)
    else:
        assert len(JudgedCluster(broker).addresses) == 3


def test_a_node_that_is_not_to_be_hurt_may_coordinate_every_group(broker: Broker) -> None:
    with cluster(broker) as nodes:
        nodes.addresses = {1: ("one", 1), 2: ("other", 1), 3: broker.coordinator("any")}
        group, node = group_at(broker, nodes, 1, 2)
        assert (node, group.address) == (3, nodes.address(3))


def test_the_node_that_coordinates_every_transaction_is_not_frozen(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[int] = []

    def begun(nodes: JudgedCluster, node: int, *_: Any, **__: Any) -> None:
        frozen.append(node)
        raise Failed("enough")

    monkeypatch.setattr(JudgedCluster, "cast", lambda _: (1, 2, 3))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setattr(transaction_completion, "begun", begun)
    with pytest.raises(Failed, match="enough"):
        transaction_completion.in_each_outcome(broker, lambda _: None)
    assert frozen == [2]


def test_it_is_undone_after_a_failure_too(broker: Broker) -> None:
    with pytest.raises(Failed, match="meanwhile"), cluster(broker) as nodes:
        nodes.kill(2)
        raise Failed("meanwhile")
    assert broker.target.done == [("kill", 2), ("restart", 2)]


def test_a_node_that_was_killed_while_frozen_is_restarted_only(broker: Broker) -> None:
    with cluster(broker) as nodes, nodes.paused(1):
        nodes.kill(1)
    assert broker.target.done == [("pause", 1), ("kill", 1), ("restart", 1)]


def test_a_node_is_cut_off_from_the_zookeeper_too(broker: Broker) -> None:
    with cluster(broker) as nodes:
        broker.target.coordinator = 4
        nodes.cut_off(2)
        assert broker.target.cuts == [[[2], [1, 3]]]
        broker.subject.api_versions[LEADER_AND_ISR] = (0, 7)
        nodes.cut_off(2)
        assert broker.target.cuts[1:] == [[[2], [1, 3, 4]]]


def test_what_needs_a_cut_from_a_zookeeper_that_the_target_does_not_offer_is_not_judged(broker: Broker) -> None:
    broker.subject.api_versions[LEADER_AND_ISR] = (0, 7)
    with pytest.raises(Skipped, match="ZooKeeper"), cluster(broker) as nodes:
        nodes.cut_off(1)
    assert not broker.target.cuts


def test_a_topic_lies_where_it_was_placed(broker: Broker, flock: Flock) -> None:
    state = JudgedCluster(broker).state(JudgedCluster(broker).topic(3, 1))
    assert (state.leader, state.replicas, state.isr) == (3, (3, 1), {1, 3})
    assert list(flock.placed.values()) == [[3, 1]]


@pytest.mark.parametrize("replicas", [(3, 2, 1), (3, 1), (2,)])
def test_a_topic_is_moved_where_another_order_of_its_replicas_is_not_heeded(
    replicas: tuple[int, ...], broker: Broker, flock: Flock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As crabka does, which places replicas by itself, compares sets of replicas, and keeps the former replicas in front."""

    def reassign(topic: Topic, *wanted: int) -> Any:
        former = flock.placed[topic.name]
        if {*wanted} != {*former}:
            stay = [one for one in former if one in wanted]
            flock.placed[topic.name] = stay + [one for one in wanted if one not in stay]
        return SimpleNamespace(error_code=ErrorCode.NONE)

    broker.subject.profile.places = False
    monkeypatch.setattr("conformance.placing.MOVED_WITHIN_S", 0.5)
    nodes = JudgedCluster(broker)
    monkeypatch.setattr(nodes, "reassign", reassign)
    state = nodes.state(nodes.topic(*replicas))
    assert (state.leader, state.replicas) == (replicas[0], replicas)


def test_an_order_that_is_not_heeded_is_the_step_of_another_requirement(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As crabka does, which compares sets of replicas: this fails ELE-14, not the election of the preferred leader."""
    nodes = JudgedCluster(broker)
    topic = nodes.topic(1, 2)
    monkeypatch.setattr(nodes, "reassign", lambda *_: SimpleNamespace(error_code=ErrorCode.NONE))
    monkeypatch.setattr(conformance.observations, "time", Clock())
    with pytest.raises(Failed, match="in the order") as unheeded:
        nodes.change_leader(topic, 2)
    assert unheeded.value.built_on == "ELE-14"
    assert "ELE-14" in catalogue()["ELE-05"].requirement.builds_on


@pytest.mark.parametrize(("heeds", "step"), [(True, ""), (False, "ELE-14")])
def test_leaders_are_not_balanced_by_an_order_that_is_not_heeded(
    heeds: bool, step: str, broker: Broker, flock: Flock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The preferred replica leads all along, as on crabka: this fails ELE-14, not ELE-07."""

    @contextmanager
    def judged(_: Broker) -> Iterator[JudgedCluster]:
        yield nodes

    nodes = JudgedCluster(broker)

    def reassign(topic: Topic, *wanted: int) -> Any:
        if heeds:
            flock.placed[topic.name] = [*wanted]
        return SimpleNamespace(error_code=ErrorCode.NONE)

    monkeypatch.setattr(elections, "cluster", judged)
    monkeypatch.setattr(nodes, "reassign", reassign)
    monkeypatch.setattr(nodes, "cast", lambda: (1, 2, 3))
    monkeypatch.setattr(conformance.observations, "time", Clock())
    broker.deadline.at_s = 1e9
    with pytest.raises(Failed) as unbalanced:
        catalogue()["ELE-07"].test(broker)  # type: ignore[misc]
    assert unbalanced.value.built_on == step


def test_a_base_offset_beside_an_error_is_the_business_of_another_requirement(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """crabka returns base offset 0 with NOT_LEADER_OR_FOLLOWER. PRD-27 is about that; no record is stored."""

    @contextmanager
    def judged(_: Broker) -> Iterator[Any]:
        named = SimpleNamespace(expect_leader_named=lambda *_: None, cast=lambda: (1, 2, 3))
        named.topic, named.address = nodes.topic, nodes.address
        yield named

    def refused(*_: Any, **__: Any) -> Any:
        partition = SimpleNamespace(
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            base_offset=0,
            current_leader=SimpleNamespace(leader_id=1, leader_epoch=0),
        )
        return SimpleNamespace(responses=[SimpleNamespace(partition_responses=[partition])], node_endpoints=[])

    nodes = JudgedCluster(broker)
    topic = nodes.topic(1, 2)
    monkeypatch.setattr(nodes, "topic", lambda *_: topic)
    test: Any = catalogue()["PRD-02"].test
    monkeypatch.setitem(test.__globals__, "cluster", judged)
    monkeypatch.setattr(broker, "append", lambda *_: 0)
    monkeypatch.setattr(broker, "log", lambda *_: batch(b"a"))
    monkeypatch.setattr(broker, "versions_of", lambda *_: (9, 9))
    monkeypatch.setattr(broker, "call", refused)
    test(broker)
    assert {*broker.tolerances} == {
        f"v9 at node {node}: the base offset of a response with an error is 0" for node in (2, 3)
    }


def test_a_leader_without_an_address_is_asked_for_in_metadata(broker: Broker) -> None:
    """crabka names the leader of KIP-951 without its address; Java leaves such a leader aside. A wrong one misleads it."""
    nodes = JudgedCluster(broker)
    topic = nodes.topic(1, 2)
    leader, epoch = nodes.state(topic).leader, nodes.state(topic).epoch
    host, port = nodes.address(leader)
    nodes.expect_leader_named(topic, (leader, epoch), [SimpleNamespace(node_id=leader, host=host, port=port)])
    assert broker.tolerances == []
    nodes.expect_leader_named(topic, (-1, -1), [])
    nodes.expect_leader_named(topic, (leader, epoch), [])
    assert broker.tolerances == [
        "the leader and epoch that are named are (-1, -1)",
        f"no address of the leader {leader} is given",
    ]
    with pytest.raises(Failed, match="the leader and epoch"):
        nodes.expect_leader_named(topic, (2, epoch), [])
    with pytest.raises(Failed, match="where the leader is"):
        nodes.expect_leader_named(topic, (leader, epoch), [SimpleNamespace(node_id=leader, host=host, port=port + 1)])


def test_a_move_that_ends_in_another_order_has_lost_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = JudgedCluster(broker)
    topic = nodes.topic(1, 2)
    monkeypatch.setattr(reassignments, "ongoing", lambda *_: None)
    reassignments.expect_done(nodes, topic, 2, 1)
    assert broker.tolerances == ["the replicas are in the order (1, 2), and not (2, 1)"]


def test_a_leader_that_does_not_learn_of_it_is_no_missing_unclean_election(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's bug that excuses a failure of ELE-03 is recognised by the text of the wait that failed."""
    shows = known_bugs("kafka:3.5.2:3")["ELE-03"].shows
    nodes = JudgedCluster(broker)
    topic, state = nodes.topic(1, 2), nodes.state
    monkeypatch.setattr(conformance.observations, "time", Clock())
    with pytest.raises(Failed, match="node 2 leads") as none_leads:
        nodes.await_leader(topic, 2)
    assert shows in str(none_leads.value)
    broker.deadline.at_s = 1e9
    monkeypatch.setattr(nodes, "state", lambda topic, via=None: replace(state(topic), epoch=-2 if via else 0))
    with pytest.raises(Failed, match="knows that it leads") as unlearned:
        nodes.await_leader(topic, 1)
    assert shows not in str(unlearned.value)


def test_partitions_of_one_request_share_a_broker(broker: Broker, flock: Flock) -> None:
    assert broker.create_topic("three", 3, placed=[[2]] * 3).error_code == ErrorCode.NONE
    assert flock.placed["three"] == [2]


def test_an_unknown_topic_has_no_leader_and_any_node_is_asked(broker: Broker, flock: Flock) -> None:
    assert broker.leader(Topic("unknown", NO_UUID, 1), 77) == ("127.0.0.1", flock.port)


def test_writes_are_distinguished_and_losses_are_seen(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = Writes()
    assert [writes.value(), writes.value()] == [b"0", b"1"]
    nodes = JudgedCluster(broker)
    topic = nodes.topic(1)
    nodes.write_some(topic, writes, 1)
    assert writes.acknowledged == {b"2": 0}
    monkeypatch.setattr("conformance.cluster.SHOWN_WITHIN_S", 0.1)
    with pytest.raises(Failed, match="lost"):
        nodes.expect_kept(topic, writes)  # the flock keeps nothing


def test_what_a_new_leader_shows_a_moment_later_is_not_lost(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, writes = JudgedCluster(broker), Writes()
    topic = nodes.topic(1)
    writes.acknowledged = {writes.value(): 0, writes.value(): 1}
    shown = [b"", batch(b"0"), batch(b"0", b"1")]
    monkeypatch.setattr(broker, "log", lambda _: shown.pop(0))
    nodes.expect_kept(topic, writes)
    assert not shown


def test_a_machine_that_is_too_slow_skips(broker: Broker) -> None:
    tries: list[int] = []

    def once() -> bool:
        tries.append(1)
        return False

    with pytest.raises(Skipped, match="too slow"):
        in_time(broker, once)
    assert len(tries) == ATTEMPTS
    in_time(broker, lambda: True)


@pytest.mark.parametrize(("failing", "fails"), [(0, False), (1, False), (2, True)])
def test_a_follower_may_be_fenced_in_one_attempt(failing: int, fails: bool, broker: Broker) -> None:
    left = ["NONE(0) instead of REQUEST_TIMED_OUT(7)"] * failing

    def once() -> bool:
        if left:
            raise Failed(left.pop())
        return True

    if fails:
        with pytest.raises(Failed, match="REQUEST_TIMED_OUT"):
            in_time(broker, once, failures=2)
    else:
        in_time(broker, once, failures=2)


def test_a_moment_ends() -> None:
    assert Moment().lasts
    assert not Moment(began_s=0.0).lasts


OF_A_LEADER = Requirement(id="REP-09", level=MAY, sentence="A sentence of its own.", source="a test")


def test_a_leader_that_does_not_know_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an election on crabka other nodes name the leader, and it serves reads as any replica, before it takes writes."""
    nodes: Any = JudgedCluster.__new__(JudgedCluster)
    asked_itself: list[int] = []

    def state(topic: Any, via: int | None = None) -> State:
        if via is None:
            return State(2, 1, (1, 2), frozenset({2}))
        asked_itself.append(via)
        return State(2, 1, (1, 2), frozenset({2})) if len(asked_itself) > 3 else State(1, 0, (1, 2), frozenset({1, 2}))

    monkeypatch.setattr(JudgedCluster, "state", lambda nodes, topic, via=None: state(topic, via))
    monkeypatch.setattr(JudgedCluster, "await_served", lambda nodes, topic: None)
    with Broker(Subject([("127.0.0.1", 1)], "4.3.1"), OF_A_LEADER) as nodes.broker:
        assert nodes.await_leader(Topic("topic", UUID(int=1), 1), 2).epoch == 1
    assert asked_itself == [2, 2, 2, 2]
