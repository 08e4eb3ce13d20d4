"""A separate process, started by `leash`: kills the processes of its owner when the owner has ended, and a target that takes
all memory of this machine.

Reads lines from standard input until the input ends: `+PID` for each process that the owner starts, `*PID` for each one whose
memory is watched, and `-PID` for each one that has ended. The operating system closes the input when the owner ends, also by
SIGKILL. Then every process group that is still listed is killed. Uses only the standard library, because it starts before all
other processes and outlives them.

A machine without free memory stands still before the operating system kills anything: it drops the pages of programs, and reads
them again. So the watchdog acts before that: where less than the floor is available, it kills the largest process of the watched
groups if that one is large. Before, it writes a line to standard output: the group, and why.
"""

import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

LOOK_EVERY_S = 0.25
RELEASED_WITHIN_S = 5.0
"""How long a killed process may take to release its memory; nothing else is killed meanwhile."""
FLOOR = 0.05
"""The share of this machine's memory that is left alone: with less, targets are killed."""
LARGE = 0.25
"""The share of this machine's memory from which on a process is large. A smaller one is not what takes the memory."""
GIB = 1 << 30


def start_time(pid: int) -> str:
    """A process's start time, which distinguishes it from a later process with the same id; empty where it is unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def memory() -> tuple[int, int]:
    """This machine's memory, and how much of it is available, in bytes; equal where that is unknown."""
    with suppress(OSError, KeyError, ValueError), open("/proc/meminfo") as file:
        named = {name: value.split() for name, _, value in (line.partition(":") for line in file)}
        return int(named["MemTotal"][0]) << 10, int(named["MemAvailable"][0]) << 10
    return 1, 1


def largest(groups: set[int]) -> tuple[int, int, int]:
    """The process of these groups with the most memory of its own: the bytes, its pid, its group. Zeros where there is none."""
    found = (0, 0, 0)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            group = int((process / "stat").read_bytes().rpartition(b")")[2].split()[2])
            if group in groups:
                _, resident, shared = map(int, (process / "statm").read_text().split()[:3])
                found = max(found, ((resident - shared) * os.sysconf("SC_PAGE_SIZE"), int(process.name), group))
    return found


def relieve(groups: set[int], floor: float, large: float) -> bool:
    """Kill the largest process of these groups where memory is short and it is what takes it. Returns whether one was killed."""
    total, available = memory()
    if not groups or available >= floor * total:
        return False
    taken, pid, group = largest(groups)
    if taken < large * total or not pid:
        return False
    with suppress(OSError):
        left = f"{available / GIB:.1f} of this machine's {total / GIB:.1f} GB were left"
        print(group, f"took {taken / GIB:.1f} GB of memory, and was ended because {left}", flush=True)
        os.kill(pid, signal.SIGKILL)
    return True


def watch(floor: float, large: float) -> None:
    """Keep the list of processes and watch their memory; kill the listed ones at the end of the input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    leashed: dict[int, str] = {}
    watched: set[int] = set()
    unread, quiet_until = b"", 0.0
    while True:
        if select.select([0], [], [], LOOK_EVERY_S)[0]:
            read = os.read(0, 1 << 16)
            if not read:
                break
            *lines, unread = (unread + read).split(b"\n")
            for line in lines:
                pid = int(line[1:])
                if line.startswith(b"-"):
                    leashed.pop(pid, None)
                    watched.discard(pid)
                else:
                    leashed[pid] = start_time(pid)
                    watched |= {pid} if line.startswith(b"*") else set()
        if time.monotonic() > quiet_until and relieve(watched, floor, large):
            quiet_until = time.monotonic() + RELEASED_WITHIN_S
    for pid, born in leashed.items():
        now = start_time(pid)
        if now in ("", born):  # a group may outlive its leader, and keeps the pid reserved
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    watch(*map(float, sys.argv[1:]))
