"""A mutant as a target: `exec:python -m linearizability.mutants adapter NAME` (the contract is `targets/CONTRACT.md`).

It has the number of nodes that the bug needs in order to show.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linearizability.mutants.answering import HOOKS, Adapter
from linearizability.mutants.registry import MUTANTS
from linearizability.targets import Node
from linearizability.targets.cluster import Member
from linearizability.targets.reference import ReferenceCluster


class MutantCluster(ReferenceCluster):
    """A cluster of the reference; each node is a process with the bug."""

    def __init__(self, mutant: str, **more: Any) -> None:
        super().__init__(f"mutant:{mutant}", **more)
        self.mutant = mutant

    def command(self, member: Member) -> list[str | Path]:
        return [sys.executable, "-m", "linearizability.mutants", "serve", self.mutant, member.properties_file]


class MutantAdapter(Adapter):
    def __init__(self, mutant: str) -> None:
        self.mutant = mutant

    def describe(self) -> dict[str, Any]:
        nodes = MUTANTS[self.mutant].nodes
        name = f"tidegauge with the bug {self.mutant}"
        return {"name": name, "hooks": [*HOOKS], "max_nodes": nodes, "config": True, "listeners": True}

    def start(self, nodes: int, folder: Path, config: dict[str, str]) -> Sequence[Node]:
        self.target = MutantCluster(self.mutant, nodes=nodes, folder=folder, config=config)
        self.target.open()
        return self.target.nodes

    def end(self) -> None:
        if self.target is not None:
            self.target.close()
