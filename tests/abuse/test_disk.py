"""A disk that is full or read-only: the node logs this and exits, and acknowledged records are kept."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from linearizability.targets import Target, open_target
from linearizability.targets.wire import WireError
from reference.protocol.errors import ErrorCode
from tests.abuse.broker import Broker
from tests.waiting import await_true

DISK_BYTES = 48 << 20
VALUE = b"x" * 500_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, in memory; skipped where we may not mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def serving(disk: Path, run: Path) -> Iterator[Target]:
    """A broker whose log directory is on the disk."""
    config = {"log.dirs": str(disk / "data"), "log.segment.bytes": str(8 << 20)}
    with open_target("reference:1", folder=run, config=config) as target:
        yield target


@pytest.fixture
def target(small_disk: Path, tmp_path: Path) -> Iterator[Target]:
    with serving(small_disk, tmp_path / "run") as target:
        yield target


def grow(disk: Path) -> None:
    """Double the size of the disk."""
    subprocess.run(["mount", "-o", f"remount,size={2 * DISK_BYTES}", str(disk)], check=True)


def fill(broker: Broker, topic: str, most: int = 200) -> int:
    """Produce until the broker refuses or ends; the number of acknowledged records."""
    for count in range(most):
        try:
            code, base = broker.try_to_produce(topic, [VALUE])
        except WireError:
            return count
        if code:
            assert code == ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode(code).name
            return count
        assert base == count
    raise AssertionError("the disk never was full")


def test_a_full_disk(target: Target, small_disk: Path) -> None:
    """The node logs this and exits, as Apache Kafka does. With space again it serves all acknowledged records and a retry."""
    broker = Broker(target)
    kept = broker.produce("kept", 5)
    broker.create("filler")
    count = fill(broker, "filler")
    assert count > 10
    wait_for_end(target)
    assert "No space left on device" in broker.log()
    assert f"log directory {small_disk / 'data'} has failed" in broker.log()
    grow(small_disk)
    target.restart(1)
    assert broker.values("kept", 0) == [f"kept {offset}" for offset in kept]
    assert broker.try_to_produce("filler", [VALUE]) == (0, count)
    assert len(broker.values("filler", 0)) == count + 1
    assert "Traceback" not in broker.log()


def wait_for_end(target: Target) -> None:
    """A node that has failed ends by itself."""
    await_true(lambda: not target.running(1), "the end of the node")


@pytest.fixture
def breakable_disk(tmp_path: Path) -> Iterator[Path]:
    """An ext4 in a file, mounted by a loop device; it turns read-only at the first error of its own."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(2 * DISK_BYTES)
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk that breaks")
    make = ["mkfs.ext4", "-q", "-F", str(image)]
    mount = ["mount", "-o", "loop,errors=remount-ro", str(image), str(folder)]
    for command in (make, mount):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a disk that breaks cannot be mounted: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def break_disk(folder: Path) -> None:
    """The kernel's own way to test what an ext4 does after an error: here it refuses all writes from now on."""
    source = subprocess.run(["findmnt", "-no", "SOURCE", str(folder)], capture_output=True, text=True, check=True)
    device = source.stdout.strip()
    if not device.startswith("/dev/"):  # some systems print the image's path
        found = subprocess.run(["losetup", "-nO", "NAME", "-j", device], capture_output=True, text=True, check=True)
        device = found.stdout.split()[0]
    trigger = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"
    if not trigger.exists():
        pytest.skip("this kernel cannot break an ext4 on purpose")
    trigger.write_text("1")


def test_a_disk_that_turns_read_only(breakable_disk: Path, tmp_path: Path) -> None:
    with serving(breakable_disk, tmp_path / "run") as target:
        broker = Broker(target)
        broker.produce("kept", 5)
        break_disk(breakable_disk)
        with suppress(WireError):
            assert broker.try_to_produce("kept", [b"refused"])[0] == ErrorCode.KAFKA_STORAGE_ERROR
        wait_for_end(target)
        assert "Read-only file system" in broker.log()
        assert "Traceback" not in broker.log()
