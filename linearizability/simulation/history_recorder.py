"""The history of a simulated run, recorded in memory in the form of `linearizability.history`.

`write` writes the same files as a recorder on a real cluster, so that `tidegauge history check` reads them too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linearizability.history.contract import Contract
from linearizability.history.operations import FAIL, INFO, INVOKE, OK, MicroOperation
from linearizability.history.recorder import FORMAT
from linearizability.simulation.world import World

NANOSECONDS_A_US = 1000
SENDING = frozenset({"send", "txn"})


@dataclass
class ClientHistory:
    """The operations and results of one client."""

    process: int
    contract: Contract
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def write(self, folder: Path, run: str) -> None:
        """Write the process's file into a history folder."""
        header = {
            "type": "header", "format": FORMAT, "run": run, "process": self.process,
            "contract": self.contract.model_dump(), "time": 0,
        }  # fmt: skip
        lines = [header, *self.events, {"type": "end", "n": len(self.events) + 1}]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (folder / f"history-{self.process:05d}.jsonl").write_text(text)


class HistoryRecorder(ClientHistory):
    """Records one client's history; the calls are those of `Recorder`, which writes a file."""

    def __init__(self, world: World, process: int, contract: Contract) -> None:
        super().__init__(process, contract)
        self._world = world
        self._operations = 0
        self._open: dict[int, str] = {}
        self.has_sent = False
        """Whether a record that it sent, alone or in a transaction, was acknowledged."""

    def invoke(self, f: str, mops: Sequence[MicroOperation] = (), **fields: Any) -> int:
        """Record an operation's start. Returns the number that its completion names."""
        number = self._operations
        self._operations += 1
        self._open[number] = f
        self._event(INVOKE, number, f, mops, fields)
        return number

    def ok(self, operation: int, mops: Sequence[MicroOperation] = (), **fields: Any) -> None:
        f = self._open.pop(operation)
        self.has_sent = self.has_sent or f in SENDING
        self._event(OK, operation, f, mops, fields)

    def fail(self, operation: int, error: str, mops: Sequence[MicroOperation] = ()) -> None:
        self._event(FAIL, operation, self._open.pop(operation), mops, {"error": error})

    def info(self, operation: int, error: str, mops: Sequence[MicroOperation] = ()) -> None:
        self._event(INFO, operation, self._open.pop(operation), mops, {"error": error})

    def mark(self, f: str, **fields: Any) -> None:
        """Record a fault or a heal."""
        self._line({"type": "mark", "time": self._time(), "f": f, **fields})

    def _event(self, kind: str, number: int, f: str, mops: Sequence[MicroOperation], fields: dict[str, Any]) -> None:
        event: dict[str, Any] = {
            "type": kind, "time": self._time(), "process": self.process, "operation": number, "f": f,
        }  # fmt: skip
        if mops:
            event["mops"] = list(mops)
        self._line(event | fields)

    def _line(self, event: dict[str, Any]) -> None:
        event["n"] = len(self.events) + 1
        self.events.append(event)

    def _time(self) -> int:
        return self._world.now_us * NANOSECONDS_A_US
