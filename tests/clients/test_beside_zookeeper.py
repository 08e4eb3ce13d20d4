"""Unmodified clients and three reference brokers that a ZooKeeper coordinates.

These are a few tests of the matrix; `CLIENTS_TARGET=reference-zk:3 pytest tests/clients` runs all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from linearizability.targets import Target, open_target
from linearizability.workload.cluster import look
from tests.clients.client import Message, Sending
from tests.clients.confluent import Confluent
from tests.clients.conftest import STREAMING, new_client
from tests.clients.test_produce_and_consume import LONG, stored_batches

MESSAGES = [Message(f"{LONG}{number}", f"key {number % 7}") for number in range(40)]

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with open_target("reference-zk:3", folder=tmp_path_factory.mktemp("zookeeper")) as target:
        yield target


@pytest.mark.parametrize("name", STREAMING)
def test_each_client_writes_reads_and_commits(name: str, cluster: Target, topic: str) -> None:
    client = new_client(name, cluster.bootstrap)
    client.produce(topic, MESSAGES, Sending(codec="gzip"))
    assert client.read(topic, len(MESSAGES)) == MESSAGES
    assert "gzip" in {header.codec.name.lower() for header in stored_batches(cluster, topic)}
    group = f"group-{topic}"
    assert client.read_in_group(topic, group, 10) == MESSAGES[:10]
    assert client.read_in_group(topic, group, 30) == MESSAGES[10:]


def test_a_group_goes_on_when_the_controller_was_killed(cluster: Target, topic: str) -> None:
    client = Confluent(cluster.bootstrap)
    client.produce(topic, MESSAGES)
    assert client.read_in_group(topic, topic, 10) == MESSAGES[:10]
    controller = look(cluster.nodes, topic).controller
    cluster.kill(controller)
    cluster.restart(controller)
    assert client.read_in_group(topic, topic, 30) == MESSAGES[10:]
