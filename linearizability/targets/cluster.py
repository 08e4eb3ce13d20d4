"""Clusters whose nodes are our own processes: prepare, format, start, hurt and remove them.

The common part of Apache Kafka and the reference: for each node a folder with its `server.properties`, data and log; a
process; ports. Subclasses define how to format a folder, and the command that serves it.
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
"""How long a node may take until it answers. A machine that is busy with tests needs ten times as long as an idle one."""
STOP_WITHIN_S = 20.0
START_ATTEMPTS = 3
"""The most attempts: another process may take a port after we have chosen it and before the broker binds it."""
POLL_S = 0.05
INTERPOSED = ("power-loss", "disk", "clock")
"""Hooks that a cluster offers where its nodes are started with an interposer."""
CUTS = ("partition", "heal")
"""Hooks that a cluster offers where its hosts are on a network of ours."""
META_PROPERTIES = "meta.properties"
"""The file that a formatted data folder has."""
INTERPOSER = "interposer"
"""The folder of a node's interposer, beside its data folder."""


@dataclass
class Member:
    """One node with its process, folder and properties."""

    node: Node
    controller_port: int
    host: Host
    folder: Path
    process: Process
    properties: dict[str, str]
    interposer: Interposer | None = None
    entrance: Node | None = None
    """The tunnel to its listener, where the listener is secured."""
    is_broker: bool = True
    """False for a node that is only a controller."""

    @property
    def reached(self) -> Node:
        """The address for clients without security; of a controller-only node, that of its controller listener."""
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
        """Drop everything from the sender to the receiver from now on."""

    def heal(self) -> None:
        """Undo all cuts."""


class ClusterTarget(Target):
    """A cluster of own processes."""

    hooks = ("kill", "stop", "restart", "pause", "resume", "config", "logs")
    joins_kafka: ClassVar[bool] = True
    """Whether its nodes can join a cluster with Kafka's nodes."""

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
        """The caller's function for properties that differ between nodes. It is called once the member has its other
        properties."""
        self.first_port: int | None = None
        """The port of node 1, where the caller chooses it: other nodes get the following ports, and controllers ports 100
        higher. Then the cluster uses `folder` itself, and continues with the data there."""

    def secure(self, protocol: str) -> None:
        """Secure the listener for clients and brokers from the next start on. Errors: WrongTarget."""
        self.listener = SecuredListener(protocol)

    def connect(self, links: Links) -> None:
        """Use a network between the hosts that can be cut, and offer the hooks for it."""
        self.links = links
        self.hooks = (*self.hooks, *CUTS)

    def interpose(self) -> None:
        """Put an interposer under the nodes' disks and clocks from the next start on. Errors: TargetError where none can be
        built."""
        library()
        self.interposed = True
        self.hooks = (*self.hooks, *INTERPOSED)

    @property
    def places(self) -> int:
        """The number of hosts for one server each. The nodes come first."""
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

    # ---- what a subclass defines

    def prepare(self) -> None:
        """Fetch all that a start needs, outside of its time limit. Errors: TargetError."""

    @abstractmethod
    def properties(self, member: Member) -> dict[str, str]:
        """The node's broker properties, without the caller's."""

    @abstractmethod
    def format(self, member: Member) -> None:
        """Format the node's empty data folder. Errors: TargetError."""

    @abstractmethod
    def command(self, member: Member) -> list[str | Path]:
        """The command that serves the node's folder."""

    def environment(self, member: Member) -> dict[str, str]:
        """The environment variables that the process gets in addition."""
        return {}

    def is_broker(self, node: int) -> bool:
        """Whether a node is a broker, and not only a controller."""
        return True

    @property
    def brokers(self) -> int:
        """The number of its brokers; also known before `lay_out`."""
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
        """Start every node that is down, and wait until each answers and reports the others. Errors: TargetError."""
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

    def ended_for_memory(self, node: int) -> str:
        return self.member(node).process.ended_for_memory()

    def kill(self, node: int) -> None:
        self.member(node).process.kill()

    def stop(self, node: int) -> None:
        self.member(node).process.stop(STOP_WITHIN_S)

    def restart(self, node: int, *, wait: bool = True) -> None:
        """Restart the node. Without `wait` it may still be starting, or waiting for others that are down."""
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
        """The member of a node. Errors: TargetError where there is none."""
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
                    end = member.process.ended_for_memory() or f"ended with exit code {member.process.exit_code()}"
                    raise TargetError(self._about(member, f"{end} before it answered"))
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
        """Choose ports, write properties, and format: all steps before the start."""
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
        """The ports of each node: for clients, and for controllers."""
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
        """Remove the passwords and the key from the run's folder."""
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

    # ---- properties of every KRaft cluster

    def kraft_properties(self, member: Member) -> dict[str, str]:
        """Properties of a node that is broker and controller, with small internal topics of the highest possible
        replication."""
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
    """Properties for internal topics with few partitions and possible replication factors, so that a cluster starts in
    seconds."""
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
    """16 random bytes in base64. Does not begin with `-`, because Kafka's tools would read an option."""
    while True:
        text = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file. Errors: TargetError for a value of several lines."""
    for name, value in properties.items():
        if "\n" in name + value:
            raise TargetError(f"the property {name!r} has a line break")
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def new_folder(parent: Path) -> Path:
    """A new folder below `parent`. One run may open its target several times, with different configurations."""
    for number in itertools.count(1):
        folder = parent / ("target" if number == 1 else f"target-{number}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder.resolve()
    raise AssertionError("unreachable")
