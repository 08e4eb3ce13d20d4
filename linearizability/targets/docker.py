"""Nodes in Docker containers: the same processes, each in a container that shares the network of its *host* container.

A host container only holds a network namespace and turns its links off and on (`link_agent`); the node's own container joins
that namespace. So cuts persist when a node is restarted. `docker run` in the foreground represents the node: its output is
the log, its end the node's end; `docker kill` sends signals.

The image must have Python and this project (container/Dockerfile builds one). Without one, an empty root is imported, and the
machine's own programs are mounted into it, read-only. Source: Docker's command line reference.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from linearizability.targets import leash, watchdog
from linearizability.targets.artifacts import cache_folder
from linearizability.targets.hosts import Host
from linearizability.targets.ports import free_ports
from linearizability.targets.process import Process
from linearizability.targets.target import TargetError

LABEL = "tidegauge.owner"
"""The label with the owner of each container and network."""
ANSWERS_WITHIN_S = 60.0
APPEARS_WITHIN_S = 10.0
POLL_S = 0.05
PROJECT = Path(__file__).resolve().parents[2]
LOCAL_IMAGE = "tidegauge-local:1"
"""Our own image, which has only empty folders."""
_EMPTY = ("dev", "etc", "proc", "run", "sys", "tmp", "usr", "var/tmp")
_LINKS = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32")}
_MOUNTED = ("/usr", "/etc/alternatives", "/etc/java-17-openjdk", "/etc/ld.so.cache", "/etc/passwd", "/etc/group")


@dataclass(frozen=True, slots=True)
class Image:
    """The image of containers. `mounts` are this machine's folders inside them; `python` is the interpreter there."""

    name: str
    mounts: tuple[str, ...] = ()
    python: str = "python3"

    def words(self) -> list[str]:
        """The options of `docker run` for this image, without its name."""
        ours = ("--env", f"PYTHONPATH={PROJECT}") if self.mounts else ()
        return [*ours, *(word for mount in self.mounts for word in ("--volume", f"{mount}:{mount}:ro"))]

    def command(self, command: Sequence[str]) -> list[str]:
        """A command with the container's interpreter in place of ours."""
        return [self.python if word == sys.executable else word for word in command]


@dataclass(frozen=True, slots=True)
class DockerHost(Host):
    """A host container that runs already."""

    container: str = ""
    image: Image = Image("")

    def process(self, name: str, log: Path, folder: Path) -> Process:
        return Container(name, log, folder, self)

    def free_ports(self, count: int) -> list[int]:
        return free_ports(count)


class Container(Process):
    """A process that is the first one of a container."""

    def __init__(self, name: str, log: Path, folder: Path, host: DockerHost) -> None:
        self._host = host
        super().__init__(name, [], log, folder=folder)

    @property
    def container(self) -> str:
        """The container's name, which is new for each start."""
        return f"{self._host.container}-start-{self.starts}"

    def start(self) -> None:
        plain = self.command
        image, host, user = self._host.image, self._host, f"{os.getuid()}:{os.getgid()}"
        network, home = f"container:{host.container}", self.folder.parent
        name = f"{host.container}-start-{self.starts + 1}"
        variables = [word for item in self.environment.items() for word in ("--env", "=".join(item))]
        self.command = [
            *run_words(), "--name", name, "--network", network, "--user", user, "--workdir", str(self.folder),
            "--volume", f"{home}:{home}", *variables, *image.words(), image.name, *image.command(plain),
        ]  # fmt: skip
        try:
            super().start()
        finally:
            self.command = plain

    def _signal(self, number: int) -> None:
        """Send a signal; retries while the container is still being created, and stops once it is gone."""
        until = time.monotonic() + APPEARS_WITHIN_S
        while self.running and time.monotonic() < until:
            try:
                docker("kill", "--signal", str(int(number)), self.container)
            except TargetError:
                time.sleep(POLL_S)
            else:
                return


def run_words() -> tuple[str, ...]:
    """The beginning of each `docker run`: the container is removed at its end, and carries its owner's label."""
    return (
        "docker",
        "run",
        "--rm",
        "--label",
        f"{LABEL}={leash.owner()}",
        "--init=false",
        "--pull",
        "never",
        "--entrypoint",
        "",
    )


def docker(*arguments: str, within_s: float = ANSWERS_WITHIN_S) -> str:
    """The output of a docker command. Errors: TargetError, with docker's message."""
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=within_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TargetError(f"docker {arguments[0]}: {error}") from error
    if done.returncode:
        raise TargetError(f"docker {arguments[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def obstacle() -> str:
    """Why this machine cannot run containers; empty where it can."""
    if not shutil.which("docker"):
        return "docker is not installed (Debian: docker.io)"
    try:
        docker("version", "--format", "{{.Server.Version}}", within_s=10)
    except TargetError as error:
        return str(error)
    return ""


def open_image(name: str = "") -> Image:
    """The image with this name, which must exist; without a name our own, created where it is missing. Errors: TargetError."""
    if name:
        if not docker("images", "--quiet", name):
            raise TargetError(f"there is no image {name}: `make image` builds one")
        return Image(name)
    if not docker("images", "--quiet", LOCAL_IMAGE):
        done = subprocess.run(
            ["docker", "import", "-", LOCAL_IMAGE], input=_empty_root(), capture_output=True, check=False
        )
        if done.returncode:
            raise TargetError(f"docker import: {done.stderr.decode(errors='replace').strip()}")
    present = [path for path in _MOUNTED if Path(path).exists()]
    return Image(LOCAL_IMAGE, (*present, *own_folders()), sys.executable)


def own_folders() -> list[str]:
    """The folders of this project that nodes read: code, interpreter, libraries, and fetched jars.

    Includes the targets of links, which must exist inside as well.
    """
    prefix, cache = Path(sys.prefix), cache_folder().parent
    seen = [PROJECT, prefix, prefix.resolve(), Path(sys.base_prefix), cache, cache.resolve(), *map(Path, sys.path)]
    own = [str(path) for path in dict.fromkeys(seen) if path.is_dir()]
    return _outermost([path for path in own if not path.startswith("/usr/")])


def _outermost(paths: list[str]) -> list[str]:
    """The paths that are not inside another one."""
    return [path for path in paths if not any(path.startswith(f"{other}/") for other in paths)]


def _empty_root() -> bytes:
    """A file system of empty folders, as a tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in _EMPTY:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if "tmp" in folder else 0o755
            tar.addfile(entry)
        for name, target in _LINKS.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def remove_leftovers() -> list[str]:
    """Remove the containers and networks of runs that have ended, and return their names."""
    removed: list[str] = []
    here = leash.owner().split("/")[0]
    for kind, remove in (("ps", ("rm", "--force")), ("network", ("network", "rm"))):
        words = ("ps", "--all") if kind == "ps" else ("network", "ls")
        what = "{{.Names}}" if kind == "ps" else "{{.Name}}"
        listed = docker(*words, "--filter", f"label={LABEL}", "--format", f'{what} {{{{.Label "{LABEL}"}}}}')
        for line in listed.splitlines():
            name, owner = line.split()
            namespace, pid, born = owner.split("/")
            if namespace == here and watchdog.start_time(int(pid)) != born:
                with suppress(TargetError):
                    docker(*remove, name)
                    removed.append(name)
    return removed
