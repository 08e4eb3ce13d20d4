"""A separate process, started by `leash`: kills the processes of its owner when the owner has ended.

Reads lines from standard input, `+PID` and `-PID`, until the input ends. The operating system closes it when the owner ends,
also by SIGKILL. Then every process group that is still listed is killed. Uses only the standard library, because it starts
before all other processes and outlives them.
"""

import os
import signal
import sys
from contextlib import suppress


def start_time(pid: int) -> str:
    """A process's start time, which distinguishes it from a later process with the same id; empty where it is unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def watch() -> None:
    """Keep the list of processes, and kill the listed ones at the end of the input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    leashed: dict[int, str] = {}
    for line in sys.stdin:
        pid = int(line[1:])
        if line[0] == "+":
            leashed[pid] = start_time(pid)
        else:
            leashed.pop(pid, None)
    for pid, born in leashed.items():
        now = start_time(pid)
        if now in ("", born):  # a group may outlive its leader, and keeps the pid reserved
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    watch()
