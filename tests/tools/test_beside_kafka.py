"""Every tool of Kafka's distribution has the same output for the reference as for Apache Kafka 4.3.1.

Each script of the bin folder has a step here, or a reason in LEFT_OUT. Both fresh nodes get the same calls in this
order; ids, addresses, folders and times are normalized. Each difference is listed below with its reason, and must exist: a row
without a difference fails, too.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.access_rules import AUTHORIZED
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import delete_records_request, new_topic, produced
from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.wire import Wire
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from reference.protocol.messages.elect_leaders import ElectLeadersRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.primitives import NodeId, Offset, TimestampMs
from reference.protocol.records.record import Record
from reference.protocol.schema import Message
from tests.tools.alike import Step, alike, compare
from tests.tools.jvm import RELEASE, Tools

pytestmark = [pytest.mark.java, pytest.mark.kafka]

CONFIG = {
    "log.initial.task.delay.ms": "300",
    "auto.leader.rebalance.enable": "false",
    "background.threads": "4",
    **AUTHORIZED,
}
REFERENCE, KAFKA = "reference:1", f"kafka:{RELEASE}:1"


NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
MOVE = {"version": 1, "partitions": [{"topic": "one", "partition": 0, "replicas": [1]}]}
DELETE = {
    "version": 1,
    "partitions": [{"topic": "one", "partition": index, "offset": offset} for index, offset in ((0, 1), (1, 99))],
}
ELECT = {"partitions": [{"topic": "one", "partition": 0}]}
WAIT = "--timeout-ms 20000"
ALICE, APP = "--entity-type users --entity-name alice", "--entity-type clients --entity-name app"
ANONYMOUS = "--deny-principal User:ANONYMOUS --deny-host 127.0.0.1"
TEAM = "--topic team- --resource-pattern-type prefixed"

FEATURES = [
    Step("kafka-features", "downgrade --feature transaction.version=1 --dry-run"),
    Step("kafka-features", "downgrade --feature transaction.version=1", is_short=True),
    Step("kafka-features", "upgrade --feature transaction.version=2", is_short=True),
    Step("kafka-features", "upgrade --feature group.version=1 --feature transaction.version=9", is_short=True),
    Step("kafka-features", "downgrade --metadata 4.0"),
    Step("kafka-features", "downgrade --metadata 4.0 --unsafe"),
    Step("kafka-features", "disable --feature group.version"),
    Step(
        "kafka-console-consumer",
        f"--topic one --group turned-away --command-property group.protocol=consumer --max-messages 1 {WAIT}",
    ),
    Step(
        "kafka-console-consumer",
        "--topic one --group served --command-property group.protocol=classic --from-beginning --max-messages 1 "
        + WAIT,
    ),
    Step("kafka-features", "upgrade --feature group.version=1"),
]
USERS = [
    Step("kafka-configs", f"--alter {ALICE} --add-config SCRAM-SHA-256=[iterations=8192,password=pw]", is_short=True),
    Step("kafka-configs", f"--alter {ALICE} --add-config SCRAM-SHA-512=[password=pw]"),
    Step(
        "kafka-configs", f"--alter {ALICE} --add-config producer_byte_rate=1024,request_percentage=0.5", is_short=True
    ),
    Step("kafka-configs", f"--describe {ALICE}", is_short=True),
    Step("kafka-configs", "--describe --entity-type users"),
    Step("kafka-configs", f"--alter {APP} --add-config consumer_byte_rate=2048"),
    Step("kafka-configs", "--alter --entity-type clients --entity-default --add-config controller_mutation_rate=10"),
    Step("kafka-configs", f"--alter {ALICE} {APP} --add-config consumer_byte_rate=4096"),
    Step("kafka-configs", "--alter --entity-type ips --entity-name 192.0.2.1 --add-config connection_creation_rate=5"),
    Step("kafka-configs", "--describe --entity-type clients", is_short=True),
    Step("kafka-configs", "--describe --entity-type users --entity-type clients"),
    Step("kafka-configs", "--describe --entity-type ips"),
    Step("kafka-configs", f"--alter {APP} --add-config producer_byte_rate=0"),
    Step("kafka-configs", f"--alter {APP} --add-config connection_creation_rate=1"),
    Step("kafka-configs", f"--alter {ALICE} --delete-config SCRAM-SHA-256"),
    Step("kafka-configs", f"--alter {ALICE} --delete-config request_percentage"),
    Step("kafka-configs", f"--describe {ALICE}"),
    Step("kafka-configs", f"--alter {ALICE} --add-config SCRAM-SHA-256=[iterations=1,password=pw]"),
]
ACLS = [
    Step("kafka-topics", "--create --topic team-one", is_short=True),
    Step("kafka-acls", "--add --allow-principal User:ANONYMOUS --operation All --cluster", is_short=True),
    Step("kafka-acls", "--add --allow-principal User:bob --consumer --topic other --group g"),
    Step("kafka-acls", "--add --allow-principal User:bob --producer --idempotent --topic other"),
    Step("kafka-acls", f"--add {ANONYMOUS} --operation Describe {TEAM}", is_short=True),
    Step("kafka-acls", "--add --allow-principal User:ANONYMOUS --operation Write --transactional-id *"),
    Step("kafka-acls", "--list", is_short=True),
    Step("kafka-acls", "--list --topic team-one --resource-pattern-type match"),
    Step("kafka-acls", "--list --principal User:bob"),
    Step("kafka-topics", "--list", is_short=True),
    Step("kafka-topics", "--describe --topic team-one"),
    Step("kafka-acls", f"--remove --force {TEAM}", is_short=True),
    Step("kafka-topics", "--list", is_short=True),
    Step("kafka-acls", "--remove --force --allow-principal User:bob --operation Read --group g"),
    Step("kafka-acls", "--list --group g"),
    Step("kafka-acls", "--list"),
]
STEPS = [
    Step("kafka-topics", "--create --topic one --partitions 2 --config retention.ms=3600000", is_short=True),
    Step("kafka-topics", "--create --topic one"),
    Step("kafka-topics", "--create --topic two --replica-assignment 1,1"),
    Step("kafka-topics", "--create --topic three --replication-factor 3"),
    Step("kafka-topics", "--describe", is_short=True),
    Step("kafka-topics", "--describe --topic nowhere"),
    Step("kafka-topics", "--describe --under-replicated-partitions"),
    Step("kafka-topics", "--alter --topic two --partitions 3", is_short=True),
    Step("kafka-topics", "--alter --topic two --partitions 1"),
    Step("kafka-topics", "--alter --topic nowhere --partitions 9"),
    Step("kafka-topics", "--create --topic wrong/name"),
    Step("kafka-topics", "--list"),
    Step(
        "kafka-console-producer",
        "--topic one --reader-property parse.key=true --reader-property key.separator=:",
        "k:a\nk:b\nk:c\n",
        is_short=True,
    ),
    Step("kafka-console-consumer", f"--topic one --group readers --from-beginning --max-messages 3 {WAIT}"),
    Step("kafka-get-offsets", "--topic one", is_short=True),
    *(Step("kafka-get-offsets", f"--topic one --time {kind}") for kind in ("earliest", "earliest-local", "0")),
    Step("kafka-get-offsets", "--topic-partitions one:0,two:1 --time latest"),
    Step("kafka-consumer-groups", "--list"),
    Step("kafka-consumer-groups", "--describe --group readers"),
    Step("kafka-consumer-groups", "--describe --group readers --state"),
    Step("kafka-consumer-groups", "--describe --group readers --members"),
    Step("kafka-consumer-groups", "--reset-offsets --group readers --topic one --to-earliest --dry-run"),
    Step("kafka-consumer-groups", "--reset-offsets --group readers --topic one --to-earliest --execute"),
    Step("kafka-consumer-groups", "--describe --group nobody"),
    Step("kafka-groups", "--list"),
    Step("kafka-consumer-groups", "--delete-offsets --group readers --topic one:0"),
    Step("kafka-consumer-groups", "--describe --group readers"),
    Step("kafka-consumer-groups", "--delete-offsets --group readers --topic one"),
    Step("kafka-consumer-groups", "--delete --group readers"),
    Step("kafka-consumer-groups", "--delete --group nobody"),
    Step("kafka-configs", "--alter --topic one --add-config cleanup.policy=compact,min.compaction.lag.ms=5"),
    Step("kafka-configs", "--describe --topic one", is_short=True),
    Step("kafka-configs", "--describe --topic one --all"),
    *(
        Step("kafka-configs", f"--alter --topic one --add-config {setting}")
        for setting in (
            "cleanup.policy=[delete,delete]",
            "cleanup.policy=burn",
            "compression.type=zip",
            "retention.ms=soon",
            "retention.ms=-2",
            "min.cleanable.dirty.ratio=2",
            "unclean.leader.election.enable=maybe",
            "remote.storage.enable=true",
        )
    ),
    Step("kafka-configs", "--alter --topic one --delete-config cleanup.policy"),
    Step("kafka-configs", "--describe --topic one --all"),
    Step("kafka-configs", "--alter --topic nowhere --add-config retention.ms=1"),
    Step("kafka-configs", "--describe --topic nowhere --all"),
    Step("kafka-topics", "--create --topic large --partitions 10001"),
    Step(
        "kafka-configs",
        "--alter --broker 1 --add-config background.threads=5,log.retention.ms=123456789",
        is_short=True,
    ),
    Step("kafka-configs", "--alter --broker-defaults --add-config message.max.bytes=2000000", is_short=True),
    Step("kafka-configs", "--describe --broker 1", is_short=True),
    Step("kafka-configs", "--describe --entity-type brokers --entity-default", is_short=True),
    Step("kafka-configs", "--describe --entity-type brokers"),
    Step("kafka-configs", "--alter --broker 1 --add-config num.partitions=5"),
    Step("kafka-configs", "--alter --broker 1 --delete-config background.threads,log.retention.ms"),
    Step("kafka-configs", "--alter --group readers --add-config consumer.session.timeout.ms=50000"),
    Step("kafka-configs", "--describe --group readers"),
    Step("kafka-configs", "--describe --entity-type groups", is_short=True),
    Step("kafka-configs", "--describe --broker-logger 1"),
    Step("kafka-configs", "--alter --broker-logger 1 --add-config root=WARN", is_short=True),
    Step("kafka-configs", "--alter --broker-logger 1 --add-config root=INFO"),
    Step("kafka-configs", "--alter --broker-logger 1 --add-config root=LOUD"),
    Step("kafka-configs", "--describe --entity-type client-metrics"),
    Step("kafka-client-metrics", "--list"),
    Step(
        "kafka-reassign-partitions",
        "--reassignment-json-file {file} --execute --throttle 1000000",
        files=MOVE,
        is_short=True,
    ),
    Step("kafka-reassign-partitions", "--reassignment-json-file {file} --verify", files=MOVE, is_short=True),
    Step("kafka-reassign-partitions", "--list"),
    Step("kafka-leader-election", "--election-type preferred --path-to-json-file {file}", files=ELECT),
    Step("kafka-leader-election", "--election-type preferred --all-topic-partitions"),
    Step("kafka-leader-election", "--election-type unclean --topic one --partition 9"),
    Step("kafka-delete-records", "--offset-json-file {file}", files=DELETE, is_short=True),
    Step("kafka-log-dirs", "--describe --topic-list one"),
    Step("kafka-features", "describe", is_short=True),
    *FEATURES,
    Step("kafka-features", "version-mapping"),
    Step("kafka-features", "upgrade --release-version 4.3 --dry-run"),
    Step("kafka-metadata-quorum", "describe --status", is_short=True),
    Step("kafka-metadata-quorum", "describe --replication"),
    Step("kafka-broker-api-versions", ""),
    Step("kafka-transactions", "list"),
    Step("kafka-transactions", "describe --transactional-id nobody"),
    Step("kafka-transactions", "describe-producers --topic one --partition 0"),
    Step("kafka-transactions", "find-hanging --broker-id 1"),
    Step("kafka-cluster", "cluster-id"),
    Step("kafka-cluster", "list-endpoints"),
    Step("kafka-cluster", "unregister --id 7"),
    Step("kafka-verifiable-producer", "--topic two --max-messages 3 --acks -1"),
    Step(
        "kafka-producer-perf-test",
        "--topic two --num-records 10 --record-size 20 --throughput -1 --producer-props bootstrap.servers={boot}",
        needs="",
    ),
    Step("kafka-consumer-perf-test", "--topic two --messages 5 --hide-header"),
    Step("kafka-dump-log", "--files {data}/one-0/00000000000000000000.log --print-data-log", needs=""),
    Step("kafka-dump-log", "--files {data}/one-0/00000000000000000000.index", needs=""),
    Step("kafka-topics", "--create --topic four", is_short=True),
    Step("kafka-verifiable-producer", "--topic four --max-messages 3 --acks -1", is_short=True),
    Step(
        "kafka-verifiable-consumer",
        "--topic four --group-id verifiers --max-messages 3 --reset-policy earliest --verbose",
        is_short=True,
    ),
    Step("kafka-e2e-latency", "--topic four --num-records 3 --producer-acks 1 --record-size 20"),
    Step("kafka-streams-application-reset", "--application-id absent --input-topics one --dry-run"),
    Step("kafka-storage", "info --config {properties}", needs=""),
    Step("kafka-storage", "format --config {properties} --cluster-id AAAAAAAAAAAAAAAAAAAAAA", needs=""),
    Step("kafka-delegation-tokens", "--describe --command-config {empty}"),
    Step("kafka-share-groups", "--list"),
    Step("kafka-share-groups", "--describe --group absent"),
    Step("kafka-streams-groups", "--list"),
    Step("kafka-streams-groups", "--describe --group absent"),
    Step("kafka-topics", "--delete --topic two", is_short=True),
    Step("kafka-topics", "--create --topic two"),
    Step("kafka-get-offsets", "--topic two"),
    Step("kafka-topics", "--delete --topic nowhere"),
    *USERS,
    *ACLS,
]

NO_SHARE_GROUPS = "share groups are not served, and without them it reads nothing"
NO_CLUSTER = "it starts or stops a process, and asks no broker"
CONNECT = "Kafka Connect is a product of its own, that brokers know as clients"
LEFT_OUT = {
    "connect-distributed": CONNECT,
    "connect-mirror-maker": CONNECT,
    "connect-plugin-path": CONNECT,
    "connect-standalone": CONNECT,
    "kafka-console-share-consumer": NO_SHARE_GROUPS,
    "kafka-jmx": "it asks a JVM, not a broker",
    "kafka-metadata-shell": "it reads files alone; test_metadata_shell reads the reference's with it",
    "kafka-replica-verification": "it runs until it is killed; Kafka deprecates it",
    "kafka-run-class": NO_CLUSTER,
    "kafka-server-start": NO_CLUSTER,
    "kafka-server-stop": NO_CLUSTER,
    "kafka-share-consumer-perf-test": NO_SHARE_GROUPS,
    "kafka-verifiable-share-consumer": NO_SHARE_GROUPS,
    "trogdor": "it is Kafka's own framework for long tests: agents and a coordinator that start other tools",
}
"""Script of Kafka's bin folder that no step runs -> the reason."""
SCRIPTS = {
    "connect-distributed", "connect-mirror-maker", "connect-plugin-path", "connect-standalone", "kafka-acls",
    "kafka-broker-api-versions", "kafka-client-metrics", "kafka-cluster", "kafka-configs", "kafka-console-consumer",
    "kafka-console-producer", "kafka-console-share-consumer", "kafka-consumer-groups", "kafka-consumer-perf-test",
    "kafka-delegation-tokens", "kafka-delete-records", "kafka-dump-log", "kafka-e2e-latency", "kafka-features",
    "kafka-get-offsets", "kafka-groups", "kafka-jmx", "kafka-leader-election", "kafka-log-dirs", "kafka-metadata-quorum",
    "kafka-metadata-shell", "kafka-producer-perf-test", "kafka-reassign-partitions", "kafka-replica-verification",
    "kafka-run-class", "kafka-server-start", "kafka-server-stop", "kafka-share-consumer-perf-test", "kafka-share-groups",
    "kafka-storage", "kafka-streams-application-reset", "kafka-streams-groups", "kafka-topics", "kafka-transactions",
    "kafka-verifiable-consumer", "kafka-verifiable-producer", "kafka-verifiable-share-consumer", "trogdor",
}  # fmt: skip
"""The scripts in Kafka 4.3's bin folder."""

