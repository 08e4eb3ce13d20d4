"""One process of a broker: started in a group of its own, on a leash, its output in a file; hurt by signals."""

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from linearizability.targets import leash
from linearizability.targets.target import TargetError

STOPPED_WITHIN_S = 2.0
"""How long the threads of a frozen process may run on: each stops when it is next scheduled."""
GONE_WITHIN_S = 10.0
"""How long a killed process may take to go; the kernel may be busy writing its memory."""


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
        """The pid while it runs, also frozen; None when it is down."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    @property
    def running(self) -> bool:
        return self.pid is not None

    def start(self) -> None:
        """Start it, or start it again. Errors: TargetError when it runs already or cannot be started at all."""
        if self.running:
            raise TargetError(f"{self.name} runs already")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            try:
                self._child = leash.start(
                    self.command,
                    environment=self.environment,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            except OSError as error:
                raise TargetError(f"{self.name} could not be started: {error}") from error
        self.starts += 1

    def kill(self) -> None:
        """SIGKILL to its whole group; returns when it is gone."""
        self._signal(signal.SIGKILL)
        self.wait(GONE_WITHIN_S)

    def terminate(self) -> None:
        """SIGTERM, without waiting; a frozen process goes on, so that it can receive it."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)

    def stop(self, timeout_s: float) -> bool:
        """SIGTERM, and SIGKILL when that is not enough in time. Returns whether it went in good order."""
        self.terminate()
        in_order = self.wait(timeout_s)
        if not in_order:
            self.kill()
        return in_order

    def pause(self) -> None:
        """SIGSTOP; returns when no thread of it runs any more. Errors: TargetError when it does not run."""
        self._require_running("paused")
        self._signal(signal.SIGSTOP)
        until = time.monotonic() + STOPPED_WITHIN_S
        while not _all_stopped(self.pid) and time.monotonic() < until:
            time.sleep(0.001)

    def resume(self) -> None:
        """SIGCONT. Errors: TargetError when it does not run."""
        self._require_running("resumed")
        self._signal(signal.SIGCONT)

    def exit_code(self) -> int | None:
        """How its last run ended; negative for a signal, None while it runs or before it was started."""
        return self._child.poll() if self._child is not None else None

    def tail(self, lines: int = 15) -> str:
        """The last lines that its present (or last) run logged."""
        with suppress(OSError), self.log.open("rb") as file:
            file.seek(max(self._log_start, self.log.stat().st_size - 20_000))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
        return ""

    def _signal(self, number: int) -> None:
        if self._child is not None and self._child.poll() is None:
            leash.kill_group(self._child.pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end, and for that of all in its group. Returns whether it ended in time."""
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
    """Whether every thread of the process is stopped, or gone; True where that cannot be seen."""
    for entry in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            if entry.read_text().rpartition(")")[2].split()[0] not in "TtZX":
                return False
    return True
