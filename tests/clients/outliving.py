"""Each client's idempotent producer at work on three nodes while these are restarted, killed, frozen and cut off in turn.

    python -m tests.clients.outliving FOLDER        # what became of each client's records, as one JSON object

Inside a sandbox (`linearizability.faults.sandbox`) the nodes have a network of their own, and a leader is cut off from the
others.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from linearizability.faults.networked import open_networked
from linearizability.faults.plan import FAST_FAILOVER
from linearizability.faults.sandbox import inside
from linearizability.targets import Target, open_target
from linearizability.workload.cluster import create_topic, look
from tests.clients.client import Client, GaveUp
from tests.clients.confluent import Confluent
from tests.clients.conftest import can_stream, new_client

CONFIG = FAST_FAILOVER | {"min.insync.replicas": "2", "default.replication.factor": "3"}
WHOLE_WITHIN_S = 90
AWAY_S = 5.0
"""Longer than broker.session.timeout.ms: the others go on without the leader, which comes back deposed."""
PAUSE_S = 0.005


def outlive(cluster: Target) -> dict[str, dict[str, int]]:
    """Client -> how many of its records were sent, given up, lost and doubled, and whether (1 or 0) their order was kept."""
    clients = {name: new_client(name, cluster.bootstrap) for name in can_stream()}
    topics = {name: f"outlived-{name}" for name in clients}
    for topic in topics.values():
        create_topic(cluster.nodes, topic, partitions=1, replication_factor=3, configs={})
    enough = Event()
    with ThreadPoolExecutor(len(clients)) as pool:
        working = {name: pool.submit(drain, client, topics[name], enough) for name, client in clients.items()}
        try:
            inject_faults(cluster, [*topics.values()])
        finally:
            enough.set()
    return {name: compared(cluster, topics[name], *work.result()) for name, work in working.items()}


def drain(client: Client, topic: str, enough: Event) -> tuple[list[str], frozenset[str | None]]:
    """Send until `enough` is set. Returns the sent values, and those that the client gave up; all others are acknowledged."""
    stream = client.stream(topic)
    sent: list[str] = []
    while not enough.is_set():
        sent.append(str(len(sent)))
        stream.send(sent[-1])
        time.sleep(PAUSE_S)
    try:
        stream.finish()
    except GaveUp as gave_up:
        return sent, gave_up.values
    return sent, frozenset()


def compared(cluster: Target, topic: str, sent: list[str], given_up: frozenset[str | None]) -> dict[str, int]:
    reader = Confluent(cluster.bootstrap)
    stored = [message.value for message in reader.read(topic, reader.end_offset(topic))]
    found = set(stored)
    return {
        "sent": len(sent),
        "given up": len(given_up),
        "lost": len(set(sent) - given_up - found),
        "doubled": len(stored) - len(found),
        "in order": int(stored == [value for value in sent if value in found]),
    }


def inject_faults(cluster: Target, topics: list[str]) -> None:
    """Stop, kill, freeze and cut off nodes in turn. After each fault all replicas must be in sync again."""
    for node in cluster.nodes:
        cluster.stop(node.id)
        cluster.restart(node.id)
        whole(cluster, topics)
    for node in cluster.nodes:
        cluster.kill(node.id)
        time.sleep(1.0)
        cluster.restart(node.id)
        whole(cluster, topics)
    leader = leader_of(cluster, topics[0])
    cluster.pause(leader)
    time.sleep(AWAY_S)
    cluster.resume(leader)
    whole(cluster, topics)
    if "partition" in cluster.hooks:
        leader = leader_of(cluster, topics[0])
        cluster.partition([[leader], [node.id for node in cluster.nodes if node.id != leader]])
        time.sleep(AWAY_S)
        cluster.heal()
        whole(cluster, topics)


def leader_of(cluster: Target, topic: str) -> int:
    return look(cluster.nodes, topic).partitions[0].leader


def whole(cluster: Target, topics: list[str]) -> None:
    """Wait until every replica of every topic is in sync."""
    until = time.monotonic() + WHOLE_WITHIN_S
    while not all(look(cluster.nodes, topic).complete(1) for topic in topics):
        assert time.monotonic() < until, f"not every replica was in sync within {WHOLE_WITHIN_S} s"
        time.sleep(0.2)


def main(folder: Path) -> None:
    open_cluster = open_networked if inside() else open_target
    with open_cluster("reference:3", folder=folder, config=CONFIG) as cluster:
        print(json.dumps(outlive(cluster) | {"cut off": {"leaders": int("partition" in cluster.hooks)}}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
