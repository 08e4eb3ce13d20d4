"""Kafka's own command-line tools, unmodified, all in one JVM: starting a JVM costs more than most tools do."""

from __future__ import annotations

import base64
import itertools
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from linearizability.targets.artifacts import java, kafka_jars

JAVA = Path(__file__).parent / "java"
RELEASE = "4.3.1"
ZOOKEEPER_RELEASE = "3.9.2"
"""The last release whose brokers a ZooKeeper can coordinate."""
TIMEOUT_S = 120.0
"""The longest run of a tool, in seconds; a busy machine needs a multiple of a quiet one."""

TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
}
"""The scripts' names and the main classes that they start."""
OLDER_MAINS = {
    "kafka-acls": "kafka.admin.AclCommand",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
}
"""Script -> its main class before 4.0."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The exit code and the output of a tool."""

    code: int
    out: str
    errors: str

    def well(self) -> str:
        """The output of a successful run. Errors: AssertionError with the output."""
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.errors}"
        return self.out


class Tools:
    """The JVM, which ends with this process, because its standard input is closed then."""

    def __init__(self, release: str = RELEASE) -> None:
        self._mains = TOOLS if release == RELEASE else TOOLS | OLDER_MAINS
        self._process = subprocess.Popen(
            [*java_command(release), str(JAVA / "Tools.java")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Ran]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def run(self, tool: str, *arguments: object, stdin: str = "", timeout_s: float = TIMEOUT_S) -> Ran:
        """Run a tool to its end. Errors: TimeoutError."""
        return self.start(tool, *arguments, stdin=stdin).result(timeout_s)

    def start(self, tool: str, *arguments: object, stdin: str = "") -> Future[Ran]:
        """Start a tool; the future has its result when it ends."""
        future: Future[Ran] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
            words = [str(number), self._mains[tool], _encoded(stdin), *(_encoded(str(each)) for each in arguments)]
            assert self._process.stdin is not None
            self._process.stdin.write(" ".join(words) + "\n")
            self._process.stdin.flush()
        return future

    def end(self) -> None:
        """End the JVM, before this process does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, code, out, errors = line.split()
            self._waiting.pop(int(number)).set_result(Ran(int(code), _decoded(out), _decoded(errors)))
        for future in self._waiting.values():
            future.set_exception(RuntimeError("the tools' JVM ended"))


def run_in_own_jvm(tool: str, *arguments: object, timeout_s: float = TIMEOUT_S, jvm: Sequence[str] = ()) -> Ran:
    """Run a tool that works while its JVM ends (the verifiable producer closes and sums up then), or that needs JVM options."""
    java, *rest = java_command()
    command = [java, *jvm, *rest, TOOLS[tool], *(str(each) for each in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def java_command(release: str = RELEASE) -> list[str]:
    """Java with the tools' class path, quick to start."""
    options = ["-Xmx384m", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    logging = [
        f"-Dlog4j2.configurationFile={JAVA / 'log4j2.properties'}",
        f"-Dlog4j.configuration=file:{JAVA / 'log4j.properties'}",
    ]
    return [str(java()), *options, *logging, "-cp", ":".join(str(jar) for jar in kafka_jars(release))]


@cache
def shared_tools() -> Tools:
    """The one JVM of this test run."""
    return Tools()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode() or "-"


def _decoded(text: str) -> str:
    return "" if text == "-" else base64.b64decode(text).decode()
