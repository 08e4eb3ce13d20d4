"""The places of nodes and clients: an address, and a way to run processes there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from linearizability.targets.ports import free_ports
from linearizability.targets.process import Process


@dataclass(frozen=True, slots=True)
class Host:
    """A place for a node. Plain processes all share 127.0.0.1; in network namespaces each node has its own address."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    """A prefix of the command. It must replace itself by the command (exec), so that signals reach the command."""

    def process(self, name: str, log: Path, folder: Path) -> Process:
        """A process on this host, which still needs a command."""
        return Process(name, [], log, folder=folder)

    def free_ports(self, count: int) -> list[int]:
        """Ports that are free on this host, as far as this process knows."""
        return free_ports(count, "127.0.0.1" if self.prefix else self.address)


def plain_hosts(count: int) -> Sequence[Host]:
    """Hosts that share the loopback: network faults are impossible."""
    return [Host()] * count
