"""Controllers of Apache Kafka and of the reference in one quorum whose voters change, by Kafka's own tools (KIP-853)."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from linearizability.targets import open_target
from linearizability.targets.cluster import Cluster, Member
from linearizability.targets.kafka import KafkaCluster
from linearizability.targets.mixed import MixedCluster
from linearizability.targets.reference import TIDEGAUGE

WITHIN_S = 90
QUIET = {"log_level": 0}
FIRST, JOINING = 1, 2


class ChangingCluster(MixedCluster):
    """The first node is the first voter; the others ask it who votes."""

    def __init__(self, kinds: list[str], folder: Path) -> None:
        opened = [open_target(kind, folder=folder / "unused") for kind in kinds]
        assert all(isinstance(each, Cluster) for each in opened)
        super().__init__("mixed:" + ",".join(kinds), opened, [True] * len(kinds), folder=folder)  # type: ignore[arg-type]

    def properties(self, member: Member) -> dict[str, str]:
        given = super().properties(member)
        del given["controller.quorum.voters"]
        servers = ",".join(f"{each.node.host}:{each.controller_port}" for each in self.members)
        return given | {"controller.quorum.bootstrap.servers": servers}

    def format(self, member: Member) -> None:
        option = "--standalone" if member.node.id == FIRST else "--no-initial-controllers"
        kind = self._kind(member)
        if isinstance(kind, KafkaCluster):
            arguments = "format", "-t", self.cluster_id, "-c", member.properties_file, option
            command = kind.java_command(["-XX:TieredStopAtLevel=1"], "kafka.tools.StorageTool", *arguments)
        else:
            command = [*TIDEGAUGE, "format", member.properties_file, "--cluster-id", self.cluster_id, option]
        subprocess.run(command, check=True, capture_output=True, timeout=WITHIN_S)

    def tool(self, *arguments: str | Path) -> str:
        """What kafka-metadata-quorum of 4.3.1 says, asked through the second node."""
        kafka = next(kind for kind in self.kinds if isinstance(kind, KafkaCluster))
        node = self.member(JOINING).node
        servers = "--bootstrap-server", f"{node.host}:{node.port}"
        command = kafka.java_command(
            ["-XX:TieredStopAtLevel=1"], "org.apache.kafka.tools.MetadataQuorumCommand", *servers, *arguments
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        return done.stdout + done.stderr

    def add(self, node: int) -> str:
        return self.tool("--command-config", self.member(node).properties_file, "add-controller")

    def remove(self, node: int) -> str:
        meta = (self.member(node).data / "meta.properties").read_text()
        found = re.search(r"^directory\.id=(.*)$", meta, re.M)
        assert found is not None
        options = "--controller-id", str(node), "--controller-directory-id", found[1]
        return self.tool("remove-controller", *options)

    def quorum(self) -> tuple[int, list[int]]:
        """The leader and the voters, as the tool describes them."""
        said = self.tool("describe", "--status")
        leader, voters = re.search(r"LeaderId: +(\d+)", said), re.search(r"CurrentVoters: +(.*)", said)
        if leader is None or voters is None:
            return -1, []
        return int(leader[1]), sorted(int(id) for id in re.findall(r'"id": (\d+)', voters[1]))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{node.host}:{node.port}" for node in self.nodes)


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.5)


def produce(target: ChangingCluster, first: int, end: int) -> None:
    """Write numbers; all are acknowledged by all in-sync replicas."""
    producer = Producer({"bootstrap.servers": target.bootstrap, "enable.idempotence": True, **QUIET})
    failed: list[object] = []
    for number in range(first, end):
        producer.produce("t", str(number), partition=0, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(WITHIN_S) == 0 and failed == []


def consumed(target: ChangingCluster, count: int) -> list[int]:
    """The numbers of the partition, in order."""
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "g", **QUIET})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[int] = []
    end = time.monotonic() + WITHIN_S
    while len(found) < count and time.monotonic() < end:
        found += [int(message.value() or b"") for message in consumer.consume(count, 1.0) if not message.error()]
    consumer.close()
    return found


@pytest.mark.kafka
@pytest.mark.parametrize(
    "kinds",
    [
        ["kafka:4.3.1", "reference"],
        pytest.param(["reference", "kafka:4.3.1"], marks=pytest.mark.slow),
    ],
)
def test_a_controller_of_the_other_kind_joins_leads_and_the_first_leaves(kinds: list[str], tmp_path: Path) -> None:
    with ChangingCluster(kinds, tmp_path) as target:
        assert target.quorum() == (FIRST, [FIRST])
        admin = AdminClient({"bootstrap.servers": target.bootstrap, **QUIET})
        admin.create_topics([NewTopic("t", 1, 2, config={"min.insync.replicas": "2"})])["t"].result(WITHIN_S)
        produce(target, 0, 500)
        assert "Added controller 2" in target.add(JOINING)
        assert target.quorum() == (FIRST, [FIRST, JOINING])
        assert "already part of the set of voters" in target.add(JOINING)
        produce(target, 500, 1000)
        assert "Removed " in target.remove(FIRST)
        until(lambda: target.quorum() == (JOINING, [JOINING]), "the second controller does not lead alone")
        produce(target, 1000, 1500)
        assert "Added controller 1" in target.add(FIRST)
        assert target.quorum() == (JOINING, [FIRST, JOINING])
        target.kill(FIRST)
        target.restart(FIRST)
        until(lambda: target.quorum()[1] == [FIRST, JOINING], "no leader has both voters again")
        produce(target, 1500, 2000)
        assert consumed(target, 2000) == [*range(2000)]
