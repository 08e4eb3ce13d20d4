"""Files that make Apache Kafka start fast: created once for each release, kept in the cache.

Two things cost most of a start: loading 10,000 classes, which an archive of the JVM (AppCDS) halves; and the format tool, a
JVM of its own, whose only lasting product beside a `meta.properties` of four lines is `bootstrap.checkpoint`, the same
for every cluster of a release. Both come from one throwaway broker. Where that fails, nodes start slower, without the files.
"""

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from linearizability.targets.artifacts import cache_folder
from linearizability.targets.java import java

CHECKPOINT = "bootstrap.checkpoint"


@dataclass(frozen=True, slots=True)
class QuickStart:
    """The files of the throwaway broker."""

    archive: Path | None
    """For -XX:SharedArchiveFile."""
    checkpoint: Path | None
    """For the data folder; None for clusters with ZooKeeper, which have none."""


def quick_start(version: str, make: Callable[[Path], tuple[Path | None, Path | None]]) -> QuickStart:
    """The cached files of a release. On first use calls `make(folder)`, which returns the paths of an archive and a
    checkpoint, or None."""
    home = cache_folder().parent / "kafka-start" / f"{version}-{_java_fingerprint()}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with _locked(home.with_name(home.name + ".lock")):
        if not home.is_dir():
            with tempfile.TemporaryDirectory(prefix=".new-", dir=home.parent) as temporary:
                kept = Path(temporary, "kept")
                kept.mkdir()
                archive, checkpoint = make(Path(temporary, "run"))
                for path, name in ((archive, "kafka.jsa"), (checkpoint, CHECKPOINT)):
                    if path is not None and path.is_file():
                        shutil.move(path, kept / name)
                kept.rename(home)
    found = [path if path.is_file() else None for path in (home / "kafka.jsa", home / CHECKPOINT)]
    return QuickStart(*found)


def _java_fingerprint() -> str:
    """A hash of the Java version and path: an archive works only with the Java that wrote it."""
    done = subprocess.run([java(), "-version"], capture_output=True, timeout=30, check=False)
    return hashlib.sha256(done.stderr + done.stdout + str(java()).encode()).hexdigest()[:12]


def class_path(jars: Sequence[Path]) -> str:
    """The class path with each jar, in a fixed order: the JVM refuses an archive that was written for another class path."""
    return ":".join(str(jar) for jar in jars)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
