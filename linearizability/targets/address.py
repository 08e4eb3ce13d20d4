"""A broker that the suite did not start: Metadata reports its other nodes, and it has at most the hook `restart`."""

import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linearizability.targets.addresses import AddressMap, address_text, diagnosis, parse_address
from linearizability.targets.security import SecurityError, Tunnels
from linearizability.targets.target import HookMissing, Node, Target, TargetError
from linearizability.targets.wire import WireError, answers, listed_brokers

__all__ = ["Address", "parse_address"]

TIMEOUT_S = 15.0
BACK_WITHIN_S = 120.0
"""How long a broker may take to answer again after a restart by the command or by its owner."""
POLL_S = 0.2


class Address(Target):
    """`addr:HOST:PORT[,HOST:PORT…]`. One address is enough: the other nodes are those of its Metadata.

    With a restart command it offers the hook `restart`. In the shell command, `{node}`, `{host}` and `{port}` stand for the
    node. The command must also stop a node that runs.
    """

    def __init__(
        self,
        spec: str,
        addresses: str,
        *,
        folder: Path,
        config: Mapping[str, str] | None = None,
        restart_command: str = "",
    ) -> None:
        self.spec = spec
        self.given_addresses = [parse_address(text) for text in addresses.split(",")]
        self.unknown_config = tuple(config or {})
        self.folder = folder
        self.entrances = list(self.given_addresses)
        """The addresses for connections to the given ones: those of tunnels, where the target is secured."""
        self.restart_command = restart_command
        self.hooks = ("restart",) if restart_command else ()
        self._nodes: list[Node] = []

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.entrances)

    @property
    def nodes(self) -> Sequence[Node]:
        return self._nodes

    def open(self) -> None:
        """Read all nodes from the Metadata of the first given address that answers. Errors: TargetError where none does."""
        if self.security:
            self.tunnels = Tunnels(self.security)
            self.entrances = [self.tunnels.to(host, port) for host, port in self.given_addresses]
        failures: list[str] = []
        for (host, port), entrance in zip(self.given_addresses, self.entrances, strict=True):
            try:
                if self.tunnels:
                    self.tunnels.check(host, port)
                brokers = listed_brokers(*entrance, timeout_s=TIMEOUT_S)
            except SecurityError as error:
                failures.append(str(error))
                continue
            except (WireError, ValueError) as error:
                failures.append(f"{host}:{port}: {str(error).removeprefix(f'{host}:{port}: ')}")
                continue
            self._take(brokers, (host, port))
            return
        raise TargetError(f"{self.spec} does not answer: {'; '.join(failures)}")

    def close(self) -> None:
        """Close only the tunnels: the broker is not ours."""
        if self.tunnels:
            self.tunnels.close()
            self.tunnels = None

    def restart(self, node: int, *, wait: bool = True) -> None:
        if not self.restart_command:
            raise HookMissing(self.spec, "restart")
        here = self._node(node)
        command = self.restart_command
        for name, value in (("node", node), ("host", here.host), ("port", here.port)):
            command = command.replace(f"{{{name}}}", str(value))
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "restart-command.log"
        with log.open("ab") as output:
            try:
                done = subprocess.run(
                    command, shell=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=BACK_WITHIN_S
                )
            except subprocess.TimeoutExpired:
                raise TargetError(f"the restart command did not end within {BACK_WITHIN_S:.0f} s: {command}") from None
        if done.returncode:
            raise TargetError(f"the restart command ended with exit code {done.returncode}: {command}; see {log}")
        if wait:
            self._await(here)

    def revive(self) -> None:
        """Restart the nodes that do not answer; without a restart command, wait until they answer. Errors: TargetError."""
        for node in self._nodes:
            if node.id in self.unreachable or answers(node.host, node.port):
                continue
            if self.restart_command:
                self.restart(node.id)
            else:
                self._await(node)

    def _take(self, brokers: Sequence[Any], asked: tuple[str, int]) -> None:
        """Set the nodes, with reachable addresses. An unreachable single node gets the address that answered Metadata."""
        self.unreachable = {}
        ways = dict[str, str]()
        for broker in brokers:
            there = self.addresses.reach(broker.host, broker.port)
            problem = diagnosis(broker.node_id, broker.host, broker.port, self.addresses)
            if problem and len(brokers) == 1:
                there = asked
            elif problem:
                self.unreachable[broker.node_id] = problem
            if self.tunnels:
                is_only = there == asked and len(brokers) == 1
                there = self.tunnels.to(*there, name=asked[0] if is_only else broker.host)
            if self.tunnels or there == asked:
                ways[f"{broker.host}:{broker.port}"] = address_text(*there)
        self.addresses |= AddressMap(ways)
        self._nodes = [Node(b.node_id, *self.addresses.reach(b.host, b.port)) for b in brokers]

    def _await(self, node: Node) -> None:
        until = time.monotonic() + BACK_WITHIN_S
        while not answers(node.host, node.port):
            if time.monotonic() > until:
                raise TargetError(f"{self.spec}: {node.address} did not answer again within {BACK_WITHIN_S:.0f} s")
            time.sleep(POLL_S)

    def _node(self, node: int) -> Node:
        for each in self._nodes:
            if each.id == node:
                return each
        raise TargetError(f"{self.spec} has no node {node}, but {', '.join(str(each.id) for each in self._nodes)}")


def await_connection(spec: str, within_s: float) -> None:
    """Wait up to `within_s` seconds until one address of `addr:HOST:PORT[,…]` accepts a connection.

    Opening the target checks that a broker answers there. Errors: WrongTarget for a malformed address.
    """
    addresses = [parse_address(text) for text in spec.removeprefix("addr:").split(",")]
    until = time.monotonic() + within_s
    while time.monotonic() < until and not any(_takes_connection(host, port) for host, port in addresses):
        time.sleep(POLL_S)


def _takes_connection(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True
