"""The task of one client's process, and the state that its incarnations share."""

import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from linearizability.history.contract import Contract
from linearizability.history.recorder import Recorder
from linearizability.workload.profile import PROCESSES_A_CLIENT, Consuming, Producing, Transacting

REPORT_EVERY_S = 1.0
CANNOT_RECORD = os.EX_IOERR
"""The exit code of a client that could not write its history, or anything, any more: a disk is full."""
COUNTED = ("ok", "fail", "info", "read", "commits", "committed", "aborted", "incarnations")
"""Sends by outcome, records read, accepted commits of a group, transactions by their end, and incarnations."""


class ClientTask(BaseModel):
    """All that a client needs to know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str
    number: int
    """From 1 on, unique in the run."""
    bootstrap: str
    topic: str
    partitions: int
    seed: int
    history: Path
    contract: Contract
    does: Producing | Transacting | Consuming

    @property
    def client_id(self) -> str:
        return f"tidegauge-{self.number}"


class ClientRun:
    """The shared state of a client's incarnations: the stop sign, counters, and a recorder for each of them."""

    def __init__(self, task: ClientTask) -> None:
        self.task = task
        self.random = random.Random(f"{task.seed}/{task.number}")
        self.stopping = threading.Event()
        self.counts: dict[str, int] = dict.fromkeys(COUNTED, 0)
        self.hung = False
        """Whether a call of the library was left running that may keep the process from ending."""
        self._lock = threading.Lock()
        self._reported_at = 0.0

    def recorder(self) -> Recorder:
        """The history file of the next incarnation, under its own process number. Errors: RuntimeError after the last."""
        incarnation = self.counts["incarnations"]
        if incarnation >= PROCESSES_A_CLIENT:
            raise RuntimeError(f"client {self.task.number} died {incarnation} times")
        self.counts["incarnations"] += 1
        process = self.task.number * PROCESSES_A_CLIENT + incarnation
        return Recorder.open(self.task.history, process=process, contract=self.task.contract, run=self.task.run)

    def count(self, what: str, how_many: int = 1) -> None:
        """Add to a counter, which all threads of the client share."""
        with self._lock:
            self.counts[what] += how_many

    def report(self) -> None:
        """Print the counters, at most once a second: one line of JSON on standard output."""
        now = time.monotonic()
        if now - self._reported_at >= REPORT_EVERY_S:
            self._reported_at = now
            self.say(self.counts)

    def say(self, what: dict[str, Any]) -> None:
        print(json.dumps(what), flush=True)
