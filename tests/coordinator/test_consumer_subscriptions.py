"""Subscriptions of a consumer group: topics, patterns, and the assignor that makes the targets."""

import pytest

from reference.coordinator.consumer_group_description import describe
from reference.coordinator.group_settings import ConsumerGroupSettings
from reference.protocol.errors import ErrorCode
from tests.coordinator.consumer_room import Client, Room, settle


def test_another_subscription_raises_the_epoch() -> None:
    """CGH-15."""
    room = Room(foo=1, bar=1)
    client = Client(room, "a", topics=["foo"])
    client.join()
    epoch = room.group().epoch
    client.subscribe("bar")
    assert room.group().epoch == epoch + 1
    client.beat()
    assert client.names() == {("bar", 0)}


@pytest.mark.step("groups", "RaiseGroupEpoch")
def test_more_partitions_raise_the_epoch() -> None:
    """CGH-15."""
    room = Room(foo=1)
    client = Client(room, "a", topics=["foo"])
    client.join()
    epoch = room.group().epoch
    client.beat()
    room.topics.grow("foo", 3)
    room.consumer.topics_changed(["foo"], are_new=True)
    client.beat()
    assert room.group().epoch == epoch + 1
    assert len(client.names()) == 3


def test_a_topic_comes_and_goes() -> None:
    """CGH-15: one that does not exist yet may be subscribed to."""
    room = Room()
    client = Client(room, "a", topics=["foo"])
    client.join()
    assert client.names() == set()
    room.topics.make("foo", 1)
    room.consumer.topics_changed(["foo"], are_new=True)
    client.beat()
    assert client.names() == {("foo", 0)}
    room.topics.delete("foo")
    room.consumer.topics_changed(["foo"], are_new=True)
    client.beat()
    client.beat()
    assert client.owned == set()


@pytest.mark.step("groups", "UpdateTarget")
def test_targets_are_made_at_most_once_an_interval() -> None:
    """CGH-15: group.consumer.assignment.interval.ms."""
    room = Room(ConsumerGroupSettings(assignment_interval_ms=1_000), foo=2)
    first, second = Client(room, "a", topics=["foo"]), Client(room, "b", topics=["foo"])
    first.join()
    room.now += 999
    second.join()
    assert room.group().state_name == "Assigning"
    room.now += 1
    first.beat()
    assert room.group().state_name == "Reconciling"


def test_patterns() -> None:
    """CGH-16: what matches is found after the heartbeat, and reported with the next."""
    room = Room(foo=1, food=1, bar=1)
    client = Client(room, "a", regex="foo.*")
    assert client.join().error_code == ErrorCode.NONE
    assert client.names() == set()
    room.pass_time(1)
    client.beat()
    assert client.names() == {("foo", 0), ("food", 0)}
    room.topics.make("football", 1)
    room.consumer.topics_changed(["football"], are_new=True)
    room.pass_time(10_001)
    client.beat()
    room.pass_time(1)
    client.beat()
    assert ("football", 0) in client.names()
    assert room.group().is_subscribed_to("football")
    client.leave()
    assert room.group().patterns == {}


@pytest.mark.parametrize("pattern", ["foo(", "[", "a**", "(?=x)", r"\1"])
def test_patterns_that_are_none(pattern: str) -> None:
    """CGH-16."""
    room = Room(foo=1)
    assert Client(room, "a", regex=pattern).join().error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert room.log == []


def test_names_and_patterns_go_together() -> None:
    room = Room(foo=1, bar=1, qux=1)
    client = Client(room, "a", topics=["bar"], regex="f.*")
    client.join()
    room.pass_time(1)
    client.beat()
    assert client.names() == {("foo", 0), ("bar", 0)}
    client.subscribe()
    room.pass_time(20_000)
    settle(room, [client], 2)
    assert client.names() == {("foo", 0)}


def test_the_assignor_that_most_members_name() -> None:
    """CGH-04."""
    room = Room(foo=3, bar=3)
    clients = [Client(room, name, topics=["foo", "bar"], assignor="range") for name in "ab"]
    clients.append(Client(room, "c", topics=["foo", "bar"], assignor="uniform"))
    for client in clients:
        client.join()
    settle(room, clients)
    assert [client.names() for client in clients] == [{("foo", i), ("bar", i)} for i in range(3)]
    assert describe(room.group(), room.topics, "uniform").assignor_name == "range"
