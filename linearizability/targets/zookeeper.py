"""One ZooKeeper server, which coordinates brokers without KRaft; and clusters that use one."""

from __future__ import annotations

import shutil
import socket
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from linearizability.targets.artifacts import ArtifactError, JavaMissing, ensure_java, java, kafka_jars
from linearizability.targets.cluster import (
    POLL_S,
    START_WITHIN_S,
    ClusterTarget,
    Member,
    small_internal_topics,
    write_properties,
)
from linearizability.targets.hosts import Host
from linearizability.targets.kafka_start import class_path
from linearizability.targets.process import Process
from linearizability.targets.target import Node, TargetError

ZOOKEEPER_OF = "3.9.2"
"""The Kafka release whose ZooKeeper is started: the last one that includes it."""
TICK_MS = 500
"""ZooKeeper's tick; sessions last at least 2 ticks."""
SESSION_TIMEOUT_MS = 3_000
"""How long a silent broker stays registered, by default."""
SESSION_TIMEOUT = "broker.session.timeout.ms"
"""KRaft's name of this timeout. A release that has only ZooKeeper's name would silently ignore this one."""
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"


class ZooKeeper:
    """A server with its own process and data folder."""

    def __init__(self, name: str, host: Host, session_timeout_ms: int) -> None:
        self.name = name
        self.host = host
        self.session_timeout_ms = session_timeout_ms
        self.port = 0
        self.given = ""
        """HOST:PORT,.../CHROOT of a ZooKeeper that runs already; then no server is started."""
        self.process: Process | None = None
        self._data = Path()

    @property
    def address(self) -> str:
        """HOST:PORT, as in zookeeper.connect."""
        return self.given or f"{self.host.address}:{self.port}"

    def lay_out(self, home: Path, jars: Sequence[Path], logging: Sequence[str]) -> None:
        """Write the configuration into `home`/zookeeper."""
        (self.port,) = self.host.free_ports(1)
        folder = home / "zookeeper"
        folder.mkdir(exist_ok=True)
        self._data = folder / "data"
        settings = folder / "zoo.cfg"
        write_properties(
            settings,
            {
                "tickTime": str(TICK_MS),
                "maxSessionTimeout": str(max(self.session_timeout_ms, 20 * TICK_MS)),
                "dataDir": str(self._data),
                "clientPort": str(self.port),
                "clientPortAddress": self.host.address,
                "maxClientCnxns": "0",
                "admin.enableServer": "false",
            },
        )
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *logging]
        command = [*self.host.prefix, java(), *options, "-cp", class_path([*jars]), MAIN, settings]
        self.process = self.host.process(self.name, folder / "node.log", folder)
        self.process.command = [str(part) for part in command]

    def start(self) -> None:
        """Start the server, if it does not run, and wait until it listens. Errors: TargetError with the end of its log."""
        assert self.process is not None
        if not self.process.running:
            self.process.start()
        until = time.monotonic() + START_WITHIN_S
        while not self._listens():
            if not self.process.running or time.monotonic() > until:
                raise TargetError(f"{self.name} does not listen; its log ends:\n{self.process.tail()}")
            time.sleep(POLL_S)

    def kill(self) -> None:
        if self.process is not None:
            with suppress(TargetError):
                self.process.kill()

    def remove_data(self) -> None:
        shutil.rmtree(self._data, ignore_errors=True)

    def _listens(self) -> bool:
        with closing(socket.socket()) as probe:
            probe.settimeout(1)
            return probe.connect_ex((self.host.address, self.port)) == 0


def zookeeper_program() -> tuple[Sequence[Path], Sequence[str]]:
    """The jars of the last Kafka release with ZooKeeper, and the options that make it log to its output. Errors: TargetError."""
    try:
        ensure_java()
        return kafka_jars(ZOOKEEPER_OF), [f"-Dlog4j.configuration=file:{Path(__file__).with_name('log4j.properties')}"]
    except (ArtifactError, JavaMissing) as error:
        raise TargetError(str(error)) from error


class ByZooKeeper(ClusterTarget):
    """A cluster that ZooKeeper coordinates; its server starts first and ends last."""

    def __init__(self, spec: str, **given: Any) -> None:
        """Arguments as for the kind of broker. ZooKeeper runs on the host after the nodes' hosts, where there is one."""
        super().__init__(spec, **given)
        timeout_ms = int(self.given.get(SESSION_TIMEOUT, SESSION_TIMEOUT_MS))
        host = Host()
        if len(self.hosts) > self.size:
            host, self.coordinator = self.hosts[self.size], self.places
        self.zookeeper = ZooKeeper(f"ZooKeeper of {spec}", host, timeout_ms)
        self.killed_at: dict[int, float] = {}

    @property
    def places(self) -> int:
        return self.size + 1

    @property
    def controllers(self) -> Sequence[Node]:
        return ()

    def zookeeper_properties(self, member: Member) -> dict[str, str]:
        """The properties of every broker. By default unclean elections were allowed before 0.11 (KIP-106), and topics could
        not be deleted before 1.0 (KAFKA-5384)."""
        return {
            "broker.id": str(member.node.id),
            "zookeeper.connect": self.zookeeper.address,
            "zookeeper.session.timeout.ms": str(self.zookeeper.session_timeout_ms),
            "unclean.leader.election.enable": "false",
            "delete.topic.enable": "true",
            "log.dirs": str(member.data),
            **small_internal_topics(self.size),
        }

    @abstractmethod
    def zookeeper_command(self) -> tuple[Sequence[Path], Sequence[str]]:
        """The jars of a Kafka release with ZooKeeper, and the options that make it log to its output. Errors: TargetError."""

    def gives_up(self, node: int) -> bool:
        """Whether a broker ends when its earlier registration still exists, as Kafka does."""
        return False

    def kill(self, node: int) -> None:
        super().kill(node)
        self.killed_at[node] = time.monotonic()

    def restart(self, node: int, *, wait: bool = True) -> None:
        """Restart the node. For a broker with `gives_up`, first waits until its earlier session has expired."""
        if self.gives_up(node):
            since_kill_s = time.monotonic() - self.killed_at.get(node, 0)
            time.sleep(max(0.0, (self.zookeeper.session_timeout_ms + 2 * TICK_MS) / 1000 - since_kill_s))
        super().restart(node, wait=wait)

    def format(self, member: Member) -> None:
        """Do nothing: such a broker formats its own folder."""

    def lay_out(self, home: Path) -> None:
        if not self.zookeeper.given:
            self.zookeeper.lay_out(home, *self.zookeeper_command())
        super().lay_out(home)

    def start_all(self) -> None:
        if not self.zookeeper.given:
            self.zookeeper.start()
        super().start_all()

    def end_all(self) -> None:
        super().end_all()
        self.zookeeper.kill()

    def close(self) -> None:
        super().close()
        if not self.keep_data:
            self.zookeeper.remove_data()