OTHER_FEATURES = "the levels of kraft, share and streams are no features here"
LOGGERS = "a Java broker has a logger for each class"
DIFFERS = {
    "kafka-configs --describe --broker-logger 1": LOGGERS,
    "kafka-features describe": OTHER_FEATURES,
    "kafka-metadata-quorum describe --status": OTHER_FEATURES,
    "kafka-share-groups --describe --group absent": "share groups are not served",
    "kafka-streams-groups --describe --group absent": "Streams groups are not served",
    "kafka-broker-api-versions": "share and Streams groups are not served",
}
"""Tool and arguments -> the reason of the different output."""


class Node:
    """A target, and the output of its steps."""

    def __init__(self, target: ClusterTarget, tools: Tools, folder: Path) -> None:
        (self.member,) = target.members
        self._tools = tools
        self._file = folder / "given.json"
        log_dirs = [path for path in target.folder.rglob("data") if (path / "meta.properties").exists()]
        self._words = {
            "boot": f"{self.member.node.host}:{self.member.node.port}",
            "controller": f"{self.member.node.host}:{self.member.controller_port}",
            "data": str(log_dirs[0]), "file": str(self._file), "properties": str(self.member.properties_file),
            "empty": "/dev/null",
        }  # fmt: skip

    def run(self, step: Step) -> list[str]:
        if step.files is not None:
            self._file.write_text(json.dumps(step.files))
        words = f"{step.needs} {step.arguments}".split()
        if step.tool in ("kafka-cluster", "kafka-transactions", "kafka-features", "kafka-metadata-quorum"):
            command = step.arguments.split()
            words = [*command[:1], *step.needs.split(), *command[1:]] if step.tool == "kafka-cluster" else words
        ran = self._tools.run(step.tool, *(word.format(**self._words) for word in words), stdin=step.stdin)
        names = {name: self._words[name] for name in ("data", "file", "boot", "controller")}
        return alike(ran, names, (self.member.node.port, self.member.controller_port))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, tools: Tools) -> Iterator[list[Node]]:
    folders = [tmp_path_factory.mktemp(name) for name in ("kafka", "reference")]
    with (
        open_target(KAFKA, folder=folders[0], config=CONFIG) as kafka,
        open_target(REFERENCE, folder=folders[1], config=CONFIG) as reference,
    ):
        assert isinstance(kafka, ClusterTarget) and isinstance(reference, ClusterTarget)
        yield [Node(target, tools, folder) for target, folder in zip((kafka, reference), folders, strict=True)]


