"""The common part of the adapters of planted bugs: they carry out the requests of `targets/CONTRACT.md` on a target of ours."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linearizability.targets import Node, Target, TargetError

HOOKS = ("kill", "stop", "restart", "pause", "resume", "config", "logs")


class Adapter(ABC):
    """One adapter's run: at most one target, which is opened by `start`."""

    target: Target | None = None

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The result of `describe`, without the contract's version."""

    @abstractmethod
    def start(self, nodes: int, folder: Path, config: dict[str, str]) -> Sequence[Node]:
        """Start the target; return the nodes' addresses for clients. Errors: TargetError."""

    @abstractmethod
    def end(self) -> None:
        """End the target, if one was started."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The result of one request. Errors: TargetError."""
        node: Any = request.get("node")
        match request["command"]:
            case "describe":
                return {"contract": 1} | self.describe()
            case "start":
                config = request.get("config") or {}
                nodes = self.start(request.get("nodes", 1), Path(request["folder"]), config)
                return {"nodes": [{"id": each.id, "host": each.host, "port": each.port} for each in nodes]}
            case "stop" if node is None:
                self.end()
            case "kill" | "stop" | "restart" | "pause" | "resume" as hook:
                getattr(self._running(), hook)(node)
            case "config":
                self._running().config(node, request["config"])
            case "logs":
                return {"paths": [str(path) for path in self._running().logs(node)]}
            case other:
                raise TargetError(f"{other} is not offered")
        return {}

    def _running(self) -> Any:
        if self.target is None:
            raise TargetError("nothing was started")
        return self.target

    def answer_requests(self) -> None:
        """Answer requests until standard input ends; then end the target."""
        try:
            for line in sys.stdin:
                request = json.loads(line)
                try:
                    said = {"id": request["id"], "ok": self.answer(request)}
                except (TargetError, OSError) as error:
                    said = {"id": request["id"], "error": str(error)}
                print(json.dumps(said), flush=True)
        finally:
            self.end()
