"""Nothing that we start outlives us: not after Ctrl-C, not after kill -9.

Two nets. A small *watchdog* process holds the end of a pipe into which we write the number of each process that we start;
when we are gone, however that came, the pipe breaks and the watchdog kills all that is left. And each started process
carries in its environment who owns it: `remove_leftovers`, called whenever a target is opened, kills processes whose owner
no longer runs, should owner and watchdog have been killed together.

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

OWNER = "TIDEGAUGE_OWNER"
"""Names, in the environment of each started process, its owner: pid namespace, pid, moment of birth."""

_lock = threading.Lock()
_pipe: dict[int, int] = {}
"""This process's pid -> the watchdog's input. By pid, because a forked child must not use its parent's."""


def owner() -> str:
    """Who we are, for the environment of those that we start."""
    return f"{_pid_namespace()}/{os.getpid()}/{watchdog.start_time(os.getpid())}"


def start(command: Sequence[str], *, environment: Mapping[str, str] = {}, **more: Any) -> Popen[Any]:
    """Start a command on the leash, in a session of its own. `more` goes to Popen. Errors: OSError."""
    with _lock:
        watchdog_input = _watchdog_input()
        started = Popen(command, env=os.environ | environment | {OWNER: owner()}, start_new_session=True, **more)
        os.write(watchdog_input, f"+{started.pid}\n".encode())
        return started


def kill_group(pid: int, number: int) -> None:
    """A signal to a process and all that it started in its session. Nothing happens when they are gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def group_lives(pid: int) -> bool:
    """Whether a process that was started here, or one that it started in its session, still runs."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def let_go(pid: int) -> None:
    """The process has ended and was waited for: its number may belong to another process from now on."""
    with _lock, suppress(OSError, KeyError):
        os.write(_pipe[os.getpid()], f"-{pid}\n".encode())


def remove_leftovers() -> list[int]:
    """Kill processes that earlier runs left: those whose owner is named and no longer runs. Gives their pids."""
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


def _watchdog_input() -> int:
    pid = os.getpid()
    if pid not in _pipe:
        reading, writing = os.pipe()
        Popen(
            [sys.executable, "-I", "-S", *_program()],
            stdin=reading,
            stdout=DEVNULL,
            stderr=DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        os.close(reading)
        _pipe[pid] = writing
    return _pipe[pid]


def _program() -> list[str]:
    """The watchdog as Python's arguments. Workers of Spark import it from an archive, in which it is no file to be run."""
    return [watchdog.__file__] if Path(watchdog.__file__).is_file() else ["-c", inspect.getsource(watchdog)]


def _pid_namespace() -> str:
    try:
        return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    except OSError:
        return ""