def test_every_script_is_run_or_left_out_for_a_reason() -> None:
    assert {*LEFT_OUT} == SCRIPTS - {step.tool for step in STEPS}
    assert {step.tool for step in STEPS} <= SCRIPTS


def test_a_share_of_the_tools(nodes: list[Node]) -> None:
    compare(nodes, [step for step in STEPS if step.is_short], DIFFERS)


@pytest.mark.slow
def test_all_tools(nodes: list[Node]) -> None:
    compare(nodes, STEPS, DIFFERS)


def of_controller(timeout_ms: int) -> Iterator[Message]:
    """Requests for the controller with this timeout: for an existing topic, a missing one, and none."""
    names = ("timed", "nowhere")
    reassigned = AlterPartitionReassignmentsRequest
    moved = reassigned.ReassignablePartition(partition_index=0, replicas=[NodeId(1)])
    yield CreateTopicsRequest(topics=[new_topic("timed"), new_topic("in/valid")], timeout_ms=timeout_ms)
    for count in (2, 1):
        grown = [
            CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None) for name in names
        ]
        yield CreatePartitionsRequest(topics=grown, timeout_ms=timeout_ms)
    for partitions in ([ElectLeadersRequest.TopicPartitions(topic=name, partitions=[0]) for name in names], [], None):
        if partitions is not None or timeout_ms <= 0:
            yield ElectLeadersRequest(topic_partitions=partitions, timeout_ms=timeout_ms)
    topics = [reassigned.ReassignableTopic(name=name, partitions=[moved]) for name in names]
    yield reassigned(topics=topics, timeout_ms=timeout_ms)
    yield reassigned(topics=[], timeout_ms=timeout_ms)
    for name in names:  # Kafka shuffles the results of several
        yield DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=timeout_ms)
    for nothing in (CreateTopicsRequest, CreatePartitionsRequest, DeleteTopicsRequest):
        yield nothing(topics=[], timeout_ms=timeout_ms)


