"""Reassignments and preferred elections by tools of 2.8 that write into ZooKeeper, and by damaged znodes: as Apache Kafka does."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from linearizability.targets import open_target
from linearizability.targets.artifacts import java, kafka_jars
from linearizability.targets.kafka_start import class_path
from linearizability.targets.zookeeper import ByZooKeeper
from linearizability.workload.cluster import look
from reference.protocol.primitives import NodeId
from reference.zookeeper import znodes
from tests.waiting import await_true

OLD = "2.8.2"
"""The last release whose tools write into ZooKeeper themselves."""
REASSIGN, ELECT = "kafka.admin.ReassignPartitionsCommand", "kafka.admin.PreferredReplicaLeaderElectionCommand"
WITHIN_S = 60

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]


class Tried:
    """A cluster with topic t, whose replicas are brokers 1 and 2; 1 is preferred."""

    def __init__(self, target: ByZooKeeper, client: Any, folder: Path) -> None:
        self.target = target
        self.client = client
        self.folder = folder
        self.admin = AdminClient({"bootstrap.servers": target.bootstrap, "log_level": 0})
        topic = NewTopic("t", 1, replica_assignment=[[1, 2]])
        self.admin.create_topics([topic])["t"].result(WITHIN_S)

    def tool(self, name: str, *arguments: object) -> str:
        command = [java(), "-cp", class_path(kafka_jars(OLD)), name, "--zookeeper", self.target.zookeeper.address]
        done = subprocess.run(
            [str(part) for part in (*command, *arguments)],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def file(self, *entries: dict[str, Any]) -> Path:
        found = self.folder / "asked.json"
        found.write_text(asked(*entries).decode())
        return found

    def partition(self) -> tuple[int, list[int], list[int]]:
        """Leader, replicas, and the in-sync ones in order."""
        (found,) = self.admin.list_topics("t", timeout=WITHIN_S).topics["t"].partitions.values()
        return found.leader, [*found.replicas], sorted(found.isrs)

    def data(self, path: str) -> bytes | None:
        try:
            return self.client.get(path)[0]
        except NoNodeError:
            return None

    def reassign(self, replicas: list[int]) -> None:
        """Reassign t-0 with the tool, and wait until the tool reports completion."""
        file = self.file(entry(replicas))
        said = self.tool(REASSIGN, "--execute", "--reassignment-json-file", file)
        assert "Successfully started partition reassignment for t-0" in said
        complete = "Reassignment of partition t-0 is complete."
        await_true(lambda: complete in self.tool(REASSIGN, "--verify", "--reassignment-json-file", file), complete)
        await_true(lambda: self.partition()[1:] == (replicas, sorted(replicas)), f"the replicas are {self.partition()}")
        assert self.data(znodes.REASSIGNMENTS) is None


def entry(replicas: list[int], topic: str = "t") -> dict[str, Any]:
    return {"topic": topic, "partition": 0, "replicas": replicas}


def asked(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"version": 1, "partitions": entries}).encode()


@contextmanager
def cluster(spec: str, folder: Path) -> Iterator[Tried]:
    with open_target(spec, folder=folder, config={"auto.leader.rebalance.enable": "false"}) as target:
        assert isinstance(target, ByZooKeeper)
        client = KazooClient(hosts=target.zookeeper.address)
        client.start()
        try:
            yield Tried(target, client, folder)
        finally:
            client.stop()
            client.close()


TARGETS = pytest.mark.parametrize("spec", ["reference-zk:3", "kafka-zk:3.9.2:3"])


@TARGETS
def test_tools_of_2_8_move_replicas_and_leaders(spec: str, tmp_path: Path) -> None:
    with cluster(spec, tmp_path) as tried:
        tried.reassign([2, 3])
        await_true(lambda: tried.partition()[0] in (2, 3), "a replica that is gone leads")
        tried.reassign([3, 2])
        led = 5 - tried.partition()[0]
        tried.reassign([led, 5 - led])
        assert tried.partition()[0] != led, "a new order alone elects no one"
        said = tried.tool(ELECT, "--path-to-json-file", tried.file({"topic": "t", "partition": 0}))
        assert "Successfully started preferred replica election for partitions Set(t-0)" in said
        await_true(lambda: tried.partition()[0] == led, "the preferred replica does not lead")
        await_true(lambda: tried.data(znodes.PREFERRED_ELECTION) is None, "the request is left")


@TARGETS
def test_a_reassignment_waits_for_replicas_that_stay(spec: str, tmp_path: Path) -> None:
    """Broker 2 stays, and is down; 3 is added, and in sync. With a metadata quorum the reassignment would be over."""
    with cluster(spec, tmp_path) as tried:
        tried.target.kill(2)
        await_true(lambda: tried.data(znodes.broker_path(NodeId(2))) is None, "the broker is still registered")
        tried.client.create(znodes.REASSIGNMENTS, asked(entry([2, 3])))
        await_true(lambda: tried.partition()[2] == [1, 3], "the added replica is not in sync")
        time.sleep(3)
        assert {*tried.partition()[1]} == {1, 2, 3}
        assert tried.data(znodes.REASSIGNMENTS) is not None
        tried.target.restart(2)
        await_true(lambda: tried.partition()[1:] == ([2, 3], [2, 3]), "the reassignment is not over")
        await_true(lambda: tried.data(znodes.REASSIGNMENTS) is None, "the request is left")


@TARGETS
def test_a_reassignment_goes_on_when_the_controller_is_killed(spec: str, tmp_path: Path) -> None:
    """Broker 3 is down: the reassignment waits for it, and the next controller goes on with it."""
    with cluster(spec, tmp_path) as tried:
        tried.target.kill(3)
        await_true(lambda: tried.data(znodes.broker_path(NodeId(3))) is None, "the broker is still registered")
        tried.client.create(znodes.REASSIGNMENTS, asked(entry([1, 3])))
        await_true(lambda: {*tried.partition()[1]} == {1, 2, 3}, "the reassignment is not begun")
        controller = look(tried.target.nodes, "t").controller
        tried.target.kill(controller)
        tried.target.restart(controller)
        assert tried.data(znodes.REASSIGNMENTS) is not None
        tried.target.restart(3)
        await_true(lambda: tried.partition()[1:] == ([1, 3], [1, 3]), "the reassignment does not end")
        await_true(lambda: tried.data(znodes.REASSIGNMENTS) is None, "the request is left")


@TARGETS
def test_damaged_requests_and_unknown_partitions_stop_nothing(spec: str, tmp_path: Path) -> None:
    with cluster(spec, tmp_path) as tried:
        for path, kept in ((znodes.PREFERRED_ELECTION, None), (znodes.REASSIGNMENTS, b"{")):
            tried.client.create(path, b"{")
            await_true(lambda at=path, left=kept: tried.data(at) == left, f"{path}: {tried.data(path)!r}")
        unknown = {"topic": "none", "partition": 0}
        tried.client.create(znodes.PREFERRED_ELECTION, asked(unknown, {"topic": "t", "partition": 7}))
        await_true(lambda: tried.data(znodes.PREFERRED_ELECTION) is None, "the request is left")
        assert tried.data(znodes.REASSIGNMENTS) == b"{", "what is damaged is ignored"
        controller = look(tried.target.nodes, "t").controller
        tried.client.delete(znodes.REASSIGNMENTS)
        tried.target.kill(controller)  # Kafka's controller sees no request after one that it did not delete itself
        tried.target.restart(controller)
        await_true(lambda: tried.partition()[2] == [1, 2], "not in sync")
        tried.client.create(znodes.REASSIGNMENTS, asked(entry([1, 2], "none"), entry([3, 2])))
        await_true(lambda: tried.data(znodes.REASSIGNMENTS) is None, "the request is left")
        await_true(lambda: tried.partition()[1:] == ([3, 2], [2, 3]), "the other partition is not reassigned")
