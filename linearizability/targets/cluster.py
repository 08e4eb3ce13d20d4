"""Nodes that are our own processes: laid out, formatted, started, hurt and removed.

What Apache Kafka and the reference have in common: a folder for each node with its `server.properties`, its data and its
log; a process; ports. Subclasses say how a folder is formatted and which command serves it.
"""

import base64
import itertools
import os
import shutil
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from linearizability.targets import leash
from linearizability.targets.addresses import AddressMap
from linearizability.targets.hosts import Host, plain_hosts
from linearizability.targets.interposer.building import library
from linearizability.targets.interposer.handle import Interposer
from linearizability.targets.process import Process
from linearizability.targets.secured import SecuredListener
from linearizability.targets.security import Tunnels
from linearizability.targets.target import DiskError, HookMissing, Node, Target, TargetError
from linearizability.targets.wire import answers, known_brokers

START_WITHIN_S = 90.0
"""How long a node may take until it answers; a machine that is busy with tests needs ten times what a quiet one needs."""
STOP_WITHIN_S = 20.0
START_ATTEMPTS = 3
"""Another process may take a port between our choosing it and the broker's binding it."""
POLL_S = 0.05
INTERPOSED = ("power-loss", "disk", "clock")
"""Hooks that a cluster offers where its nodes are started with an interposer."""
CUTS = ("partition", "heal")
"""Hooks that a cluster offers where its hosts are on a network of ours."""
META_PROPERTIES = "meta.properties"
"""What a formatted folder has."""
INTERPOSER = "interposer"
"""The folder, beside a node's data, of what stands between it and its disk."""


@dataclass
class Member:
    """One node and all that belongs to it."""

    node: Node
    controller_port: int
    host: Host
    folder: Path
    process: Process
    properties: dict[str, str]
    interposer: Interposer | None = None
    entrance: Node | None = None
    """The tunnel to its listener, where that is secured."""
    is_broker: bool = True
    """Otherwise it is a controller only."""

    @property
    def reached(self) -> Node:
        """Where clients of the plain protocol reach it; a controller only at its controllers' listener."""
        return self.entrance or (self.node if self.is_broker else self.controller)

    @property
    def controller(self) -> Node:
        return Node(self.node.id, self.host.address, self.controller_port)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def properties_file(self) -> Path:
        return self.folder / "server.properties"


class Links(Protocol):
    """The network between nodes, by their ids."""

    def cut(self, sender: int, receiver: int) -> None:
        """From now on nothing that the sender sends reaches the receiver."""

    def heal(self) -> None:
        """Take all cuts back."""


