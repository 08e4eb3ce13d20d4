# Plain numbers stand for ids, offsets and times.
"""The same decisions, one after another, by this controller and by Apache Kafka's own control managers.

Each seed draws a sequence of requests. Both sides handle each request; their records must be equal to the byte, and their
responses equal with their messages. Not compared are: the version of a record that Kafka writes, its second fencing of a fenced
broker, its ELR where that keeps a replica dropped by a reassignment, and all steps after it failed (IllegalArgumentException in
PartitionRegistration.directory) because such a replica was the last leader.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from linearizability.targets.artifacts import java, kafka_jars
from reference.controller import brokers, elections, partition_change
from reference.controller.directory_assignment import assign_replicas_to_dirs
from reference.controller.heartbeats import Heartbeats
from reference.controller.image import TOPIC_RESOURCE
from reference.controller.isr_proposals import alter_partition
from reference.controller.metadata_records import encode_metadata_record
from reference.controller.producer_ids import allocate_producer_ids
from reference.controller.reassignments import alter_partition_reassignments
from reference.protocol.codec import encode
from reference.protocol.errors import KafkaError
from reference.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from reference.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.elect_leaders import ElectLeadersRequest
from reference.protocol.primitives import NodeId
from reference.protocol.schema import Message
from tests.controller.cluster import CLUSTER_ID, SESSION_MS, ControlledCluster, directory_of, nodes, topic_id_of
from tests.controller.test_partition_change import as_kafka_keeps_them

SOURCE = Path(__file__).parent / "java" / "Decisions.java"
RUNS = 150
STEPS = 120
BROKERS = nodes(*range(5))
TOPICS = {"one": [[0, 1, 2], [1, 2, 3]], "two": [[3, 4], [4, 0], [0]]}

Reassignable = AlterPartitionReassignmentsRequest.ReassignableTopic
Wanted = AlterPartitionReassignmentsRequest.ReassignablePartition
Partitions = ElectLeadersRequest.TopicPartitions


def in_order(records: list[Message]) -> list[str]:
    """The records as hex; consecutive PartitionChangeRecords are sorted, because their order does not matter."""
    ordered: list[str] = []
    run: list[str] = []
    for record in records:
        text = encode_metadata_record(record).hex()
        if text.startswith("0105"):
            run.append(text)
        else:
            ordered += [*sorted(run), text]
            run = []
    return ordered + sorted(run)


def word(truth: bool) -> str:
    return "true" if truth else "false"


class Incarnation:
    """One drawn run of a cluster: the requests, as the Java program reads them, and this side's responses."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        allowed = word(self.chance.random() < 0.25)
        settings = {"min.insync.replicas": str(self.chance.randint(1, 3)), "unclean.leader.election.enable": allowed}
        self.lines = ["begin " + ",".join(f"{name}={value}" for name, value in settings.items())]
        self.answers = ["begun"]
        self.cluster = ControlledCluster(has_elr=self.chance.random() < 0.7, settings=settings)
        self.replay(self.cluster.written, 0)
        for broker in BROKERS:
            self.register(broker)
            self.heartbeat(broker, broker_epoch=self.cluster.image.brokers[broker].epoch, current_metadata_offset=99)
        for name, replicas in TOPICS.items():
            first = self.cluster.offset
            self.cluster.create(name, *replicas)
            self.replay(self.cluster.written, first)

    def replay(self, records: list[Message], first: int) -> None:
        for offset, record in enumerate(records, first):
            text = encode_metadata_record(record).hex()
            self.lines.append(f"replay {self.cluster.now} {offset} {text}")
            self.answers.append(f"0||{text}")

    def ask(self, name: str, argument: str, decide: Callable[[], tuple[list[Message], str]]) -> None:
        self.lines.append(f"{name} {self.cluster.now} {self.cluster.offset} {argument}")
        try:
            records, answer = decide()
        except KafkaError as error:
            self.answers.append(f"{int(error.code)}|{error.message}|")
            return
        self.cluster.write(records)
        self.answers.append(f"0|{answer}|{','.join(in_order(records))}")

    def step(self) -> None:
        """One random request; most of them can be granted."""
        steps = (
            *[self.heartbeat_of_any] * 6, *[self.propose] * 8, self.stop, self.fall_silent, *[self.come_back] * 2,
            self.elect, *[self.reassign] * 3, self.balance, self.elect_uncleanly, self.take_over, self.unregister,
            self.give_ids, self.lose_directory, self.configure, self.assign,
        )  # fmt: skip
        self.cluster.now += self.chance.randint(0, 500)
        self.chance.choice(steps)()

    def any_broker(self) -> NodeId:
        return self.chance.choice(BROKERS)

    def some(self, items: Sequence[NodeId]) -> list[NodeId]:
        return self.chance.sample(items, self.chance.randint(1, len(items)))

    def epoch_of(self, broker: NodeId) -> int:
        found = self.cluster.image.brokers.get(broker)
        return (found.epoch if found else 0) + (self.chance.random() < 0.03)

    # ---- brokers

    def register(self, broker: NodeId) -> None:
        request = self.cluster.registration(broker, is_clean=self.chance.random() < 0.5)
        if self.chance.random() < 0.5:
            request.log_dirs = [directory_of(broker), directory_of(broker + 50)]
        cluster = self.cluster

        def decide() -> tuple[list[Message], str]:
            decision = brokers.register_broker(
                cluster.image,
                cluster.configuration,
                request,
                cluster_id=CLUSTER_ID,
                offset=cluster.offset,
                has_session=cluster.heartbeats.has_session(cluster.image, broker, cluster.now),
            )
            return decision.records, str(decision.response.broker_epoch)

        self.ask("register", encode(request, 4).hex(), decide)

    def heartbeat(self, broker: NodeId, **wishes: object) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=self.epoch_of(broker),
            current_metadata_offset=self.cluster.offset - 1 - (self.chance.random() < 0.1) * self.chance.randint(1, 9),
        )
        for name, value in wishes.items():
            setattr(request, name, value)
        cluster = self.cluster
        cluster.heartbeats.receive(cluster.image, broker, request.broker_epoch, cluster.now)

        def decide() -> tuple[list[Message], str]:
            found = cluster.heartbeats.broker_heartbeat(cluster.image, cluster.configuration, request, cluster.offset)
            answer = found.response
            flags = (answer.is_caught_up, answer.is_fenced, answer.should_shut_down)
            return found.records, ",".join(word(each) for each in flags)

        self.ask("heartbeat", encode(request, 2).hex(), decide)

    def heartbeat_of_any(self) -> None:
        self.heartbeat(self.any_broker(), want_fence=self.chance.random() < 0.05)

    def stop(self) -> None:
        self.heartbeat(self.any_broker(), want_shut_down=True, want_fence=self.chance.random() < 0.1)

    def lose_directory(self) -> None:
        broker = self.any_broker()
        name = self.chance.choice(["offline_log_dirs", "cordoned_log_dirs"])
        named = [directory_of(broker + 50 * self.chance.randint(0, 1))]
        says_none = name == "cordoned_log_dirs" and self.chance.random() < 0.4
        self.heartbeat(broker, **{name: [] if says_none else named})

    def fall_silent(self) -> None:
        """One broker at a time, so that the order in which they are fenced is the same."""
        self.fence_for_silence(self.any_broker())

    def fence_for_silence(self, broker: NodeId) -> None:
        cluster = self.cluster
        cluster.now += SESSION_MS
        for other in cluster.image.brokers.values():
            if other.id != broker:
                cluster.heartbeats.receive(cluster.image, other.id, other.epoch, cluster.now)
                self.ask("hear", f"{other.id},{other.epoch}", lambda: ([], ""))
        cluster.now += 1

        def decide() -> tuple[list[Message], str]:
            overdue = cluster.heartbeats.overdue(cluster.image, cluster.now)
            assert overdue in (None, broker)
            if overdue is None:
                return [], ""
            return brokers.fence_broker(cluster.image, cluster.configuration, overdue), ""

        self.ask("overdue", "-", decide)

    def come_back(self) -> None:
        broker = self.any_broker()
        if self.chance.random() < 0.8:
            self.fence_for_silence(broker)
        self.register(broker)
        self.heartbeat(broker)

    def take_over(self) -> None:
        self.cluster.heartbeats = Heartbeats(SESSION_MS, self.cluster.image, self.cluster.now)
        self.ask("takeover", "-", lambda: ([], ""))

    def unregister(self) -> None:
        broker = self.any_broker()
        cluster = self.cluster
        self.ask(
            "unregister",
            str(broker),
            lambda: (brokers.unregister_broker(cluster.image, cluster.configuration, broker), ""),
        )

    # ---- partitions

    def configure(self) -> None:
        """A topic's settings change."""
        first = self.cluster.offset
        name = self.chance.choice(["min.insync.replicas", "unclean.leader.election.enable"])
        value = str(self.chance.randint(1, 3)) if name.startswith("min") else word(self.chance.random() < 0.5)
        topic = self.chance.choice([*TOPICS])
        self.cluster.write([ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=name, value=value)])
        self.replay(self.cluster.written, first)

    def any_partition(self) -> tuple[str, int]:
        name = self.chance.choice([*TOPICS])
        return name, self.chance.randrange(len(TOPICS[name]))

    def propose(self) -> None:
        """Mostly an ISR that the leader may propose: itself and active replicas."""
        name, index = self.any_partition()
        partition = self.cluster.partition(name, index)
        alive = [each for each in partition.replicas if self.cluster.image.is_active(each)]
        if self.chance.random() < 0.1:
            isr = self.some(BROKERS)
        else:
            kept = self.some(alive) if alive else []
            isr = [each for each in partition.replicas if each == partition.leader or each in kept]
        request = self.cluster.proposal(isr, name, index)
        data = request.topics[0].partitions[0]
        if self.chance.random() < 0.15:
            data.leader_epoch += self.chance.randint(-1, 1)
            data.partition_epoch += self.chance.randint(-1, 1)
        if self.chance.random() < 0.1:
            data.leader_recovery_state = self.chance.randint(0, 1)
        if isr and self.chance.random() < 0.1:
            data.new_isr_with_epochs[0].broker_epoch -= self.chance.randint(0, 2)
        if self.chance.random() < 0.05:
            request.broker_id = self.any_broker()
            request.broker_epoch = self.epoch_of(request.broker_id)
        cluster = self.cluster

        def decide() -> tuple[list[Message], str]:
            decision = alter_partition(cluster.image, cluster.configuration, request)
            return decision.records, encode(decision.response, 3).hex()

        self.ask("alter", encode(request, 3).hex(), decide)

    def elect(self) -> None:
        asked = [
            Partitions(topic=name, partitions=[*range(len(replicas) + (self.chance.random() < 0.1))])
            for name, replicas in TOPICS.items()
        ]
        if self.chance.random() < 0.1:
            asked.append(Partitions(topic="three", partitions=[0]))
        request = ElectLeadersRequest(election_type=self.chance.choice([0, 0, 1, 1, 2]), topic_partitions=asked)
        cluster = self.cluster

        def decide() -> tuple[list[Message], str]:
            decision = elections.elect_leaders(cluster.image, cluster.configuration, request)
            return decision.records, encode(decision.response, 2).hex()

        self.ask("elect", encode(request, 2).hex(), decide)

    def reassign(self) -> None:
        name, index = self.any_partition()
        replicas = (
            None
            if self.chance.random() < 0.3
            else self.some([*BROKERS, NodeId(9)] if self.chance.random() < 0.1 else BROKERS)
        )
        if replicas and self.chance.random() < 0.05:
            replicas = [*replicas, self.chance.choice(replicas)]
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=self.chance.random() < 0.9,
            topics=[
                Reassignable(
                    name=self.chance.choice([name] * 20 + ["three"]),
                    partitions=[Wanted(partition_index=index + 9 * (self.chance.random() < 0.03), replicas=replicas)],
                )
            ],
        )
        cluster = self.cluster

        def decide() -> tuple[list[Message], str]:
            decision = alter_partition_reassignments(cluster.image, cluster.configuration, request)
            return decision.records, encode(decision.response, 1).hex()

        self.ask("reassign", encode(request, 1).hex(), decide)

    def assign(self) -> None:
        broker = self.any_broker()
        name, index = self.any_partition()
        asked = AssignReplicasToDirsRequest.TopicData(topic_id=topic_id_of(self.chance.choice([name] * 9 + ["three"])))
        asked.partitions = [
            AssignReplicasToDirsRequest.PartitionData(partition_index=each) for each in (index, index + 1)
        ]
        directory = directory_of(broker + 50 * self.chance.choice([0, 0, 1, 1, 2]))
        request = AssignReplicasToDirsRequest(
            broker_id=broker,
            broker_epoch=self.epoch_of(broker),
            directories=[AssignReplicasToDirsRequest.DirectoryData(id=directory, topics=[asked])],
        )
        cluster = self.cluster

        def decide() -> tuple[list[Message], str]:
            decision = assign_replicas_to_dirs(cluster.image, cluster.configuration, request)
            return decision.records, encode(decision.response, 0).hex()

        self.ask("assign", encode(request, 0).hex(), decide)

    def balance(self) -> None:
        decision = elections.balance_leaders(self.cluster.image, self.cluster.configuration)
        self.ask("balance", "-", lambda: (decision.records, word(decision.response)))

    def elect_uncleanly(self) -> None:
        decision = elections.elect_unclean_leaders(self.cluster.image, self.cluster.configuration)
        self.ask("unclean", "-", lambda: (decision.records, word(decision.response)))

    def give_ids(self) -> None:
        broker = self.any_broker()
        request = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=self.epoch_of(broker))

        def decide() -> tuple[list[Message], str]:
            decision = allocate_producer_ids(self.cluster.image, request)
            return decision.records, str(decision.response.producer_id_start)

        self.ask("ids", f"{broker},{request.broker_epoch}", decide)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[str]], list[str]]:
    """Asks Kafka's control managers; they are package-private, so the program is compiled into their package."""
    folder = tmp_path_factory.mktemp("classes")
    jars = ":".join(str(jar) for jar in kafka_jars("4.3.1"))
    compiler = [str(java()), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    subprocess.run([*compiler, "-d", str(folder), "-cp", jars, str(SOURCE)], timeout=240, check=True)

    def ask(lines: list[str]) -> list[str]:
        program = [
            str(java()),
            "-Dlog4j2.level=OFF",
            "-cp",
            f"{folder}:{jars}",
            "org.apache.kafka.controller.Decisions",
        ]
        text = "\n".join(lines) + "\n"
        done = subprocess.run(program, input=text, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return ask


@pytest.mark.java
def test_kafka_decides_alike(kafka: Callable[[list[str]], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_change, "stays_eligible", as_kafka_keeps_them)
    lines: list[str] = []
    ours: list[str] = []
    for seed in range(RUNS):
        incarnation = Incarnation(seed)
        for _ in range(STEPS):
            incarnation.step()
        lines += incarnation.lines
        ours += incarnation.answers
    kafkas = kafka(lines)
    assert len(kafkas) == len(ours)
    granted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    compared = 0
    for number, (line, mine, kafkas_own) in enumerate(zip(lines, ours, kafkas, strict=True)):
        if kafkas_own == "over":
            continue
        compared += 1
        assert mine == kafkas_own, f"step {number}: {line}"
        name, code, records = line.split()[0], mine.split("|")[0], mine.rpartition("|")[2]
        granted[name] += bool(records)
        refused[code] += 1
    writing = (
        "register",
        "heartbeat",
        "overdue",
        "alter",
        "elect",
        "reassign",
        "unregister",
        "balance",
        "ids",
        "assign",
    )
    assert all(granted[name] >= 20 for name in writing), granted
    assert granted["unclean"], granted
    assert compared > len(ours) // 2, f"{compared} of {len(ours)}: Kafka failed early in most runs"
    assert len(refused) >= 4, refused
