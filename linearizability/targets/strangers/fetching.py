"""The programs of strangers: fetched or built once, and cached under their pinned version."""

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from linearizability.targets.artifacts import cache_folder
from linearizability.targets.target import TargetError

MAKING_WITHIN_S = 900


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """The cached file with this name. On first use calls `make(path)`, which writes it. Errors: TargetError."""
    place = (cache_folder().parent / "strangers" / name).resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=place.parent) as folder:
                unfinished = Path(folder) / name
                make(unfinished)
                unfinished.chmod(0o755)
                unfinished.rename(place)
    return place


def wheel(package: str, version: str, hashes: Collection[str], folder: Path) -> Path:
    """Download one wheel from the Python index, and verify its hash. Errors: TargetError."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
    run([*command, f"{package}=={version}"], folder)
    found = next(folder.glob("*.whl"))
    digest = hashlib.sha256(found.read_bytes()).hexdigest()
    if digest not in hashes:
        raise TargetError(f"{found.name} has the sha256 {digest}, which is not pinned")
    return found


def run(
    command: Sequence[str],
    folder: Path,
    within_s: float = MAKING_WITHIN_S,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a command with additional environment variables. Errors: TargetError, with the end of the command's output."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | (environment or {}),
            capture_output=True,
            text=True,
            timeout=within_s,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TargetError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise TargetError(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-500:]}")
