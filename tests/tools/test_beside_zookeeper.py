"""Tools of Kafka 3.9.2 have the same output for three reference brokers beside a ZooKeeper as for Kafka's own."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.wire import Wire
from reference.protocol.messages.metadata import MetadataRequest
from tests.tools.alike import Step, alike, compare
from tests.tools.jvm import ZOOKEEPER_RELEASE, Tools

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1800)]

CONFIG = {
    "log.initial.task.delay.ms": "300",
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "background.threads": "4",
}
REFERENCE, KAFKA = "reference-zk:3", f"kafka-zk:{ZOOKEEPER_RELEASE}:3"
WITHIN_S = 60
LIKE = [
    (re.compile(r"PORT \(\d\)"), "PORT (N)"),  # a coordinator is the leader of its partition
    (re.compile(r"^\d+ (0 -1 \d)"), r"N \1"),  # a block of producer ids
]
WAIT = "--timeout-ms 20000"


def moves(*replicas: int) -> dict[str, Any]:
    return {"version": 1, "partitions": [{"topic": "one", "partition": 0, "replicas": [*replicas]}]}


FILE = "--reassignment-json-file {file}"
ELECT = {"partitions": [{"topic": "one", "partition": 0}]}
DELETE = {"version": 1, "partitions": [{"topic": "one", "partition": 0, "offset": 1}]}
PRODUCER = "--topic one --property parse.key=true --property key.separator=:"

STEPS = [
    Step("kafka-topics", "--create --topic one --replica-assignment 1:2,2:3 --config retention.ms=3600000"),
    Step("kafka-topics", "--create --topic one"),
    Step("kafka-topics", "--create --topic two --replica-assignment 1:2:3"),
    Step("kafka-topics", "--create --topic three --replica-assignment 1:9"),
    Step("kafka-topics", "--create --topic four --replication-factor 4"),
    Step("kafka-topics", "--describe"),
    Step("kafka-topics", "--describe --topic nowhere"),
    Step("kafka-topics", "--describe --under-replicated-partitions"),
    Step("kafka-topics", "--describe --topics-with-overrides"),
    Step("kafka-topics", "--alter --topic two --partitions 2 --replica-assignment 1:2:3,3:2:1"),
    Step("kafka-topics", "--alter --topic two --partitions 1"),
    Step("kafka-topics", "--list"),
    Step("kafka-console-producer", PRODUCER, "k:a\nk:b\nk:c\n"),
    Step("kafka-console-consumer", f"--topic one --group readers --from-beginning --max-messages 3 {WAIT}"),
    Step("kafka-get-offsets", "--topic one"),
    Step("kafka-get-offsets", "--topic one --time earliest"),
    Step("kafka-consumer-groups", "--list"),
    Step("kafka-consumer-groups", "--describe --group readers"),
    Step("kafka-consumer-groups", "--describe --group readers --state"),
    Step("kafka-consumer-groups", "--describe --group readers --members"),
    Step("kafka-consumer-groups", "--reset-offsets --group readers --topic one --to-earliest --dry-run"),
    Step("kafka-consumer-groups", "--reset-offsets --group readers --topic one --to-earliest --execute"),
    Step("kafka-consumer-groups", "--describe --group absent"),
    Step("kafka-consumer-groups", "--delete-offsets --group readers --topic one"),
    Step("kafka-consumer-groups", "--delete --group readers"),
    Step("kafka-consumer-groups", "--delete --group absent"),
    Step("kafka-delete-records", "--offset-json-file {file}", files=DELETE),
    Step("kafka-configs", "--alter --topic one --add-config cleanup.policy=compact,min.compaction.lag.ms=5"),
    Step("kafka-configs", "--alter --topic one --add-config cleanup.policy=none"),
    Step("kafka-configs", "--alter --topic nowhere --add-config retention.ms=5"),
    Step("kafka-configs", "--describe --topic one"),
    Step("kafka-configs", "--describe --topic one --all"),
    Step("kafka-configs", "--alter --topic one --delete-config cleanup.policy"),
    Step("kafka-configs", "--alter --broker 1 --add-config background.threads=5,log.retention.ms=123456789"),
    Step("kafka-configs", "--alter --broker-defaults --add-config message.max.bytes=2000000"),
    Step("kafka-configs", "--describe --broker 1"),
    Step("kafka-configs", "--describe --entity-type brokers --entity-default"),
    Step("kafka-configs", "--describe --entity-type brokers"),
    Step("kafka-configs", "--alter --broker 1 --add-config num.partitions=5"),
    Step("kafka-configs", "--alter --broker 1 --delete-config background.threads,log.retention.ms"),
    Step("kafka-configs", "--alter --broker-defaults --delete-config message.max.bytes"),
    Step("kafka-configs", "--describe --entity-type users"),
    Step("kafka-configs", "--describe --client c"),
    Step("kafka-configs", "--alter --client c --add-config producer_byte_rate=1000000"),
    Step("kafka-reassign-partitions", f"{FILE} --execute", files=moves(1, 9)),
    Step("kafka-reassign-partitions", f"{FILE} --execute", files=moves(3, 2)),
    Step("kafka-reassign-partitions", f"{FILE} --verify", files=moves(3, 2)),
    Step("kafka-reassign-partitions", "--list"),
    Step("kafka-reassign-partitions", f"{FILE} --cancel", files=moves(3, 2)),
    Step("kafka-reassign-partitions", f"{FILE} --execute --throttle 1000000", files=moves(2, 3)),
    Step("kafka-reassign-partitions", f"{FILE} --verify", files=moves(2, 3)),
    Step("kafka-leader-election", "--election-type preferred --path-to-json-file {file}", files=ELECT),
    Step("kafka-leader-election", "--election-type preferred --topic one --partition 0"),
    Step("kafka-leader-election", "--election-type unclean --topic one --partition 0"),
    Step("kafka-leader-election", "--election-type unclean --topic one --partition 9"),
    Step("kafka-topics", "--describe --topic one"),
    Step("kafka-log-dirs", "--describe --topic-list one --broker-list 2"),
    Step("kafka-features", "describe"),
    Step("kafka-broker-api-versions", ""),
    Step("kafka-transactions", "list"),
    Step("kafka-transactions", "describe --transactional-id absent"),
    Step("kafka-transactions", "describe-producers --topic one --partition 0"),
    Step("kafka-cluster", "cluster-id"),
    Step("kafka-cluster", "unregister --id 7"),
    Step("kafka-verifiable-producer", "--topic two --max-messages 3 --acks -1"),
    Step("kafka-acls", "--list"),
    Step("kafka-delegation-tokens", "--describe --command-config {empty}"),
    Step("kafka-topics", "--delete --topic two"),
    Step("kafka-topics", "--delete --topic nowhere"),
    Step("kafka-topics", "--list"),
]

CONTROLLER = "its controller decides as that of KRaft, and says so in the same words"
RELEASE = "it is of Kafka 4's release"
NOT_SERVED = "what Kafka keeps of it in ZooKeeper is not read"
DIFFERS = {
    "kafka-topics --create --topic four --replication-factor 4": CONTROLLER,
    "kafka-topics --alter --topic two --partitions 1": CONTROLLER,
    "kafka-configs --alter --topic one --add-config cleanup.policy=none": CONTROLLER,
    "kafka-configs --alter --broker 1 --add-config num.partitions=5": CONTROLLER,
    "kafka-leader-election --election-type unclean --topic one --partition 9": CONTROLLER,
    "kafka-consumer-groups --delete --group readers": "since 4.0 a group without offsets is there until it is deleted",
    "kafka-configs --describe --topic one --all": RELEASE,
    "kafka-broker-api-versions": RELEASE,
    "kafka-configs --describe --entity-type users": NOT_SERVED,
    "kafka-configs --describe --client c": NOT_SERVED,
    "kafka-configs --alter --client c --add-config producer_byte_rate=1000000": NOT_SERVED,
    "kafka-acls --list": NOT_SERVED,
    "kafka-delegation-tokens --describe --command-config {empty}": NOT_SERVED,
}
"""Tool and arguments -> the reason of the different output."""


class Cluster:
    """Three brokers, and the output of their steps."""

    def __init__(self, target: ClusterTarget, tools: Tools, folder: Path) -> None:
        self._tools = tools
        self._file = folder / "given.json"
        self._nodes = [each.node for each in target.members]
        self._ports = [node.port for node in self._nodes]
        self._datas = {f"data{each.node.id}": str(each.data) for each in target.members}
        boot = target.members[0].node
        self._words = {"boot": f"{boot.host}:{boot.port}", "file": str(self._file), "empty": "/dev/null"}

    def run(self, step: Step) -> list[str]:
        if step.files is not None:
            self._file.write_text(json.dumps(step.files))
        words = f"{step.needs} {step.arguments}".split()
        if step.tool == "kafka-cluster":
            command = step.arguments.split()
            words = [*command[:1], *step.needs.split(), *command[1:]]
        self._settle()
        ran = self._tools.run(step.tool, *(word.format(**self._words) for word in words), stdin=step.stdin)
        lines = alike(ran, {"file": str(self._file), **self._datas}, self._ports)
        for own, like in LIKE:
            lines = [own.sub(like, line) for line in lines]
        return lines

    def _settle(self) -> None:
        """Wait until all brokers know the same topics, each with its leader and all live replicas in sync."""
        until = time.monotonic() + WITHIN_S
        while not self._is_settled():
            assert time.monotonic() < until, "the brokers do not agree on their topics"
            time.sleep(0.05)

    def _is_settled(self) -> bool:
        known: list[object] = []
        for node in self._nodes:
            with Wire.connect(node.host, node.port) as wire:
                topics = wire.call(MetadataRequest(topics=None)).topics
            known.append({topic.name: sorted(map(repr, topic.partitions)) for topic in topics})
            for partition in (partition for topic in topics for partition in topic.partitions):
                live = {*partition.replica_nodes} - {*partition.offline_replicas}
                if partition.leader_id < 0 or {*partition.isr_nodes} != live:
                    return False
        return all(each == known[0] for each in known)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    tools = Tools(ZOOKEEPER_RELEASE)
    folders = [tmp_path_factory.mktemp(name) for name in ("kafka", "reference")]
    with (
        open_target(KAFKA, folder=folders[0], config=CONFIG) as kafka,
        open_target(REFERENCE, folder=folders[1], config=CONFIG) as reference,
    ):
        assert isinstance(kafka, ClusterTarget) and isinstance(reference, ClusterTarget)
        yield [Cluster(target, tools, folder) for target, folder in zip((kafka, reference), folders, strict=True)]
    tools.end()


def test_tools_print_the_same_of_both(clusters: list[Cluster]) -> None:
    compare(clusters, STEPS, DIFFERS)
