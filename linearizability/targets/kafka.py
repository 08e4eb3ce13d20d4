"""Apache Kafka by version, from its Maven artifacts: each node is broker and controller in one small JVM."""

import base64
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from linearizability.targets.artifacts import ArtifactError, JavaMissing, ensure_java, java, kafka_jars
from linearizability.targets.cluster import ClusterTarget, Member, write_properties
from linearizability.targets.hosts import Host
from linearizability.targets.kafka_start import CHECKPOINT, QuickStart, class_path, quick_start
from linearizability.targets.target import TargetError

SMALL_JVM = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k")
"""The JVM options of a node of 190 MB that starts fast. Performance measurements pass other options."""

SMALL_BROKER = {
    "log.cleaner.dedupe.buffer.size": "2097152",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "4",
}
"""Only memory and threads: no setting that a client could observe."""

SHARE_GROUPS = {
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
FORMAT_TIMEOUT_S = 120
ARCHIVE_WITHIN_S = 120


class KafkaCluster(ClusterTarget):
    """`kafka:VERSION[:NODES]` of a version that needs no ZooKeeper."""

    def __init__(
        self,
        spec: str,
        *,
        version: str,
        nodes: int,
        folder: Path,
        config: Mapping[str, str] | None = None,
        hosts: Sequence[Host] | None = None,
        jvm: Sequence[str] = SMALL_JVM,
    ) -> None:
        super().__init__(spec, nodes=nodes, folder=folder, config=config, hosts=hosts)
        self.version = version
        self.jvm = tuple(jvm)
        self.jars: list[Path] = []
        self.quick = QuickStart(None, None)
        self.throwaway = False
        """Whether this cluster only runs to write its class archive and its checkpoint."""

    def prepare(self) -> None:
        if self.throwaway:
            return
        try:
            ensure_java()
            self.jars = kafka_jars(self.version)
        except (ArtifactError, JavaMissing) as error:
            raise TargetError(str(error)) from error
        self.quick = quick_start(self.version, self._make_quick_start)

    def properties(self, member: Member) -> dict[str, str]:
        return self.kraft_properties(member) | self.small_settings()

    def small_settings(self) -> dict[str, str]:
        """The properties that make a node small."""
        return SMALL_BROKER | SHARE_GROUPS if self.version.startswith("4.") else SMALL_BROKER

    def format(self, member: Member) -> None:
        if self.quick.checkpoint is None:
            self._run_format_tool(member)
            return
        member.data.mkdir(parents=True)
        shutil.copyfile(self.quick.checkpoint, member.data / CHECKPOINT)
        directory_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        write_properties(
            member.data / "meta.properties",
            {
                "version": "1",
                "cluster.id": self.cluster_id,
                "node.id": str(member.node.id),
                "directory.id": directory_id,
            },
        )

    def command(self, member: Member) -> list[str | Path]:
        return self.serve(member.properties_file)

    def serve(self, properties_file: Path) -> list[str | Path]:
        """The command that serves the node of a `server.properties`."""
        archive = [f"-XX:SharedArchiveFile={self.quick.archive}"] if self.quick.archive else []
        return self.java_command([*self.jvm, *archive, *_allowed_urls(properties_file)], "kafka.Kafka", properties_file)

    def java_command(self, options: Sequence[str], main: str, *arguments: str | Path) -> list[str | Path]:
        """A command that runs one of the release's programs."""
        return [java(), *options, *self.logging(), "-cp", class_path(self.jars), main, *arguments]

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"version": self.version, "java": str(java()), "jvm": list(self.jvm)}

    def logging(self) -> list[str]:
        """The options that make the node log to its output."""
        here = Path(__file__).parent
        if self.version.startswith("4."):
            return [f"-Dlog4j2.configurationFile={here / 'log4j2.properties'}"]
        return [f"-Dlog4j.configuration=file:{here / 'log4j.properties'}"]

    def _run_format_tool(self, member: Member) -> None:
        command = self.java_command(
            ["-XX:TieredStopAtLevel=1"],
            "kafka.tools.StorageTool",
            "format",
            "-t",
            self.cluster_id,
            "-c",
            member.properties_file,
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)
        if done.returncode:
            raise TargetError(f"Kafka's StorageTool failed: {(done.stderr or done.stdout).strip()[-1500:]}")

    def _make_quick_start(self, folder: Path) -> tuple[Path | None, Path | None]:
        """Format, start and cleanly stop one broker, which writes the archive. Returns the paths of the archive and the
        checkpoint."""
        folder.mkdir(parents=True)
        archive, checkpoint = folder / "kafka.jsa", folder / CHECKPOINT
        broker = type(self)(
            self.spec,
            version=self.version,
            nodes=1,
            folder=folder,
            jvm=(*self.jvm, f"-XX:ArchiveClassesAtExit={archive}"),
        )
        broker.jars, broker.throwaway = self.jars, True
        with suppress(TargetError), broker:
            member = broker.members[0]
            with suppress(FileNotFoundError):
                shutil.copyfile(member.data / CHECKPOINT, checkpoint)
            member.process.stop(ARCHIVE_WITHIN_S)
        return archive, checkpoint


def _allowed_urls(properties_file: Path) -> list[str]:
    """The JVM option that allows the configured URL of token keys: from release 4.0 on Kafka reads keys only from allowed
    URLs."""
    lines = properties_file.read_text().splitlines() if properties_file.exists() else []
    urls = [
        line.partition("=")[2] for line in lines if line.partition("=")[0].endswith("oauthbearer.jwks.endpoint.url")
    ]
    return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(urls)}"] if urls else []
