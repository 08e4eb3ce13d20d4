"""A plain subscribing consumer of each client: what it committed is where its group goes on, also after a restart."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from linearizability.targets import Target
from tests.clients.client import Client, Message
from tests.clients.confluent import Confluent
from tests.waiting import await_true

MESSAGES = [Message(str(number)) for number in range(30)]


def test_a_group_goes_on_where_it_committed(broker: Target, client: Client, topic: str) -> None:
    Confluent(broker.bootstrap).produce(topic, MESSAGES)
    group = f"group-{topic}"
    assert client.read_in_group(topic, group, 10) == MESSAGES[:10]
    assert client.read_in_group(topic, group, 5) == MESSAGES[10:15]
    broker.kill(1)
    broker.restart(1)
    assert client.read_in_group(topic, group, 15) == MESSAGES[15:]
    assert client.read_in_group(topic, f"other-{group}", 30) == MESSAGES


def test_members_share_the_partitions(broker: Target, topic: str) -> None:
    """Two members have all partitions between them; when one leaves, the other takes its part."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(30)
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"group-{topic}",
        "heartbeat.interval.ms": 100,
        "session.timeout.ms": 10_000,
    }
    members = [Member(settings, topic), Member(settings, topic)]
    try:
        await_true(lambda: [len(member.partitions) for member in members] == [2, 2], "two partitions each")
        assert sorted(members[0].partitions | members[1].partitions) == [0, 1, 2, 3]
        members[0].leave()
        await_true(lambda: members[1].partitions == {0, 1, 2, 3}, "all partitions with the one that stayed")
    finally:
        for member in members:
            member.leave()


class Member:
    """A consumer that polls in a thread of its own, as applications do, and notes what it is assigned."""

    def __init__(self, settings: dict[str, str | int | float | bool], topic: str) -> None:
        self.partitions: set[int] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._attend, args=(settings, topic))
        self._thread.start()

    def leave(self) -> None:
        self._end.set()
        self._thread.join()

    def _attend(self, settings: dict[str, str | int | float | bool], topic: str) -> None:
        consumer = Consumer(settings)
        consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        while not self._end.is_set():
            consumer.poll(0.1)
        consumer.close()

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self.partitions = {place.partition for place in places}

    def _revoked(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self.partitions = set()
