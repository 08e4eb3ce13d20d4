"""Unmodified clients share partitions by each assignor that they have, static members keep their place, and clients of
different makers get along in one group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from linearizability.targets import Target
from tests.clients.members import MEMBERS, Member, await_shares
from tests.waiting import await_true

PARTITIONS = 6

STRATEGIES = [
    *(("confluent-kafka", strategy) for strategy in ("range", "roundrobin", "cooperative-sticky")),
    *(("kafka-python", strategy) for strategy in ("range", "roundrobin", "sticky", "cooperative-sticky")),
    *(("aiokafka", strategy) for strategy in ("range", "roundrobin", "sticky")),
]


@pytest.fixture
def wide_topic(broker: Target, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    return topic


@contextmanager
def leaving(members: list[Member]) -> Iterator[list[Member]]:
    try:
        yield members
    finally:
        for member in members:
            member.leave()


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize(("client", "strategy"), STRATEGIES)
def test_members_come_and_go(broker: Target, wide_topic: str, client: str, strategy: str) -> None:
    group = f"group-{wide_topic}"

    def new() -> Member:
        return MEMBERS[client](broker.bootstrap, wide_topic, group, strategy)

    with leaving([new(), new()]) as members:
        await_shares(members, [3, 3])
        members.append(new())
        await_shares(members, [2, 2, 2])
        members.pop(0).leave()
        await_shares(members, [3, 3])


@pytest.mark.parametrize("client", MEMBERS)
def test_a_static_member_restarts_without_a_rebalance(broker: Target, wide_topic: str, client: str) -> None:
    group = f"group-{wide_topic}"

    def new(instance: str) -> Member:
        return MEMBERS[client](broker.bootstrap, wide_topic, group, "range", instance)

    with leaving([new("one"), new("two")]) as members:
        await_shares(members, [3, 3])
        stays, goes = members
        owned, rebalances = goes.partitions, stays.rebalances
        goes.leave()
        members[1] = new("two")
        await_true(lambda: members[1].partitions == owned, lambda: f"{owned} again, not {members[1].partitions}")
        assert stays.rebalances == rebalances


def test_clients_of_different_makers_share_a_group(broker: Target, wide_topic: str) -> None:
    group = f"group-{wide_topic}"
    with leaving([kind(broker.bootstrap, wide_topic, group, "range") for kind in MEMBERS.values()]) as members:
        await_shares(members, [2, 2, 2])
