"""Result folders: each run leaves `results/<date-time>-<kind>-<label>/`, and `results/latest` points to the newest.

    folder = new_run_folder("hunt", "reference-1")      # results/20261121T064501Z-hunt-reference-1/
    (folder / "verdict.json").write_text(...)

Folder names are UTC, sort by time and are unique also between processes that start in the same second. The link is
replaced in one step, so a reader never finds it missing; where the file system knows no links, the folder stays without.
"""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

RESULTS = Path("results")
"""The folder that holds all runs, relative to the working directory."""

CHECKOUT = Path(__file__).resolve().parents[1]
"""Where the packages are: a clone of the repository, or an environment's site-packages."""
MAX_FOLDERS_A_SECOND = 1000
"""A bound on the search for a free name; reaching it means that something starts runs in a loop."""


def new_run_folder(kind: str, label: str = "", root: Path | None = None) -> Path:
    """Create and return an empty folder for one run, and point `latest` to it.

    `kind` is the command (`run`, `hunt`, `fuzz`, ...), `label` what it was about (a target, a seed); characters that
    file systems dislike become dashes. Errors: OSError that says which folder cannot keep results.
    """
    home = RESULTS if root is None else root
    try:
        return _new_folder(home, kind, label)
    except OSError as error:
        reason = "a file" if isinstance(error, FileExistsError) else str(error.strerror)
        reason = f"no results can be kept here: {reason}"
        raise OSError(error.errno, reason, str(home)) from error


def _new_folder(home: Path, kind: str, label: str) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = "-".join(part for part in (moment, _file_name(kind), _file_name(label)) if part)
    folder = _create_unique(home, name)
    _point_latest(home, folder.name)
    return folder


@cache
def suite_version() -> str:
    """The version of tidegauge, which each result names: that of its tag; in a checkout of another commit, with that commit."""
    released = version("tidegauge")
    command = ["git", "-C", str(CHECKOUT), "describe", "--tags", "--always", "--abbrev=8", f"--match=v{released}"]
    if not (CHECKOUT / ".git").exists() or not shutil.which("git"):
        return released
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if said in ("", f"v{released}"):
        return released
    return f"{released}+g{said.rpartition('-')[2].removeprefix('g')}"


def latest_with(name: str) -> Path | None:
    """The newest run's folder with a file of this name; None where there is none."""
    found = [folder for folder in RESULTS.glob("*/") if (folder / name).is_file() and not folder.is_symlink()]
    return max(found, key=lambda folder: folder.name, default=None)


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")[:80]


def _create_unique(home: Path, name: str) -> Path:
    for attempt in range(MAX_FOLDERS_A_SECOND):
        folder = home / (name if attempt == 0 else f"{name}-{attempt + 1}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise RuntimeError(f"{home} already holds {MAX_FOLDERS_A_SECOND} folders named {name}")


def _point_latest(home: Path, name: str) -> None:
    temporary = home / f".latest-{os.getpid()}-{name}"
    with suppress(OSError):
        temporary.symlink_to(name)
        temporary.replace(home / "latest")
    with suppress(OSError):
        temporary.unlink()
