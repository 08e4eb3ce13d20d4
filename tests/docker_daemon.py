"""A Docker daemon for tests: the one that answers already; otherwise one of our own, where the machine can run it.

Ours runs in process, mount and network namespaces of its own: the machine's interfaces and firewall stay as they are, and a test
enters the network namespace to reach containers (`in_docker`). It has no way out. A shell is the first process of the
namespaces and waits for the end of its input, which comes when the test run ends, by SIGKILL too. Then it stops the daemon
and removes what it stored; when the shell ends, the rest of the namespaces goes with it.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from linearizability.targets import docker

PROGRAMS = {
    "docker": "docker.io", "dockerd": "docker.io", "containerd": "containerd", "runc": "runc",
    "unshare": "util-linux", "mount": "mount", "ip": "iproute2",
}  # fmt: skip
"""What a daemon of our own needs -> its Debian package."""
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
STARTS_WITHIN_S = 60
STOPS_WITHIN_S = 60
POLL_S = 0.1
CLONE_NEWNET = 0x40000000
FIRST_PROCESS = """
exec 3<&0
mount -t tmpfs none /run || exit
ip link set lo up || exit
dockerd --data-root "$1/data" --host "unix://$1/socket" --cgroup-parent "/$2" --shutdown-timeout 5 \
    --bridge none --iptables=false --ip6tables=false &
daemon=$!
{ cat <&3 >/dev/null; kill $daemon; } &
wait $daemon
find /sys/fs/cgroup -depth -type d -path "*/$2*" -exec rmdir {} + 2>/dev/null
rm -rf --one-file-system "$1"
"""


@dataclass(frozen=True)
class Daemon:
    """A daemon that answers. `namespace` is the network that its containers are on; empty where that is the machine's."""

    host: str
    namespace: str = ""

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, and what it starts, uses the daemon and is on the network of its containers."""
        with pytest.MonkeyPatch.context() as patch, open("/proc/thread-self/ns/net") as before:
            if self.host:
                patch.setenv("DOCKER_HOST", self.host)
            try:
                if self.namespace:
                    with open(self.namespace) as own:
                        _enter(own.fileno())
                yield
            finally:
                _enter(before.fileno())


def _enter(network: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(network, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


@pytest.fixture(scope="session")
def docker_daemon() -> Iterator[Daemon]:
    """A daemon that answers; skips where there can be none. One for each worker, so tests with it are one `xdist_group`."""
    if not (silence := docker.obstacle()):
        yield Daemon("")
        return
    if missing := obstacle():
        pytest.skip(f"no Docker daemon answers ({silence}), and none can be started: {missing}")
    with own_daemon() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def in_docker(docker_daemon: Daemon) -> Iterator[None]:
    """The tests of a module use the daemon and reach its containers."""
    with docker_daemon.entered():
        yield


def obstacle() -> str:
    """What a daemon of our own lacks here; empty where there is no reason not to try."""
    if os.geteuid() != 0:
        return "only root can"
    packages = [package for program, package in PROGRAMS.items() if not shutil.which(program, path=PATH)]
    return f"apt-get install {' '.join(dict.fromkeys(packages))}" if packages else ""


@contextmanager
def own_daemon() -> Iterator[Daemon]:
    """Start a daemon and end it. Skips where the machine does not let it run, with the last error that it logged."""
    folder = Path(tempfile.mkdtemp(prefix="tidegauge-docker-"))
    log = folder.with_suffix(".log")
    with log.open("w") as output:
        namespaces = ("--pid", "--mount", "--net", "--fork", "--kill-child", "--mount-proc")
        shell = subprocess.Popen(
            ["unshare", *namespaces, "sh", "-c", FIRST_PROCESS, "sh", str(folder), folder.name],
            env=os.environ | {"PATH": PATH},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        daemon = Daemon(f"unix://{folder}/socket", f"/proc/{shell.pid}/ns/net")
        if reason := _no_start(shell, daemon, log):
            pytest.skip(f"no Docker daemon answers, and one of our own does not start: {reason}")
        yield daemon
    finally:
        _end(shell)
        shutil.rmtree(folder, ignore_errors=True)
        log.unlink()


def _no_start(shell: subprocess.Popen[bytes], daemon: Daemon, log: Path) -> str:
    """Why the daemon does not answer; empty when it does."""
    until = time.monotonic() + STARTS_WITHIN_S
    answer = ""
    while shell.poll() is None and time.monotonic() < until:
        with daemon.entered():
            if not (answer := docker.obstacle()):
                return ""
        time.sleep(POLL_S)
    said = [line for line in log.read_text().splitlines() if "level=" not in line or "level=fatal" in line]
    return said[-1] if said else answer


def _end(shell: subprocess.Popen[bytes]) -> None:
    assert shell.stdin is not None
    shell.stdin.close()
    try:
        shell.wait(STOPS_WITHIN_S)
    except subprocess.TimeoutExpired:
        shell.kill()
        shell.wait()
