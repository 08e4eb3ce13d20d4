"""One process of a broker: started in its own group, under the watchdog, with its output in a file; hurt by signals."""

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from linearizability.targets import leash
from linearizability.targets.target import TargetError

STOPPED_WITHIN_S = 2.0
"""How long threads of a frozen process may still run: each stops when it is next scheduled."""
GONE_WITHIN_S = 10.0
"""How long a killed process may take to end; the kernel may be busy writing its memory."""


class Process:
    """A child that can be killed, frozen and started again; all its starts append to one log."""

    def __init__(
        self, name: str, command: Sequence[str | Path], log: Path, *, folder: Path, environment: Mapping[str, str] = {}
    ) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.log = log
        self.folder = folder
        self.environment = dict(environment)
        self.starts = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """The pid while the process runs, also frozen; else None."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    @property
    def running(self) -> bool:
        return self.pid is not None

    def start(self) -> None:
        """Start the process, or start it again. Errors: TargetError when it runs already or cannot be started."""
        if self.running:
            raise TargetError(f"{self.name} runs already")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            try:
                self._child = leash.start(
                    self.command,
                    environment=self.environment,
                    is_target=True,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            except OSError as error:
                raise TargetError(f"{self.name} could not be started: {error}") from error
        self.starts += 1

    def kill(self) -> None:
        """Send SIGKILL to the whole group, and wait until the process is gone."""
        self._signal(signal.SIGKILL)
        self.wait(GONE_WITHIN_S)

    def terminate(self) -> None:
        """Send SIGTERM without waiting. First resumes a frozen process, so that it receives the signal."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)

    def stop(self, timeout_s: float) -> bool:
        """Send SIGTERM, and SIGKILL after `timeout_s`. Returns whether SIGTERM was enough."""
        self.terminate()
        in_order = self.wait(timeout_s)
        if not in_order:
            self.kill()
        return in_order

    def pause(self) -> None:
        """Send SIGSTOP, and wait until no thread of the process runs. Errors: TargetError when it does not run."""
        self._require_running("paused")
        self._signal(signal.SIGSTOP)
        until = time.monotonic() + STOPPED_WITHIN_S
        while not _all_stopped(self.pid) and time.monotonic() < until:
            time.sleep(0.001)

    def resume(self) -> None:
        """Send SIGCONT. Errors: TargetError when the process does not run."""
        self._require_running("resumed")
        self._signal(signal.SIGCONT)

    def exit_code(self) -> int | None:
        """The exit code of the last run; negative for a signal, None while the process runs or before its first start."""
        return self._child.poll() if self._child is not None else None

    def ended_for_memory(self) -> str:
        """Why the watchdog ended the last run, as `leash.ended_for_memory`; empty where it did not."""
        return leash.ended_for_memory(self._child.pid) if self._child is not None else ""

    def tail(self, lines: int = 15) -> str:
        """The last log lines of the present (or last) run."""
        with suppress(OSError), self.log.open("rb") as file:
            file.seek(max(self._log_start, self.log.stat().st_size - 20_000))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
        return ""

    def _signal(self, number: int) -> None:
        if self._child is not None and self._child.poll() is None:
            leash.kill_group(self._child.pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the process, then kill the rest of its group. Returns whether it ended in time."""
        if self._child is None:
            return True
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        leash.kill_group(self._child.pid, signal.SIGKILL)
        leash.let_go(self._child.pid)
        return True

    def _require_running(self, what: str) -> None:
        if not self.running:
            raise TargetError(f"{self.name} is down and cannot be {what}")


def _all_stopped(pid: int | None) -> bool:
    """Whether every thread of the process is stopped, or gone; True where that is unknown."""
    for entry in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            if entry.read_text().rpartition(")")[2].split()[0] not in "TtZX":
                return False
    return True
