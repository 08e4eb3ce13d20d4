"""One process of another project that serves all its nodes on this machine's loopback."""

import shutil
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from linearizability.targets import leash
from linearizability.targets.cluster import new_folder
from linearizability.targets.ports import free_ports
from linearizability.targets.process import Process
from linearizability.targets.target import HookMissing, Node, Target, TargetError, WrongTarget
from linearizability.targets.wire import WireError, answers, listed_brokers

START_WITHIN_S = 60.0
STOP_WITHIN_S = 20.0
POLL_S = 0.02
LOOPBACK = "127.0.0.1"
OF_A_NODE = ("kill", "stop", "restart", "pause", "resume")
"""Hooks that a process offers only where it is one node, because a signal to it reaches all of its nodes."""


class Server(Target):
    """A process that is a whole cluster. Subclasses define how to fetch it, and the command that serves it."""

    software: ClassVar[str]
    version: ClassVar[str]
    most_nodes: ClassVar[int] = 1
    keeps_its_ports: ClassVar[bool] = True
    """Whether its ports can be set; if not, a restarted broker has other ports, and the hook `restart` is missing."""

    def __init__(self, spec: str, *, nodes: int, folder: Path, config: Mapping[str, str] | None = None) -> None:
        if nodes > self.most_nodes:
            raise WrongTarget(f"{spec!r}: {self.software} has at most {self.most_nodes} nodes")
        self.spec = spec
        self.size = nodes
        self.folder = folder
        self.given = dict(config or {})
        self.unknown_config = tuple(self.given)
        self.hooks = ("logs",) if nodes > 1 else ("logs", *OF_A_NODE)
        if not self.keeps_its_ports:
            self.hooks = tuple(hook for hook in self.hooks if hook != "restart")
        self.home = folder
        self.ports: list[int] = []
        self._process: Process | None = None
        self._nodes: list[Node] = []

    # ---- what a subclass defines

    @abstractmethod
    def prepare(self) -> None:
        """Fetch and build the program. Errors: TargetError."""

    @abstractmethod
    def command(self) -> list[str | Path]:
        """The command that serves `ports`, with its data below `home`."""

    def listening(self) -> list[int]:
        """The ports on which it listens; empty while they are unknown."""
        return self.ports

    # ---- opening and closing

    def open(self) -> None:
        leash.remove_leftovers()
        self.prepare()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.home = new_folder(self.folder)
        self.ports = free_ports(self.size) if self.keeps_its_ports else []
        self._process = Process(self.spec, self.command(), self.home / "node.log", folder=self.home)
        self._start()

    def close(self) -> None:
        if self._process is not None:
            with suppress(TargetError):
                self._process.kill()
        if not self.keep_data:
            shutil.rmtree(self.data, ignore_errors=True)

    @property
    def data(self) -> Path:
        """The folder of its data, if it stores any."""
        return self.home / "data"

    @property
    def nodes(self) -> Sequence[Node]:
        return self._nodes

    @property
    def process(self) -> Process:
        """The cluster's process. Errors: TargetError before `open`."""
        if self._process is None:
            raise TargetError(f"{self.spec} is not open")
        return self._process

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"software": self.software, "version": self.version, "config": self.given}

    # ---- hooks

    def running(self, node: int) -> bool:
        return self.process.running

    def exit_status(self, node: int) -> int | None:
        return self.process.exit_code()

    def ended_for_memory(self, node: int) -> str:
        return self.process.ended_for_memory()

    def kill(self, node: int) -> None:
        self._require("kill", node)
        self.process.kill()

    def stop(self, node: int) -> None:
        self._require("stop", node)
        self.process.stop(STOP_WITHIN_S)

    def restart(self, node: int, *, wait: bool = True) -> None:
        self._require("restart", node)
        self.process.stop(STOP_WITHIN_S)
        self._start()

    def pause(self, node: int) -> None:
        self._require("pause", node)
        self.process.pause()

    def resume(self, node: int) -> None:
        self._require("resume", node)
        self.process.resume()

    def logs(self, node: int) -> list[Path]:
        self._require("logs", node)
        return [self.process.log]

    def revive(self) -> None:
        """Restart the one process of all nodes, also where single nodes cannot be restarted."""
        self.process.stop(STOP_WITHIN_S)
        self._start()

    def _require(self, hook: str, node: int) -> None:
        if hook not in self.hooks:
            raise HookMissing(self.spec, hook)
        if node not in [each.id for each in self._nodes]:
            raise TargetError(f"{self.spec} has no node {node}, but {', '.join(str(each.id) for each in self._nodes)}")

    def _start(self) -> None:
        self.process.start()
        until = time.monotonic() + START_WITHIN_S
        while not (ports := self.listening()) or not all(answers(LOOPBACK, port) for port in ports):
            if not self.process.running:
                raise TargetError(self._about(f"ended with exit code {self.process.exit_code()} before it answered"))
            if time.monotonic() > until:
                raise TargetError(self._about(f"did not answer within {START_WITHIN_S:.0f} s"))
            time.sleep(POLL_S)
        try:
            listed = listed_brokers(LOOPBACK, ports[0])
        except (WireError, ValueError) as error:
            raise TargetError(self._about(f"does not answer Metadata: {error}")) from error
        self._nodes = [Node(broker.node_id, broker.host, broker.port) for broker in listed]

    def _about(self, what: str) -> str:
        return f"{self.spec} {what}; its log {self.process.log} ends:\n{self.process.tail()}"
