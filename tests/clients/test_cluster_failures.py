"""Three nodes, and each client's idempotent producer at work on them while they are restarted, killed and frozen in turn.

Nothing that was acknowledged is lost, nothing is there twice, and the order is that of the sends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from linearizability.faults.plan import FAST_FAILOVER
from linearizability.targets import Target, open_target
from linearizability.workload.cluster import create_topic, look
from tests.clients.client import CannotDo, StreamingClient
from tests.clients.confluent import Confluent
from tests.clients.conftest import STREAMING, new_client
from tests.clients.kcat import find_kcat

WHOLE_WITHIN_S = 90
FROZEN_S = 5.0
"""Longer than broker.session.timeout.ms: the others go on without the frozen leader, which wakes up deposed."""
PAUSE_S = 0.005


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    config = FAST_FAILOVER | {"min.insync.replicas": "2", "default.replication.factor": "3"}
    with open_target("reference:3", folder=tmp_path_factory.mktemp("cluster"), config=config) as target:
        yield target


def whole(cluster: Target, topics: list[str]) -> None:
    """Wait until every replica of every topic is in sync."""
    until = time.monotonic() + WHOLE_WITHIN_S
    while not all(look(cluster.nodes, topic).complete(1) for topic in topics):
        assert time.monotonic() < until, f"not every replica was in sync within {WHOLE_WITHIN_S} s"
        time.sleep(0.2)


def pump(client: StreamingClient, topic: str, enough: Event) -> list[str]:
    """Send until it is enough, and see all acknowledged; gives what was sent."""
    stream = client.stream(topic)
    sent: list[str] = []
    while not enough.is_set():
        sent.append(str(len(sent)))
        stream.send(sent[-1])
        time.sleep(PAUSE_S)
    stream.finish()
    return sent


def test_every_client_outlives_whatever_befalls_the_nodes(cluster: Target) -> None:
    clients = {name: new_client(name, cluster.bootstrap) for name in STREAMING if name != "kcat" or has_kcat()}
    topics = {name: f"outlived-{name}" for name in clients}
    for topic in topics.values():
        create_topic(cluster.nodes, topic, partitions=1, replication_factor=3, configs={})
    enough = Event()
    with ThreadPoolExecutor(len(clients)) as pool:
        working = {name: pool.submit(pump, client, topics[name], enough) for name, client in clients.items()}
        try:
            befall(cluster, [*topics.values()])
        finally:
            enough.set()
    for name, sent in ((name, work.result()) for name, work in working.items()):
        stored = [message.value for message in Confluent(cluster.bootstrap).read(topics[name], len(sent))]
        assert stored == sent, f"{name}: {len(set(sent) - set(stored))} of {len(sent)} are lost"
        assert Confluent(cluster.bootstrap).end_offset(topics[name]) == len(sent), f"{name}: records are there twice"
        assert len(sent) > 100


def befall(cluster: Target, topics: list[str]) -> None:
    for node in cluster.nodes:
        cluster.stop(node.id)
        cluster.restart(node.id)
        whole(cluster, topics)
    for node in cluster.nodes:
        cluster.kill(node.id)
        time.sleep(1.0)
        cluster.restart(node.id)
        whole(cluster, topics)
    leader = look(cluster.nodes, topics[0]).partitions[0].leader
    cluster.pause(leader)
    time.sleep(FROZEN_S)
    cluster.resume(leader)
    whole(cluster, topics)


def has_kcat() -> bool:
    try:
        find_kcat()
    except CannotDo:
        return False
    return True