class ClusterTarget(Target):
    """A cluster of own processes."""

    hooks = ("kill", "stop", "restart", "pause", "resume", "config", "logs")
    joins_kafka: ClassVar[bool] = True
    """Whether its nodes can stand in one cluster with Kafka's."""

    def __init__(
        self,
        spec: str,
        *,
        nodes: int,
        folder: Path,
        config: Mapping[str, str] | None = None,
        hosts: Sequence[Host] | None = None,
    ) -> None:
        self.spec = spec
        self.size = nodes
        self.folder = folder
        self.given = dict(config or {})
        self.hosts = list(hosts or plain_hosts(nodes))
        if len(self.hosts) < nodes:
            raise TargetError(f"{spec} needs {nodes} hosts and was given {len(self.hosts)}")
        self.cluster_id = new_cluster_id()
        self.members: list[Member] = []
        self.seconds_to_start = 0.0
        self.interposed = False
        self.links: Links | None = None
        self.listener: SecuredListener | None = None
        self.of_each_node: Callable[[Member], Mapping[str, str]] | None = None
        """Properties of the caller that differ from node to node; the member has its others then."""
        self.first_port: int | None = None
        """The port of node 1, if it is chosen: the others follow, controllers listen 100 above. Then `folder` is the cluster's
        own, and a cluster that is there goes on."""

    def secure(self, protocol: str) -> None:
        """From the next start on, the listener for clients and brokers is secured. Errors: WrongTarget."""
        self.listener = SecuredListener(protocol)

    def connect(self, links: Links) -> None:
        """The hosts are joined by a network that can be cut."""
        self.links = links
        self.hooks = (*self.hooks, *CUTS)

    def interpose(self) -> None:
        """From the next start on, nodes have disks and clocks that can be hurt. Errors: TargetError where none can."""
        library()
        self.interposed = True
        self.hooks = (*self.hooks, *INTERPOSED)

    @property
    def places(self) -> int:
        """How many hosts it takes to have each of its servers on one of its own: the nodes come first."""
        return self.size

    @property
    def nodes(self) -> Sequence[Node]:
        return [member.reached for member in self.members if member.is_broker]

    @property
    def controllers(self) -> Sequence[Node]:
        return [member.controller for member in self.members]

    @property
    def controllers_alone(self) -> Sequence[Node]:
        return [member.controller for member in self.members if not member.is_broker]

    # ---- what a subclass says

    def prepare(self) -> None:
        """Fetch what is needed, before the clock runs. Errors: TargetError."""

    @abstractmethod
    def properties(self, member: Member) -> dict[str, str]:
        """The node's broker properties, without those that the caller gave."""

    @abstractmethod
    def format(self, member: Member) -> None:
        """Make an empty data folder the node's own. Errors: TargetError."""

    @abstractmethod
    def command(self, member: Member) -> list[str | Path]:
        """What serves the folder."""

    def environment(self, member: Member) -> dict[str, str]:
        """The process's own environment variables."""
        return {}

    def is_broker(self, node: int) -> bool:
        """Whether a node is a broker; otherwise it is a controller only."""
        return True

    @property
    def brokers(self) -> int:
        """How many of its nodes are brokers; known before it is laid out, too."""
        return sum(self.is_broker(node) for node in range(1, self.size + 1))

    # ---- opening and closing

    def open(self) -> None:
        leash.remove_leftovers()
        self.prepare()
        self.folder.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                self.lay_out(new_folder(self.folder) if self.first_port is None else self.folder.resolve())
                began = time.monotonic()
                self.start_all()
                self.seconds_to_start = time.monotonic() - began
                return
            except TargetError as error:
                self.end_all()
                if attempt == START_ATTEMPTS or self.first_port is not None or "in use" not in str(error):
                    raise

    def start_all(self) -> None:
        """Start every node that is down and wait until each answers and knows the others. Errors: TargetError."""
        for member in self.members:
            if not member.process.running:
                member.process.start()
        self.await_answers(self.members)
        self._await_acquaintance()

    def close(self) -> None:
        self.end_all()
        if self.listener:
            self._forget_secrets(self.listener)
        if not self.keep_data:
            for member in self.members:
                shutil.rmtree(member.data, ignore_errors=True)
                shutil.rmtree(member.folder / INTERPOSER, ignore_errors=True)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "cluster_id": self.cluster_id,
            "config": self.given,
            "folders": [str(member.folder) for member in self.members],
            "seconds_to_start": round(self.seconds_to_start, 3),
        }

    # ---- hooks

    def running(self, node: int) -> bool:
        return self.member(node).process.running

    def exit_status(self, node: int) -> int | None:
        return self.member(node).process.exit_code()

    def kill(self, node: int) -> None:
        self.member(node).process.kill()

    def stop(self, node: int) -> None:
        self.member(node).process.stop(STOP_WITHIN_S)

    def restart(self, node: int, *, wait: bool = True) -> None:
        """Start the node again. Without `wait` it may still be starting, or waiting for others that are down."""
        member = self.member(node)
        if member.process.running:
            member.process.stop(STOP_WITHIN_S)
        member.process.start()
        if wait:
            self.await_answers([member])

    def pause(self, node: int) -> None:
        self.member(node).process.pause()

    def resume(self, node: int) -> None:
        self.member(node).process.resume()

    def partition(self, groups: Sequence[Collection[int]]) -> None:
        if self.links is None:
            raise HookMissing(self.spec, "partition")
        for group, other in itertools.permutations(groups, 2):
            for sender, receiver in itertools.product(group, other):
                self.links.cut(sender, receiver)

    def heal(self) -> None:
        if self.links is None:
            raise HookMissing(self.spec, "heal")
        self.links.heal()

    def power_loss(self, nodes: Collection[int], kept: float = 0.0, *, journaled: bool = False) -> None:
        for node in nodes:
            self.kill(node)
        for node in nodes:
            self._interposer(node, "power-loss").lose_power(kept, journaled=journaled)

    def disk(self, node: int, error: DiskError | None, bytes_left: int = 0) -> None:
        if error is None:
            self._interposer(node, "disk").mend_disk()
        else:
            self._interposer(node, "disk").break_disk(error, bytes_left)

    def clock(self, node: int, seconds: float) -> None:
        self._interposer(node, "clock").set_clock(seconds)

    def _interposer(self, node: int, hook: str) -> Interposer:
        interposer = self.member(node).interposer
        if interposer is None:
            raise HookMissing(self.spec, hook)
        if not interposer.loads:
            raise TargetError(f"node {node} of {self.spec} runs without its interposer: {hook} would act on no process")
        return interposer

    def config(self, node: int, changes: Mapping[str, str]) -> None:
        member = self.member(node)
        member.properties.update(changes)
        write_properties(member.properties_file, member.properties)
        self.restart(node)

    def logs(self, node: int) -> list[Path]:
        return [self.member(node).process.log]

    # ---- members

    def member(self, node: int) -> Member:
        """Errors: TargetError where there is no such node."""
        for member in self.members:
            if member.node.id == node:
                return member
        raise TargetError(f"{self.spec} has no node {node}, but {', '.join(str(n.id) for n in self.nodes)}")

    def await_answers(self, members: Sequence[Member], within_s: float = START_WITHIN_S) -> None:
        """Wait until each of the members answers. Errors: TargetError, with the end of the log of one that does not."""
        until = time.monotonic() + within_s
        for member in members:
            while not answers(member.reached.host, member.reached.port):
                if not member.process.running:
                    code = member.process.exit_code()
                    raise TargetError(self._about(member, f"ended with exit code {code} before it answered"))
                if time.monotonic() > until:
                    raise TargetError(self._about(member, f"did not answer within {within_s:.0f} s"))
                time.sleep(POLL_S)

    def _await_acquaintance(self) -> None:
        until = time.monotonic() + START_WITHIN_S
        brokers = [member for member in self.members if member.is_broker]
        wanted = {member.node.id for member in brokers}
        for member in brokers:
            while not wanted <= (known := known_brokers(member.reached.host, member.reached.port)):
                if time.monotonic() > until or not member.process.running:
                    raise TargetError(
                        self._about(member, f"knows only the brokers {sorted(known)} of {sorted(wanted)}")
                    )
                time.sleep(POLL_S)

    def lay_out(self, home: Path) -> None:
        """Choose ports, write properties, format: everything but the start."""
        self.members = []
        for number, (host, (port, controller_port)) in enumerate(
            zip(self.hosts[: self.size], self._ports(), strict=True), start=1
        ):
            folder = home / f"node-{number}"
            folder.mkdir(exist_ok=self.first_port is not None)
            process = host.process(f"node {number} of {self.spec}", folder / "node.log", folder)
            node = Node(number, host.address, port)
            is_broker = self.is_broker(number)
            self.members.append(Member(node, controller_port, host, folder, process, {}, is_broker=is_broker))
        if self.listener:
            self._enter_by_tunnels(self.listener, home)
        for member in self.members:
            member.properties = self.all_properties(member)
            if self.of_each_node:
                member.properties |= self.of_each_node(member)
            write_properties(member.properties_file, member.properties)
            if not (member.data / META_PROPERTIES).exists():
                self.format(member)
            member.process.command = [*member.host.prefix, *(str(part) for part in self.command(member))]
            member.process.environment = self.environment(member)
            if self.interposed:
                member.data.mkdir(parents=True, exist_ok=True)
                member.interposer = Interposer(member.folder / INTERPOSER, member.data)
                member.process.environment |= member.interposer.environment()

    def _ports(self) -> list[tuple[int, int]]:
        """Each node's port, and its controllers' listener's."""
        if self.first_port is not None:
            return [(port, port + 100) for port in range(self.first_port, self.first_port + self.size)]
        ports: list[tuple[int, int]] = []
        taken: dict[str, list[int]] = {}
        for host in self.hosts[: self.size]:
            if host.address not in taken:
                sharing = sum(other.address == host.address for other in self.hosts[: self.size])
                taken[host.address] = host.free_ports(2 * sharing)
            ports.append((taken[host.address].pop(), taken[host.address].pop()))
        return ports

    def all_properties(self, member: Member) -> dict[str, str]:
        """The node's broker properties."""
        plain = self.properties(member) | self.given
        return self.listener.properties(plain) if self.listener else plain

    def _enter_by_tunnels(self, listener: SecuredListener, home: Path) -> None:
        listener.issue(home, {member.host.address for member in self.members})
        self.security = listener.client_security
        self.tunnels = Tunnels(self.security)
        for member in (each for each in self.members if each.is_broker):
            host, port = self.tunnels.to(member.node.host, member.node.port)
            member.entrance = Node(member.node.id, host, port)
            self.addresses |= AddressMap({member.node.address: member.entrance.address})

    def _forget_secrets(self, listener: SecuredListener) -> None:
        """What stays in the run's folder has no password and no key."""
        listener.delete_key()
        for member in self.members:
            write_properties(member.properties_file, listener.without_secrets(member.properties))

    def end_all(self) -> None:
        """Kill every process. Never raises."""
        for member in self.members:
            with suppress(TargetError):
                member.process.kill()
        if self.tunnels:
            self.tunnels.close()
            self.tunnels = None

    def _about(self, member: Member, what: str) -> str:
        return f"{member.process.name} {what}; its log {member.process.log} ends:\n{member.process.tail()}"

    # ---- properties that every cluster of today's Kafka shares

    def kraft_properties(self, member: Member) -> dict[str, str]:
        """Each node is broker and controller; internal topics are small, and as replicated as the cluster allows."""
        node, host = member.node, member.host.address
        voters = ",".join(f"{m.node.id}@{m.node.host}:{m.controller_port}" for m in self.members)
        return {
            "process.roles": "broker,controller",
            "node.id": str(node.id),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{host}:{node.port},CONTROLLER://{host}:{member.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{host}:{node.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(member.data),
            **small_internal_topics(sum(each.is_broker for each in self.members)),
        }


def small_internal_topics(nodes: int) -> dict[str, str]:
    """Replication factors that the cluster can have, and few partitions: a test cluster starts in seconds."""
    factor = str(min(nodes, 3))
    in_sync = str(max(1, min(nodes, 3) - 1))
    return {
        "offsets.topic.replication.factor": factor,
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",
    }


def new_cluster_id() -> str:
    """16 random bytes as Kafka writes them; it refuses an id that looks like an option."""
    while True:
        text = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Java's properties file. Errors: TargetError for a value of several lines."""
    for name, value in properties.items():
        if "\n" in name + value:
            raise TargetError(f"the property {name!r} has a line break")
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def new_folder(parent: Path) -> Path:
    """One run may open its target several times, each time differently configured."""
    for number in itertools.count(1):
        folder = parent / ("target" if number == 1 else f"target-{number}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder.resolve()
    raise AssertionError("unreachable")
