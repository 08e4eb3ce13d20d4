"""A lie as a target: `exec:python -m linearizability.mutants.wire adapter NAME [BEHIND]` (the contract is `targets/CONTRACT.md`).

BEHIND is the sound broker, `reference:1` unless given. Its hooks are offered as they are, but for cuts of the network; a
restricted broker (`restricted-NAME`) offers none, unless its row says so.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from linearizability.mutants.wire.proxy import Proxy, Tamper
from linearizability.mutants.wire.restricted import Restriction, make_topics
from linearizability.targets import Target, TargetError, open_target
from linearizability.targets.loop import Loop

HOOKS = ("kill", "stop", "restart", "pause", "resume", "config", "logs")
BEHIND = "reference:1"
UNRESTRICTED = Restriction("all", hooks=True)


class _Adapter:
    """One adapter's run: at most one target with the proxy in front of it."""

    def __init__(self, name: str, tamper: Tamper, behind: str, restriction: Restriction) -> None:
        self.name, self.tamper, self.behind, self.restriction = name, tamper, behind, restriction
        self.stack = ExitStack()
        self.target: Target | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The result of one request. Errors: TargetError."""
        node: Any = request.get("node")
        match request["command"]:
            case "describe":
                last = self.behind.rpartition(":")[2]
                nodes = int(last) if last.isdigit() else 1
                has_hooks = self.restriction.hooks
                return {
                    "contract": 1, "name": f"{self.behind} behind {self.name}", "hooks": [*HOOKS] * has_hooks,
                    "max_nodes": nodes, "config": has_hooks,
                }  # fmt: skip
            case "start":
                return self._start(Path(request["folder"]), request.get("config") or {})
            case "stop" if node is None:
                self.stack.close()
            case "kill" | "stop" | "restart" | "pause" | "resume" as hook:
                getattr(self._running(), hook)(node)
            case "config":
                self._running().config(node, request["config"])
            case "logs":
                return {"paths": [str(path) for path in self._running().logs(node)]}
            case other:
                raise TargetError(f"{other} is not offered")
        return {}

    def _start(self, folder: Path, config: dict[str, str]) -> dict[str, Any]:
        config = dict(self.restriction.config) | config
        self.target = self.stack.enter_context(open_target(self.behind, folder=folder, config=config))
        make_topics(self.restriction, self.target)
        loop = self.stack.enter_context(Loop())
        proxy = self.stack.enter_context(
            Proxy(loop, self.target.nodes, self.tamper, controllers=self.target.controllers)
        )
        return {"nodes": [{"id": each.id, "host": each.host, "port": each.port} for each in proxy.nodes]}

    def _running(self) -> Any:
        if self.target is None:
            raise TargetError("nothing was started")
        return self.target


def answer_requests(name: str, tamper: Tamper, behind: str = BEHIND, restriction: Restriction = UNRESTRICTED) -> None:
    """Answer until standard input ends; then end what was started."""
    adapter = _Adapter(name, tamper, behind, restriction)
    with adapter.stack:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                said = {"id": request["id"], "ok": adapter.answer(request)}
            except (TargetError, OSError) as error:
                said = {"id": request["id"], "error": str(error)}
            print(json.dumps(said), flush=True)