def is_there(wire: Wire, expected: bool) -> bool:
    """Whether the topic is in the broker's metadata, which may lag behind the controller's response."""
    found, looks = not expected, 0
    while found != expected and looks < 100:
        time.sleep(0.1 if looks else 0)
        found = any(topic.name == "timed" for topic in wire.call(MetadataRequest(topics=None)).topics)
        looks += 1
    return found


def controllers_answers(node: Node, timeout_ms: int) -> list[str]:
    """The responses, each with whether the topic existed after it; ids are normalized."""
    answers: list[str] = []
    expected = False
    with Wire.connect(node.member.node.host, node.member.node.port, timeout_s=30) as wire:
        for request in of_controller(timeout_ms):
            answer = wire.call(request)
            if isinstance(answer, CreateTopicsResponse):
                expected |= any(topic.name == "timed" and topic.error_code == 0 for topic in answer.topics)
                for topic in answer.topics:
                    topic.configs = []
            if isinstance(answer, DeleteTopicsResponse):
                expected &= all(topic.name != "timed" or topic.error_code != 0 for topic in answer.responses)
            made = is_there(wire, expected)
            answers.append(re.sub(r"UUID\('(?!0{8}-0{4}).*?'\)", "UUID", f"{answer}: {made}"))
    return answers


