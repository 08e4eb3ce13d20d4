"""A lie as a target: `exec:python -m linearizability.mutants.wire adapter NAME [BEHIND]` (the contract is `targets/CONTRACT.md`).

BEHIND is the correct broker, by default `reference:1`. The adapter offers its hooks, except those that cut the network; a
restricted broker (`restricted-NAME`) offers none unless its row has `hooks=True`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from linearizability.mutants.answering import HOOKS, Adapter
from linearizability.mutants.wire.proxy import Proxy, Tamper
from linearizability.mutants.wire.restricted import Restriction, make_topics
from linearizability.targets import Node, open_target
from linearizability.targets.loop import Loop

BEHIND = "reference:1"
UNRESTRICTED = Restriction("all", hooks=True)


class LieAdapter(Adapter):
    """A target with the proxy in front of it."""

    def __init__(
        self, name: str, tamper: Tamper, behind: str = BEHIND, restriction: Restriction = UNRESTRICTED
    ) -> None:
        self.name, self.tamper, self.behind, self.restriction = name, tamper, behind, restriction
        self.stack = ExitStack()

    def describe(self) -> dict[str, Any]:
        last = self.behind.rpartition(":")[2]
        nodes = int(last) if last.isdigit() else 1
        has_hooks = self.restriction.hooks
        name = f"{self.behind} behind {self.name}"
        return {"name": name, "hooks": [*HOOKS] * has_hooks, "max_nodes": nodes, "config": has_hooks}

    def start(self, nodes: int, folder: Path, config: dict[str, str]) -> Sequence[Node]:
        config = dict(self.restriction.config) | config
        self.target = target = self.stack.enter_context(open_target(self.behind, folder=folder, config=config))
        make_topics(self.restriction, target)
        loop = self.stack.enter_context(Loop())
        proxy = self.stack.enter_context(Proxy(loop, target.nodes, self.tamper, controllers=target.controllers))
        return proxy.nodes

    def end(self) -> None:
        self.stack.close()
