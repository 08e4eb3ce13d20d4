"""What every target has: addresses, nodes, and hooks by which it can be hurt.

A *hook* is one way to hurt or inspect a node. A target lists those that it has; calling another raises `HookMissing`, and
what needs it is skipped with that sentence, never passed.
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
"""What writes to a disk end with: ENOSPC, or EIO."""

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
"""Hook -> what it does. `partition`, `power-loss` and `config` are the names of the contract; the methods have underscores."""


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
    """A broker or a cluster that is judged. A context manager: it starts on entry and ends, with all it made, on exit."""

    spec: str = ""
    """The text that named it, as `kafka:4.3.1:3`."""
    hooks: Collection[str] = ()
    """The hooks that it offers."""
    unknown_config: Collection[str] = ()
    """Broker properties that were given and that the target does not promise to honour: whether they are in force can
    only be seen (DescribeConfigs, or their effect)."""
    addresses: AddressMap = AddressMap()
    """Where advertised addresses are reached from here; `nodes` are reachable ones already."""
    security: ClientSecurity | None = None
    """How connections to its listeners are secured; None: they are not."""
    coordinator: int | None = None
    """The number by which `partition` knows the server that coordinates the nodes and is none of them (ZooKeeper)."""
    tunnels: Tunnels | None = None
    """While it is open and secured: what leads to its listeners. `nodes` and `addresses` are those of the tunnels then."""
    unreachable: Mapping[int, str] = {}
    """Nodes that cannot be reached from here, each with one line that says what was tried and what to do."""

    keep_data: bool = False
    """Whether the nodes' data stays in the run's folder when it is closed; their logs and properties always do."""

    @property
    def several(self) -> bool:
        """Whether it may be opened again, in another folder, while it is open: nothing on this machine is its own alone, and
        it is light enough not to be late beside others."""
        return False

    @abstractmethod
    def open(self) -> None:
        """Start it and wait until it answers. Errors: TargetError, with the end of its log."""

    @abstractmethod
    def close(self) -> None:
        """End it and remove what it made, except what lies in the run's folder. Never raises, may be called twice."""

    @property
    @abstractmethod
    def nodes(self) -> Sequence[Node]:
        """All its nodes, also those that are down."""

    @property
    def controllers(self) -> Sequence[Node]:
        """The listeners of its controllers, where they are known and are not those for clients."""
        return ()

    @property
    def controllers_alone(self) -> Sequence[Node]:
        """Nodes that are controllers and no brokers, by the listeners of their controllers; `nodes` are the others."""
        return ()

    @property
    def bootstrap(self) -> str:
        """The addresses for a client: `host:port,host:port`."""
        return ",".join(node.address for node in self.nodes)

    @property
    def software(self) -> str:
        """The name and version of what is judged, where the target says them."""
        return ""

    def describe(self) -> dict[str, Any]:
        """What a result folder should say of it. No secret."""
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

    def kill(self, node: int) -> None:
        """End the node at once; returns when it is gone."""
        raise HookMissing(self.spec, "kill")

    def stop(self, node: int) -> None:
        """End the node in good order; returns when it is gone."""
        raise HookMissing(self.spec, "stop")

    def restart(self, node: int, *, wait: bool = True) -> None:
        """Start the node again; one that runs is stopped first. Returns when it answers.

        Without `wait` it may still be starting, or waiting for others that are down, where the target can do that.
        """
        raise HookMissing(self.spec, "restart")

    def pause(self, node: int) -> None:
        """Freeze the node."""
        raise HookMissing(self.spec, "pause")

    def resume(self, node: int) -> None:
        """Let a frozen node go on."""
        raise HookMissing(self.spec, "resume")

    def partition(self, groups: Sequence[Collection[int]]) -> None:
        """Cut the network between these groups of nodes; clients still reach every node."""
        raise HookMissing(self.spec, "partition")

    def heal(self) -> None:
        """Join the network again."""
        raise HookMissing(self.spec, "heal")

    def power_loss(self, nodes: Collection[int], kept: float = 0.0, *, journaled: bool = False) -> None:
        """End these nodes in one moment, and take the bytes that they have not yet fsynced.

        A target that can do so leaves a share of what was appended, as a disk that was in the midst of it; and with
        `journaled` no truncation comes undone, as on a file system with a journal.
        """
        raise HookMissing(self.spec, "power-loss")

    def disk(self, node: int, error: DiskError | None, bytes_left: int = 0) -> None:
        """Let the node's writes fail, a full disk's after so many bytes; None mends the disk."""
        raise HookMissing(self.spec, "disk")

    def clock(self, node: int, seconds: float) -> None:
        """Let the node's wall clock be off by so much; 0 puts it right."""
        raise HookMissing(self.spec, "clock")

    def config(self, node: int, changes: Mapping[str, str]) -> None:
        """Start the node again with changed broker properties; returns when it answers."""
        raise HookMissing(self.spec, "config")

    def logs(self, node: int) -> list[Path]:
        """The files that the node logs into."""
        raise HookMissing(self.spec, "logs")

    def revive(self) -> None:
        """Bring back what died by itself, so that a run can go on; returns when every node answers.

        Nodes are started again where the target can do that, else all of it is, without its data. Addresses may be new:
        read `nodes` again. Errors: TargetError where it does not come back.
        """
        if "restart" not in self.hooks:
            self.close()
            self.open()
            return
        for node in self.nodes:
            if not self.running(node.id) or not answers(node.host, node.port):
                self.restart(node.id)

    def require(self, *hooks: str) -> None:
        """Errors: HookMissing for the first that it does not offer."""
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
