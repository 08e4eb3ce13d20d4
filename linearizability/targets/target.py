"""The interface of every target: addresses, nodes, and fault hooks.

A *hook* is one way to hurt or inspect a node. A target lists its hooks. Calling another one raises `HookMissing`, and a
requirement that needs it is skipped with that sentence, never passed.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from linearizability.targets.addresses import AddressMap
from linearizability.targets.errors import TargetError, WrongTarget
from linearizability.targets.security import ClientSecurity, Tunnels
from linearizability.targets.wire import answers

__all__ = ["HOOKS", "DiskError", "HookMissing", "Node", "Target", "TargetError", "WrongTarget"]

DiskError = Literal["full", "broken"]
"""The error of writes to a disk: ENOSPC, or EIO."""

HOOKS: dict[str, str] = {
    "kill": "end a node at once, as kill -9 does",
    "stop": "end a node in good order, as SIGTERM does",
    "restart": "start a node again; one that runs is stopped first",
    "pause": "freeze a node, as SIGSTOP does",
    "resume": "let a frozen node go on",
    "partition": "cut the network between groups of nodes",
    "heal": "join the network again",
    "power-loss": "end a node at once and take the bytes that it has not yet fsynced",
    "disk": "let a node's disk be full, or broken, and mend it",
    "clock": "put a node's wall clock wrong, and right",
    "config": "start a node again with other broker properties",
    "logs": "give the files that a node logs into",
}
"""Hook -> its effect. The names are those of the contract; the method names have underscores."""


class HookMissing(TargetError):
    """The target does not offer a hook; `hook` names it."""

    def __init__(self, target: str, hook: str) -> None:
        super().__init__(f"the target {target} does not offer the hook {hook} ({HOOKS.get(hook, 'unknown')})")
        self.hook = hook


@dataclass(frozen=True, slots=True)
class Node:
    """One broker of a target: its id, as its cluster knows it, and the address for clients."""

    id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class Target(ABC):
    """A broker or a cluster under judgement. A context manager: starts on entry, ends and removes its data on exit."""

    spec: str = ""
    """The specification of the target, as `kafka:4.3.1:3`."""
    hooks: Collection[str] = ()
    """The hooks of the target."""
    unknown_config: Collection[str] = ()
    """Given broker properties that the target does not promise to honour. Only DescribeConfigs, or their effect, shows
    whether they are in force."""
    addresses: AddressMap = AddressMap()
    """Advertised address -> reachable address. `nodes` already has reachable ones."""
    security: ClientSecurity | None = None
    """The security of connections to its listeners; None for plaintext."""
    coordinator: int | None = None
    """The number in `partition` of the server that coordinates the nodes and is none of them (ZooKeeper)."""
    tunnels: Tunnels | None = None
    """The tunnels to its listeners while it is open and secured. `nodes` and `addresses` are then those of the tunnels."""
    unreachable: Mapping[int, str] = {}
    """Nodes that this machine cannot reach -> one line with the attempted address and the remedy."""

    keep_data: bool = False
    """Whether `close` keeps the nodes' data in the run's folder. Their logs and properties always remain."""

    @property
    def several(self) -> bool:
        """Whether several instances can be open at once, in different folders: it needs no exclusive resource of this
        machine, and is light enough not to be delayed by the others."""
        return False

    @abstractmethod
    def open(self) -> None:
        """Start the target, and wait until it answers. Errors: TargetError, with the end of its log."""

    @abstractmethod
    def close(self) -> None:
        """End the target and remove its files, except logs and properties in the run's folder. Never raises, may be called
        twice."""

    @property
    @abstractmethod
    def nodes(self) -> Sequence[Node]:
        """All broker nodes, also those that are down."""

    @property
    def controllers(self) -> Sequence[Node]:
        """The controllers' listeners, where they are known and differ from those for clients."""
        return ()

    @property
    def controllers_alone(self) -> Sequence[Node]:
        """Nodes that are only controllers, with their controller listeners; `nodes` are the others."""
        return ()

    @property
    def bootstrap(self) -> str:
        """The addresses for a client: `host:port,host:port`."""
        return ",".join(node.address for node in self.nodes)

    @property
    def software(self) -> str:
        """The name and version of the software under judgement, where the target reports them."""
        return ""

    def describe(self) -> dict[str, Any]:
        """The facts about the target for a result folder, without secrets."""
        return {
            "spec": self.spec,
            "bootstrap": self.bootstrap,
            "nodes": [node.id for node in self.nodes],
            "hooks": sorted(self.hooks),
            "unknown_config": sorted(self.unknown_config),
            "mapped": dict(self.addresses.pairs),
            "unreachable": list(self.unreachable.values()),
            "security": str(self.security or ClientSecurity()),
        }

    def running(self, node: int) -> bool:
        """Whether the node's process runs (also frozen); True where that is unknown."""
        return True

    def exit_status(self, node: int) -> int | None:
        """How the node's process ended; negative for a signal, None while it runs or where that is unknown."""
        return None

    def ended_for_memory(self, node: int) -> str:
        """Why the watchdog ended the node, which took this machine's memory (`leash.ended_for_memory`); else empty."""
        return ""

    def kill(self, node: int) -> None:
        """Kill the node; returns when it is gone."""
        raise HookMissing(self.spec, "kill")

    def stop(self, node: int) -> None:
        """Shut the node down cleanly; returns when it is gone."""
        raise HookMissing(self.spec, "stop")

    def restart(self, node: int, *, wait: bool = True) -> None:
        """Restart the node; one that runs is stopped first. Returns when it answers.

        Without `wait` it may still be starting, or waiting for others that are down, where the target can do that.
        """
        raise HookMissing(self.spec, "restart")

    def pause(self, node: int) -> None:
        """Freeze the node."""
        raise HookMissing(self.spec, "pause")

    def resume(self, node: int) -> None:
        """Resume a frozen node."""
        raise HookMissing(self.spec, "resume")

    def partition(self, groups: Sequence[Collection[int]]) -> None:
        """Cut the network between these groups of nodes; clients still reach every node."""
        raise HookMissing(self.spec, "partition")

    def heal(self) -> None:
        """Heal the network between the nodes."""
        raise HookMissing(self.spec, "heal")

    def power_loss(self, nodes: Collection[int], kept: float = 0.0, *, journaled: bool = False) -> None:
        """Kill these nodes at once, and discard the bytes that they have not fsynced.

        Where the target supports it, a share `kept` of the appended bytes remains, as after an unfinished flush; and with
        `journaled` no truncation is undone, as on a file system with a journal.
        """
        raise HookMissing(self.spec, "power-loss")

    def disk(self, node: int, error: DiskError | None, bytes_left: int = 0) -> None:
        """Make the node's writes fail, on a full disk after `bytes_left` bytes; None repairs the disk."""
        raise HookMissing(self.spec, "disk")

    def clock(self, node: int, seconds: float) -> None:
        """Shift the node's wall clock by `seconds`; 0 corrects it."""
        raise HookMissing(self.spec, "clock")

    def config(self, node: int, changes: Mapping[str, str]) -> None:
        """Restart the node with changed broker properties; returns when it answers."""
        raise HookMissing(self.spec, "config")

    def logs(self, node: int) -> list[Path]:
        """The log files of the node."""
        raise HookMissing(self.spec, "logs")

    def revive(self) -> None:
        """Restart nodes that ended by themselves, so that a run can continue; returns when every node answers.

        Restarts single nodes where the target has the hook, else the whole target, without its data. Addresses may change:
        read `nodes` again. Errors: TargetError where that fails.
        """
        if "restart" not in self.hooks:
            self.close()
            self.open()
            return
        for node in self.nodes:
            if not self.running(node.id) or not answers(node.host, node.port):
                self.restart(node.id)

    def require(self, *hooks: str) -> None:
        """Errors: HookMissing for the first hook that the target does not offer."""
        for hook in hooks:
            if hook not in self.hooks:
                raise HookMissing(self.spec, hook)

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
