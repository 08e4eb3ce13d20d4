"""Ends every process that we start when we end, also after Ctrl-C and kill -9.

Two safeguards. A small *watchdog* process reads a pipe into which we write the pid of each process that we start. When we
end, by any cause, the pipe closes and the watchdog kills the remaining processes. And each started process carries its owner
in its environment: `remove_leftovers`, called whenever a target is opened, kills processes whose owner has ended, in case
owner and watchdog were killed together.

The watchdog also ends a target that takes all memory of this machine (`ended_for_memory`).

Not the kernel's parent-death signal: it fires when the starting *thread* ends, and faults are started from threads.
"""

import inspect
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

from linearizability.targets import watchdog
from linearizability.targets.errors import TargetError

OWNER = "TIDEGAUGE_OWNER"
"""The environment variable with a started process's owner: pid namespace, pid, start time."""
FLOOR = "TIDEGAUGE_MEMORY_FLOOR"
"""The environment variable with another `watchdog.FLOOR`; with 0 no target is ended for its memory."""

_lock = threading.Lock()
_pipe: dict[int, tuple[int, int]] = {}
"""Pid -> the watchdog's input and output. By pid, because a forked child must not use its parent's watchdog."""
_ended: dict[int, str] = {}
"""Process group -> why the watchdog ended a process of it."""


def owner() -> str:
    """This process as the owner, for the environment of the processes that it starts."""
    return f"{_pid_namespace()}/{os.getpid()}/{watchdog.start_time(os.getpid())}"


def start(
    command: Sequence[str], *, environment: Mapping[str, str] = {}, is_target: bool = False, **more: Any
) -> Popen[Any]:
    """Start a command under the watchdog, in its own session. The watchdog watches the memory of a target. `more` are arguments
    of Popen. Errors: OSError; TargetError for a floor that is no share."""
    with _lock:
        watchdog_input, _ = _watchdog()
        started = Popen(command, env=os.environ | environment | {OWNER: owner()}, start_new_session=True, **more)
        _ended.pop(started.pid, None)
        os.write(watchdog_input, f"{'*' if is_target else '+'}{started.pid}\n".encode())
        return started


def ended_for_memory(group: int) -> str:
    """Why the watchdog ended a process of this group, without a subject: "took 9.0 GB of memory, and ..."; empty where it did
    not."""
    with _lock, suppress(KeyError, BlockingIOError):
        for line in os.read(_pipe[os.getpid()][1], 1 << 16).decode().splitlines():
            pid, _, why = line.partition(" ")
            _ended[int(pid)] = why
    return _ended.get(group, "")


def forget_end(group: int) -> None:
    """Forget that the watchdog ended a process of this group: the group has another one now."""
    if ended_for_memory(group):
        del _ended[group]


def kill_group(pid: int, number: int) -> None:
    """Send a signal to a process group. Does nothing where it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def group_lives(pid: int) -> bool:
    """Whether a process of this group still runs."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def let_go(pid: int) -> None:
    """Remove a process that has ended from the watchdog's list, because its pid may be reused."""
    with _lock, suppress(OSError, KeyError):
        os.write(_pipe[os.getpid()][0], f"-{pid}\n".encode())


def remove_leftovers() -> list[int]:
    """Kill processes of earlier runs, whose owner has ended, and return their pids."""
    removed: list[int] = []
    here = _pid_namespace()
    if not here:
        return removed
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        named = [part for part in environment.split(b"\0") if part.startswith(OWNER.encode() + b"=")]
        if not named:
            continue
        namespace, pid, born = named[0].decode().partition("=")[2].split("/")
        if namespace == here and watchdog.start_time(int(pid)) != born:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(entry.name), signal.SIGKILL)
                removed.append(int(entry.name))
    return removed


def _floor() -> float:
    """Errors: TargetError."""
    given = os.environ.get(FLOOR, str(watchdog.FLOOR))
    with suppress(ValueError):
        if 0 <= float(given) <= 1:
            return float(given)
    raise TargetError(f"{FLOOR}={given}: it is a share of this machine's memory, from 0 to 1")


def _watchdog() -> tuple[int, int]:
    pid = os.getpid()
    if pid not in _pipe:
        limits = [str(_floor()), str(watchdog.LARGE)]
        (reading, writing), (reported, reports) = os.pipe(), os.pipe()
        os.set_blocking(reported, False)
        Popen(
            [sys.executable, "-I", "-S", *_program(), *limits],
            stdin=reading,
            stdout=reports,
            stderr=DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        os.close(reading)
        os.close(reports)
        _pipe[pid] = writing, reported
    return _pipe[pid]


def _program() -> list[str]:
    """The Python arguments that run the watchdog. Spark's workers import it from an archive, where it is no file that can be
    run."""
    return [watchdog.__file__] if Path(watchdog.__file__).is_file() else ["-c", inspect.getsource(watchdog)]


def _pid_namespace() -> str:
    try:
        return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    except OSError:
        return ""
