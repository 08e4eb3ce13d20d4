"""Where nodes and clients live: an address, and how a process is made that runs there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from linearizability.targets.ports import free_ports
from linearizability.targets.process import Process


@dataclass(frozen=True, slots=True)
class Host:
    """A place for a node. On plain processes all nodes share 127.0.0.1; in network namespaces each has its own address."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    """Goes before the command: it must become the command (exec), so that signals reach it."""

    def process(self, name: str, log: Path, folder: Path) -> Process:
        """A process that will run here, once it has a command."""
        return Process(name, [], log, folder=folder)

    def free_ports(self, count: int) -> list[int]:
        """Ports that are free here, as far as this process can know."""
        return free_ports(count, "127.0.0.1" if self.prefix else self.address)


def plain_hosts(count: int) -> Sequence[Host]:
    """Hosts without any network between them: no network fault is possible."""
    return [Host()] * count
