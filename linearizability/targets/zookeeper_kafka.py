"""Apache Kafka of the years before KRaft: the same nodes, beside a ZooKeeper without faults."""

import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from linearizability.targets.artifacts import java
from linearizability.targets.cluster import POLL_S, START_WITHIN_S, Member, small_internal_topics, write_properties
from linearizability.targets.hosts import Host
from linearizability.targets.kafka import SMALL_BROKER, SMALL_JVM, KafkaCluster
from linearizability.targets.kafka_start import class_path
from linearizability.targets.process import Process
from linearizability.targets.target import TargetError

FIRST_WITHOUT = (3, 3)
"""From this release on a node is started in KRaft mode: the first that Kafka calls fit for use (KIP-833)."""
FIRST_WITH_LISTENERS = (0, 9)
"""Before this release a broker is given a host and a port."""
FIRST_WITH_CREATION = (0, 10, 1)
"""Before this release no client can make a topic (KIP-4)."""
TICK_MS = 500
"""ZooKeeper's unit: sessions last at least 2 of it."""
SESSION_TIMEOUT_MS = 3_000
"""How long a silent broker stays registered, unless the configuration says otherwise."""
SESSION_TIMEOUT = "broker.session.timeout.ms"
"""KRaft's name of it. A release that has ZooKeeper's name alone would ignore this one in silence."""


def version_of(release: str, numbers: int = 2) -> tuple[int, ...]:
    """The first numbers of a release."""
    return tuple(int(part) for part in release.split(".")[:numbers])


def needs_zookeeper(version: str) -> bool:
    """Whether a release is started with a ZooKeeper."""
    return version_of(version) < FIRST_WITHOUT


class ZooKeeperKafkaCluster(KafkaCluster):
    """`kafka:VERSION[:NODES]` of an old version."""

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
        super().__init__(spec, version=version, nodes=nodes, folder=folder, config=config, hosts=hosts, jvm=jvm)
        self.zookeeper_host = self.hosts[nodes] if len(self.hosts) > nodes else Host()
        self.zookeeper_port = 0
        self.zookeeper: Process | None = None
        self.zookeeper_data = Path()
        self.killed_at: dict[int, float] = {}
        self.session_timeout_ms = int(self.given.get(SESSION_TIMEOUT, SESSION_TIMEOUT_MS))

    def properties(self, member: Member) -> dict[str, str]:
        """Unclean elections were allowed until 0.11 (KIP-106), and topics could not be deleted before 1.0 (KAFKA-5384)."""
        host, port = member.host.address, member.node.port
        address = f"PLAINTEXT://{host}:{port}"
        place: dict[str, str] = {"listeners": address, "advertised.listeners": address}
        if version_of(self.version) < FIRST_WITH_LISTENERS:
            place = {"host.name": host, "port": str(port)}
        return {
            "broker.id": str(member.node.id),
            **place,
            "zookeeper.connect": f"{self.zookeeper_host.address}:{self.zookeeper_port}",
            "zookeeper.session.timeout.ms": str(self.session_timeout_ms),
            "unclean.leader.election.enable": "false",
            "delete.topic.enable": "true",
            "log.dirs": str(member.data),
            **small_internal_topics(self.size),
            **SMALL_BROKER,
        }

    def format(self, member: Member) -> None:
        """A broker of these releases makes its own folder."""

    def lay_out(self, home: Path) -> None:
        (self.zookeeper_port,) = self.zookeeper_host.free_ports(1)
        folder = home / "zookeeper"
        folder.mkdir()
        self.zookeeper_data = folder / "data"
        settings = folder / "zoo.cfg"
        write_properties(
            settings,
            {
                "tickTime": str(TICK_MS),
                "maxSessionTimeout": str(max(self.session_timeout_ms, 20 * TICK_MS)),
                "dataDir": str(self.zookeeper_data),
                "clientPort": str(self.zookeeper_port),
                "clientPortAddress": self.zookeeper_host.address,
                "maxClientCnxns": "0",
            },
        )
        command = [
            *self.zookeeper_host.prefix, java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            *self.logging(), "-cp", class_path(self.jars), "org.apache.zookeeper.server.ZooKeeperServerMain", settings,
        ]  # fmt: skip
        self.zookeeper = self.zookeeper_host.process(f"ZooKeeper of {self.spec}", folder / "node.log", folder)
        self.zookeeper.command = [str(part) for part in command]
        super().lay_out(home)

    def start_all(self) -> None:
        assert self.zookeeper is not None
        if not self.zookeeper.running:
            self.zookeeper.start()
        until = time.monotonic() + START_WITHIN_S
        while not self._zookeeper_listens():
            if not self.zookeeper.running or time.monotonic() > until:
                raise TargetError(f"{self.zookeeper.name} does not listen; its log ends:\n{self.zookeeper.tail()}")
            time.sleep(POLL_S)
        super().start_all()

    def _await_acquaintance(self) -> None:
        """Before 0.9 brokers name each other only once there is a topic."""
        if version_of(self.version) >= FIRST_WITH_LISTENERS:
            super()._await_acquaintance()

    def kill(self, node: int) -> None:
        super().kill(node)
        self.killed_at[node] = time.monotonic()

    def restart(self, node: int, *, wait: bool = True) -> None:
        """Start it again, not before its old session is over: a broker that finds itself still registered gives up."""
        since_kill_s = time.monotonic() - self.killed_at.get(node, 0)
        time.sleep(max(0.0, (self.session_timeout_ms + 2 * TICK_MS) / 1000 - since_kill_s))
        super().restart(node, wait=wait)

    def end_all(self) -> None:
        super().end_all()
        if self.zookeeper is not None:
            with suppress(TargetError):
                self.zookeeper.kill()

    def close(self) -> None:
        super().close()
        if not self.keep_data and self.zookeeper is not None:
            shutil.rmtree(self.zookeeper_data, ignore_errors=True)

    def _zookeeper_listens(self) -> bool:
        with closing(socket.socket()) as probe:
            probe.settimeout(1)
            return probe.connect_ex((self.zookeeper_host.address, self.zookeeper_port)) == 0
