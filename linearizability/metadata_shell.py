"""Kafka's own metadata shell, as a reader of snapshots and metadata logs that is independent of the reference.

Each node writes its snapshots from the image in its memory. What the shell finds in a snapshot must be what it finds in the log
up to the offset at which the snapshot ends, whichever kind of node wrote the one and the other.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from linearizability.targets.artifacts import SHELL, artifact_jars, kafka_jars
from linearizability.targets.java import java
from linearizability.targets.kafka_start import class_path
from reference.controller.quorum_snapshots import NAME
from reference.protocol.records.batch import Batch, read_batches

MAIN = "org.apache.kafka.shell.MetadataShell"
RELEASE = "4.3.1"
TIMEOUT_S = 60
ATTEMPTS = 4
"""The shell may print before it has read all."""
LOGGED = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z? ")
"""A line of the shell's log begins with its time."""
UNREAD = "offset -1, epoch -1,"
"""The provenance of an image that the shell printed before it had read anything."""
OF_THE_FILE = "provenance"
"""Where the image was read from: of a snapshot another place than of a log."""

Tree = Counter[tuple[str, ...]]
"""Each line with those above it."""


def shell(file: Path, *command: str) -> str:
    """The shell's output for one command on one file; it locks the folder that it reads.

    The text is empty when the shell did not end in time. That was seen once in many runs: the shell of 4.3.1 had read
    both control records of the snapshot and then waited for more than 120 s; the cause in the shell is not known.
    Errors: ArtifactError; OSError where it fails.
    """
    jars = [*artifact_jars(SHELL), *kafka_jars(RELEASE)]
    options = ["-XX:TieredStopAtLevel=1", "-cp", class_path(jars)]
    try:
        done = subprocess.run(
            [str(java()), *options, MAIN, "--snapshot", str(file), *command],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    if done.returncode:
        raise OSError(f"Kafka's metadata shell failed on {file}: {(done.stdout + done.stderr)[-1500:]}")
    return done.stdout


def image(file: Path) -> str:
    """The output of `tree /image` for a file, repeated where the shell had read nothing; empty where it never had.

    Errors: as `shell`.
    """
    printed = (shell(file, "tree", "/image") for _ in range(ATTEMPTS))
    return next((text for text in printed if text and UNREAD not in text), "")


def tree(text: str) -> Tree:
    """The output of `tree /image` as a tree, without the image's provenance."""
    found: Tree = Counter()
    above: list[str] = []
    for line in text.splitlines():
        if LOGGED.match(line) or not line.strip():
            continue
        name = line.strip()
        above = [*above[: (len(line) - len(line.lstrip())) // 2], name]
        if above[0].rstrip(":") != OF_THE_FILE:
            found[tuple(above)] += 1
    return found


def snapshot_differences(homes: dict[int, Path]) -> Iterator[tuple[int, int, list[str] | None]]:
    """For each node's newest snapshot: the node, where it ends, and what the shell finds otherwise than in a log up to there;
    None where it read nothing of one of the two, which says nothing of the node.

    `homes` are the metadata logs by node. A node without a snapshot is left out.
    Errors: ArtifactError; OSError; ValueError where no log of them goes from the first offset to the snapshot's end.
    """
    logs: dict[int, Path] = {}
    with tempfile.TemporaryDirectory() as folder:
        for node, home in homes.items():
            ends = [(int(found[1]), path) for path in home.glob("*.checkpoint") if (found := NAME.fullmatch(path.name))]
            end, newest = max(ends, default=(0, home))
            if not end:
                continue
            snapshot = Path(folder) / str(node) / newest.name
            snapshot.parent.mkdir()
            shutil.copyfile(newest, snapshot)
            if end not in logs:
                logs[end] = _log_until(end, [*homes.values()], Path(folder) / f"until-{end}")
            yield node, end, _unlike(snapshot, logs[end])


def _unlike(snapshot: Path, log: Path) -> list[str] | None:
    differences: list[str] | None = None
    for _ in range(ATTEMPTS):
        one, other = tree(image(snapshot)), tree(image(log))
        if not one or not other:
            continue
        sides = (("snapshot", one - other), ("log", other - one))
        differences = [f"only the {where} has {'/'.join(line)}" for where, lines in sides for line in sorted(lines)]
        if not differences:
            break
    return differences


def _log_until(end: int, homes: Sequence[Path], folder: Path) -> Path:
    """One file with the batches of a log from its first offset to `end`, without control batches there.

    The shell of 4.3.1 waits for ever where control batches at the end hold two records or more: `SnapshotFileReader` gives its
    loader none of them, and the loader waits for the file's last offset but one.
    """
    for home in homes:
        batches = [batch for segment in sorted(home.glob("*.log")) for batch in read_batches(segment.read_bytes())]
        wanted = [batch for batch in batches if batch.header.base_offset < end]
        if wanted and _follow_each_other(wanted) and wanted[-1].header.next_offset == end:
            while wanted and wanted[-1].header.is_control:
                wanted.pop()
            folder.mkdir()
            file = folder / f"{0:020d}.log"
            file.write_bytes(b"".join(batch.data for batch in wanted))
            return file
    raise ValueError(f"no metadata log goes from the first offset to {end}")


def _follow_each_other(batches: Sequence[Batch]) -> bool:
    following = 0
    for batch in batches:
        if batch.header.base_offset != following:
            return False
        following = batch.header.next_offset
    return True
