"""Kafka's metadata shell reads the reference's metadata log and snapshots."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from uuid import UUID

import pytest

from linearizability.metadata_shell import ATTEMPTS, image, shell, snapshot_differences
from reference.protocol.primitives import LeaderEpoch, Offset, TimestampMs
from reference.protocol.records.batch import build
from reference.protocol.records.record import Record
from tests.tools.test_metadata_files import folder

__all__ = ["folder"]

pytestmark = pytest.mark.java


def as_kafka_writes(id: UUID) -> str:
    """An id as Kafka's tools print it."""
    return base64.urlsafe_b64encode(id.bytes).decode().rstrip("=")


def shows(file: Path, *command: str, expected: list[str]) -> None:
    """Check that the shell prints all expected texts. It may print before it has read the file, so it is run again."""
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


def test_a_snapshot_equals_the_image_of_the_log_up_to_its_end(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot that lacks a configuration of the log is reported with it."""
    copied = shutil.copytree(folder, tmp_path / "copied")
    older, newest = sorted(copied.glob("*.checkpoint"))
    assert [*snapshot_differences({1: copied})] == [(1, 6, [])]
    monkeypatch.setattr("linearizability.metadata_shell.ATTEMPTS", 1)
    newest.unlink()
    older.rename(newest)
    missing, differences = "only the log has configs:/TOPIC:orders:", list[str]()
    for _ in range(3 * ATTEMPTS):
        ((node, end, found),) = snapshot_differences({1: copied})
        assert (node, end) == (1, 6)
        differences = found or []  # None if the shell printed before it had read the file
        if differences and all(each.startswith(missing) for each in differences):
            break
    assert f"{missing}/retention.ms:/5" in differences
    assert all(each.startswith(missing) for each in differences)


def test_a_snapshot_behind_a_control_batch_is_compared(folder: Path, tmp_path: Path) -> None:
    """The shell waits for ever at a log that ends in a control batch (kraft.version 1 and its voters, in a mixed cluster)."""
    copied = shutil.copytree(folder, tmp_path / "copied")
    _, newest = sorted(copied.glob("*.checkpoint"))
    (segment,) = copied.glob("*.log")
    records = [Record(Offset(6 + i), TimestampMs(0), bytes([0, 0, 0, 5 + i]), b"") for i in range(2)]
    segment.write_bytes(segment.read_bytes() + build(records, control=True, leader_epoch=LeaderEpoch(2)))
    newest.rename(newest.with_name(newest.name.replace("006-", "008-")))
    assert [*snapshot_differences({1: copied})] == [(1, 8, [])]


def test_two_empty_images_are_no_agreement(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are equal because the shell printed them before it had read the files."""
    unread = "features:\n  metadataVersion:\n    Optional.empty\nprovenance:\n  offset -1, epoch -1, time 1969\n"
    read, asked = (
        "features:\n  metadataVersion:\n    Optional[4.3-IV0]\nprovenance:\n  offset 5, epoch 1, time 2026\n",
        [],
    )

    def prints(file: Path, *command: str) -> str:
        asked.append(file)
        return unread if len(asked) < ATTEMPTS else read

    monkeypatch.setattr("linearizability.metadata_shell.shell", prints)
    assert image(folder) == read
    monkeypatch.setattr("linearizability.metadata_shell.shell", lambda file, *command: unread)
    assert image(folder) == ""
    ((_, _, differences),) = snapshot_differences({1: folder})
    assert differences is None
