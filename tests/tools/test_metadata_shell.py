"""Kafka's metadata shell walks through the reference's metadata log and snapshots as through a file system."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from linearizability.targets.artifacts import SHELL, artifact_jars, kafka_jars
from linearizability.targets.java import java
from tests.tools.test_metadata_files import folder

__all__ = ["folder"]

pytestmark = pytest.mark.java

ATTEMPTS = 4
TIMEOUT_S = 60


def as_kafka_writes(id: UUID) -> str:
    """An id in the letters of Kafka's tools."""
    return base64.urlsafe_b64encode(id.bytes).decode().rstrip("=")


def shell(file: Path, *command: str) -> str:
    """Return what the shell prints for one command on one file; it locks the folder that it reads.

    The text is empty when the shell did not end in time. That was seen once in many runs: the shell of 4.3.1 had read
    both control records of the snapshot and then waited for more than 120 s; the cause in the shell is not known.
    """
    jars = [*artifact_jars(SHELL), *kafka_jars("4.3.1")]
    options = ["-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars))]
    try:
        done = subprocess.run(
            [str(java()), *options, "org.apache.kafka.shell.MetadataShell", "--snapshot", str(file), *command],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def shows(file: Path, *command: str, expected: list[str]) -> None:
    """Check that the shell prints all that is expected. It may look before it has read, so it is asked again."""
    for _ in range(ATTEMPTS):
        text = shell(file, *command)
        missing = [each for each in expected if each not in text]
        if not missing:
            return
    pytest.fail(f"{missing} not in: {text}")


def test_it_finds_topics_and_configurations_in_the_log(folder: Path) -> None:
    shows(
        folder / "00000000000000000000.log",
        "find",
        "/image",
        expected=[
            "/image/topics/byName/orders/0",
            "/image/configs/TOPIC:orders/retention.ms",
            "/image/features/metadataVersion",
        ],
    )


def test_it_reads_a_partition_in_a_snapshot(folder: Path) -> None:
    snapshot = max(folder.glob("*.checkpoint"))
    directories = f"directories=[{as_kafka_writes(UUID(int=5))}]"
    shows(snapshot, "cat", "/image/topics/byName/orders/0", expected=["leader=1,", "isr=[1]", directories])
