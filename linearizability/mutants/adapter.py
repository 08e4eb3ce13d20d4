"""A mutant as a target: `exec:python -m linearizability.mutants adapter NAME` (the contract is `targets/CONTRACT.md`).

It has as many nodes as the bug needs to show.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from linearizability.mutants.registry import MUTANTS
from linearizability.targets.cluster import Member
from linearizability.targets.reference import ReferenceCluster
from linearizability.targets.target import TargetError

HOOKS = ("kill", "stop", "restart", "pause", "resume", "config", "logs")


class MutantCluster(ReferenceCluster):
    """The reference, each node a process with the bug in it."""

    def __init__(self, mutant: str, **more: Any) -> None:
        super().__init__(f"mutant:{mutant}", **more)
        self.mutant = mutant

    def command(self, member: Member) -> list[str | Path]:
        return [sys.executable, "-m", "linearizability.mutants", "serve", self.mutant, member.properties_file]


class _Adapter:
    """One adapter's run: at most one cluster."""

    def __init__(self, mutant: str) -> None:
        self.mutant = mutant
        self.cluster: MutantCluster | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The result of one request. Errors: TargetError."""
        node: Any = request.get("node")
        match request["command"]:
            case "describe":
                return {
                    "contract": 1, "name": f"tidegauge with the bug {self.mutant}", "hooks": [*HOOKS],
                    "max_nodes": MUTANTS[self.mutant].nodes, "config": True, "listeners": True,
                }  # fmt: skip
            case "start":
                return self._start(request.get("nodes", 1), Path(request["folder"]), request.get("config") or {})
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

    def _start(self, nodes: int, folder: Path, config: dict[str, str]) -> dict[str, Any]:
        self.cluster = MutantCluster(self.mutant, nodes=nodes, folder=folder, config=config)
        self.cluster.open()
        return {"nodes": [{"id": each.id, "host": each.host, "port": each.port} for each in self.cluster.nodes]}

    def _running(self) -> MutantCluster:
        if self.cluster is None:
            raise TargetError("nothing was started")
        return self.cluster

    def end(self) -> None:
        if self.cluster is not None:
            self.cluster.close()


def answer_requests(mutant: str) -> None:
    """Answer until standard input ends; then end what was started."""
    adapter = _Adapter(mutant)
    try:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                said = {"id": request["id"], "ok": adapter.answer(request)}
            except (TargetError, OSError) as error:
                said = {"id": request["id"], "error": str(error)}
            print(json.dumps(said), flush=True)
    finally:
        adapter.end()
