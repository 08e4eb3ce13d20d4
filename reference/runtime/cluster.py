"""A cluster on this machine: several `serve` processes on loopback, for trying things out.

A folder holds it: a `server.properties`, a data folder and a log for each node. Starting it again in the same folder goes on
with the same cluster. It ends with the process that started it, however that ends: each node's standard input is a pipe that
only this process holds open, and a node stops when it is closed. (Not the kernel's parent-death signal: it fires when the
starting thread ends, and exists on Linux alone.)
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from reference.protocol.codec import CodecError
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from reference.protocol.primitives import NodeId
from reference.runtime.configuration import ConfigurationError, check_configuration
from reference.runtime.folders import format_folders, new_cluster_id
from reference.storage.checkpoints import read_meta_properties
from reference.storage.posix_disk import PosixDisk

HOST = "127.0.0.1"
METADATA_KEY, METADATA_VERSION = 3, 12
ANSWER_WITHIN_S = 2.0
READY_WITHIN_S = 60.0
STOP_WITHIN_S = 40.0
POLL_S = 0.1
MAX_NODES = 9
MAX_REASON = 300
METRICS = "tidegauge.metrics.listener"


class Guest(Protocol):
    """A broker of another kind, which serves a node's folder in the place of the reference."""

    settings: Mapping[str, str]
    """Beside those that every node has."""

    def format(self, data: Path) -> None:
        """Add what it needs to a folder that has `meta.properties`."""

    def start(self, properties_file: Path, log: Path) -> subprocess.Popen[bytes]:
        """Serve, and end when this process has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Member:
    """One node of the cluster."""

    id: int
    port: int
    controller_port: int
    folder: Path
    guest: Guest | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def properties_file(self) -> Path:
        return self.folder / "server.properties"

    @property
    def log(self) -> Path:
        return self.folder / "node.log"


def lay_out(
    folder: Path,
    nodes: int,
    base_port: int,
    settings: Mapping[str, str],
    guests: Mapping[int, Guest] | None = None,
    zookeeper: str = "",
) -> list[Member]:
    """Write each node's configuration and format its data folder with one cluster id; `guests` by the ids of their nodes.

    Brokers that a ZooKeeper coordinates (`zookeeper`: HOST:PORT,.../CHROOT) format their own folders.
    Errors: ConfigurationError for a folder that is another cluster's, or settings that cannot be.
    """
    if not 1 <= nodes <= MAX_NODES:
        raise ConfigurationError(f"--nodes {nodes}: between 1 and {MAX_NODES} nodes are possible")
    members = [
        Member(
            number,
            base_port + number - 1,
            base_port + 100 + number - 1,
            folder / f"node-{number}",
            (guests or {}).get(number),
        )
        for number in range(1, nodes + 1)
    ]
    voters = ",".join(f"{member.id}@{HOST}:{member.controller_port}" for member in members)
    cluster_id = _known_cluster_id(members) or new_cluster_id()
    for member in members:
        _check_coordination(member, zookeeper)
        coordinated = _by_zookeeper(member, zookeeper) if zookeeper else _by_quorum(member, voters)
        properties = coordinated | _properties(member, nodes) | dict(settings) | _own_metrics(member, settings)
        configuration = check_configuration(properties, str(member.properties_file))
        if member.guest is not None:
            properties = {**member.guest.settings, **properties}
        member.folder.mkdir(parents=True, exist_ok=True)
        member.properties_file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        if not zookeeper:
            format_folders(configuration, cluster_id, ignore_formatted=True)
        if member.guest is not None:
            member.guest.format(member.data)
    return members


def _known_cluster_id(members: Sequence[Member]) -> str | None:
    for member in members:
        with contextlib.suppress(OSError):
            found = read_meta_properties(PosixDisk(), member.data)
            if found is not None:
                return found.cluster_id
    return None


def _check_coordination(member: Member, zookeeper: str) -> None:
    """Errors: ConfigurationError where the node's folder is of a cluster that is coordinated in the other way."""
    with contextlib.suppress(FileNotFoundError):
        had_zookeeper = "\nzookeeper.connect=" in "\n" + member.properties_file.read_text()
        if had_zookeeper != bool(zookeeper):
            former = "a ZooKeeper" if had_zookeeper else "its own quorum"
            raise ConfigurationError(f"{member.folder} is of a cluster that {former} coordinates")


def _by_quorum(member: Member, voters: str) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": str(member.id),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{HOST}:{member.port},CONTROLLER://{HOST}:{member.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }


def _by_zookeeper(member: Member, zookeeper: str) -> dict[str, str]:
    return {
        "broker.id": str(member.id),
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": "3000",
        "listeners": f"PLAINTEXT://{HOST}:{member.port}",
    }


