"""All clients of a run: started together, watched, ended in good order."""

import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from linearizability.history.recorder import RecordingError
from linearizability.targets.hosts import Host
from linearizability.targets.process import Process
from linearizability.targets.target import TargetError
from linearizability.workload.client_run import CANNOT_RECORD, ClientTask
from linearizability.workload.profile import Profile

END_WITHIN_S = 45.0
"""A producer waits for its answers, a consumer for its coordinator; each within its own bounds."""
TAIL_LINES = 20
"""Lines in which the last report is searched, among librdkafka's messages; else the report before counts."""


class Clients:
    """The processes of a profile's clients, numbered from 1 on."""

    def __init__(
        self,
        profile: Profile,
        *,
        run: str,
        bootstrap: str,
        topic: str,
        seed: int,
        folder: Path,
        hosts: Sequence[Host] = (),
    ) -> None:
        """`folder` is the run's: histories go to `history/`, logs to `clients/`. `hosts` are used in turn."""
        self.history = folder / "history"
        self.history.mkdir(parents=True, exist_ok=True)
        logs = folder / "clients"
        logs.mkdir(parents=True, exist_ok=True)
        self.processes: list[Process] = []
        self._reports: dict[str, dict[str, int]] = {}
        for number, does in enumerate([*profile.producers, *profile.consumers], start=1):
            task = ClientTask(
                run=run,
                number=number,
                bootstrap=bootstrap,
                topic=topic,
                partitions=profile.partitions,
                seed=seed,
                history=self.history.resolve(),
                contract=profile.contract(does),
                does=does,
            )
            prefix = hosts[number % len(hosts)].prefix if hosts else ()
            command = [*prefix, sys.executable, "-m", "linearizability.workload.client", task.model_dump_json()]
            self.processes.append(Process(f"client {number}", command, logs / f"client-{number}.log", folder=logs))
        self.last_number = len(self.processes)
        """Process numbers from (last_number + 1) × 1000 on are free."""

    def start(self) -> None:
        for process in self.processes:
            process.start()

    def counts(self) -> dict[str, int]:
        """What all clients have reported until now: sends by outcome, records read, incarnations."""
        total: dict[str, int] = {}
        for process in self.processes:
            self._reports[process.name] = _last_report(process) or self._reports.get(process.name, {})
            for name, count in self._reports[process.name].items():
                total[name] = total.get(name, 0) + count
        return total

    def check(self) -> None:
        """Errors: TargetError when a client ended by itself: our fault, or our library's; RecordingError on a full disk."""
        for process in self.processes:
            if process.exit_code() == CANNOT_RECORD:
                free = shutil.disk_usage(self.history).free
                raise RecordingError(f"{process.name} could not go on; {free} bytes are free in {self.history}")
            if not process.running:
                ended = f"{process.name} {process.ended_for_memory() or f'ended by itself ({process.exit_code()})'}"
                raise TargetError(f"{ended}; its log {process.log} ends:\n{process.tail()}")

    def stop(self) -> list[str]:
        """Stop all cleanly, in parallel. Returns the names of those that had to be killed."""
        for process in self.processes:
            process.terminate()
        until = time.monotonic() + END_WITHIN_S
        return [p.name for p in self.processes if not p.stop(max(0.1, until - time.monotonic()))]

    def kill(self) -> None:
        """End all at once. May be called twice."""
        for process in self.processes:
            process.kill()


def _last_report(process: Process) -> dict[str, int]:
    for line in reversed(process.tail(TAIL_LINES).splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    return {}