@pytest.mark.parametrize("timeout_ms", [0, -1, 30_000])
def test_a_request_whose_time_is_over_at_once_does_nothing(nodes: list[Node], timeout_ms: int) -> None:
    theirs, ours = (controllers_answers(node, timeout_ms) for node in nodes)
    assert ours == theirs


def refused_batches(node: Node) -> list[tuple[int, int, int, int, bool]]:
    """The refusals of batches by a log that starts at 2: error, base offset, log start, number of named records, explained."""
    found: list[tuple[int, int, int, int, bool]] = []
    session = ProducerSession()
    partition = ("refusing", 0)
    with Wire.connect(node.member.node.host, node.member.node.port, timeout_s=30) as wire:
        configs = {"cleanup.policy": "compact,delete"}
        assert not wire.call(CreateTopicsRequest(topics=[new_topic("refusing", configs=configs)])).topics[0].error_code
        while (begun := wire.call(session.begin())).error_code:
            time.sleep(0.1)
        session.become(begun.producer_id, 1)
        for epoch, sequence, key in ((1, 0, b"k"), (1, 9, b"k"), (0, 3, b"k"), (1, 3, None)):
            records = [
                Record(Offset(offset), TimestampMs(time.time_ns() // 1_000_000), key, b"v") for offset in range(3)
            ]
            session.identity, session.sequences = (begun.producer_id, epoch), {partition: sequence}
            batch = session.batch(partition, records)
            while (answer := produced(wire.call(session.produce({partition: batch}, 5000), 9))).error_code in NOT_YET:
                time.sleep(0.1)
            named, explained = len(answer.record_errors), answer.error_message is not None
            found.append((answer.error_code, answer.base_offset, answer.log_start_offset, named, explained))
            wire.call(delete_records_request({partition: 2}))
        wire.call(
            DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="refusing")], timeout_ms=10_000)
        )
    return found


def test_refused_batches_name_the_start_of_the_log(nodes: list[Node]) -> None:
    theirs, ours = (refused_batches(node) for node in nodes)
    assert ours == theirs
    assert [start for _, _, start, _, _ in ours] == [0, 2, 2, 2]