def _properties(member: Member, nodes: int) -> dict[str, str]:
    factor = str(min(nodes, 3))
    return {
        "advertised.listeners": f"PLAINTEXT://{HOST}:{member.port}",
        "log.dirs": str(member.data),
        "default.replication.factor": factor,
        "min.insync.replicas": str(max(1, int(factor) - 1)),
        "offsets.topic.replication.factor": factor,
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": str(max(1, int(factor) - 1)),
        "transaction.state.log.num.partitions": "3",
        "replica.lag.time.max.ms": "5000",
    }


def _own_metrics(member: Member, settings: Mapping[str, str]) -> dict[str, str]:
    """The first node's metrics are at the port that is set, those of each further node at the next: all share one host."""
    host, _, port = settings.get(METRICS, "").rpartition(":")
    return {METRICS: f"{host}:{int(port) + member.id - 1}"} if port.isdecimal() and int(port) else {}


class ClusterProcesses:
    """The processes of a cluster; use it as a context."""

    def __init__(
        self, members: Sequence[Member], interpreter: str = sys.executable, environment: Mapping[str, str] | None = None
    ) -> None:
        """`interpreter` executes the reference's nodes, with these variables beside those of this process."""
        self.members = members
        self._interpreter = interpreter
        self._environment = os.environ | (environment or {})
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> ClusterProcesses:
        for member in self.members:
            self.start(member)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all nodes cleanly. What does not stop in time is killed, and all that is left if this is interrupted.

        Guests stop first: Apache Kafka waits for minutes for a controller that lets it go.
        """
        until = time.monotonic() + STOP_WITHIN_S
        guests = {member.id for member in self.members if member.guest is not None}
        try:
            for ids in (guests, self._processes.keys() - guests):
                stopping = [self._processes[id] for id in ids if id in self._processes]
                for process in stopping:
                    process.terminate()
                for process in stopping:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(max(0.1, until - time.monotonic()))
        finally:
            for process in self._processes.values():
                process.kill()
            for process in self._processes.values():
                process.communicate()  # closes its standard input, too

    def start(self, member: Member) -> None:
        """Start a node's process."""
        if member.guest is not None:
            self._processes[member.id] = member.guest.start(member.properties_file, member.log)
            return
        with member.log.open("ab") as log:
            self._processes[member.id] = subprocess.Popen(
                [self._interpreter, "-m", "tidegauge", "serve", "--stop-with-stdin", str(member.properties_file)],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, member: Member) -> None:
        """End a node's process as SIGKILL does."""
        self._processes[member.id].kill()
        self._processes[member.id].wait()

    def is_running(self, member: Member) -> bool:
        return self._processes[member.id].poll() is None

    def ended(self) -> Iterator[tuple[Member, int]]:
        """The nodes whose processes are over, with their exit codes."""
        for member in self.members:
            code = self._processes[member.id].poll()
            if code is not None:
                yield member, code

    def await_ready(self, said: Callable[[str], None]) -> None:
        """Wait until every node knows every other as alive. Errors: ConfigurationError that names the node's log."""
        until = time.monotonic() + READY_WITHIN_S
        for member in self.members:
            while (found := describe(member)) is None or len(found.brokers) < len(self.members):
                for dead, code in self.ended():
                    reason = last_line(dead.log)
                    raise ConfigurationError(f"node {dead.id} ended with exit code {code}: {reason} ({dead.log})")
                if time.monotonic() > until:
                    raise ConfigurationError(f"node {member.id} was not ready in time: see {member.log}")
                time.sleep(POLL_S)
            said(f"node {member.id} at {HOST}:{member.port}")


def last_line(log: Path) -> str:
    """What a node wrote last: why it ended, mostly."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:MAX_REASON] if lines else "it wrote nothing"


def describe(member: Member) -> MetadataResponse | None:
    """The metadata as a node reports them; None where it does not answer."""
    try:
        with socket.create_connection((HOST, member.port), ANSWER_WITHIN_S) as connection:
            body = MetadataRequest(topics=None)
            connection.sendall(encode_request(METADATA_KEY, METADATA_VERSION, 1, "tidegauge-cluster", body))
            size = int.from_bytes(_read(connection, 4), "big")
            _, answer = decode_response(METADATA_KEY, METADATA_VERSION, _read(connection, size))
            return answer if isinstance(answer, MetadataResponse) else None
    except (OSError, CodecError, EOFError):
        return None


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def leaders(answer: MetadataResponse) -> list[tuple[str, int, NodeId, list[NodeId], list[NodeId]]]:
    """Topic, partition, leader (-1: none), replicas and ISR, in order."""
    return [
        (topic.name or "", each.partition_index, each.leader_id, each.replica_nodes, each.isr_nodes)
        for topic in sorted(answer.topics, key=lambda topic: topic.name or "")
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]
