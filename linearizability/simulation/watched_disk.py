"""A machine's disk that reports coming changes and the contents of offset checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from reference.protocol.primitives import Offset
from reference.replication.partition import Partition
from reference.storage.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from reference.storage.simulated_disk import SimulatedDisk


class WatchedDisk(SimulatedDisk):
    """A disk that shows each change before it is made, and what is written to the checkpoints of offsets."""

    def __init__(
        self, on_checkpoint: Callable[[SimulatedDisk, str, bytes], None], before_change: Callable[[], None]
    ) -> None:
        super().__init__()
        self._on_checkpoint = on_checkpoint
        self._before_change = before_change

    def _require_writable(self) -> None:
        super()._require_writable()
        self._before_change()

    def write_file(self, path: Path, data: bytes) -> None:
        """See `Disk`."""
        super().write_file(path, data)
        if path.name in BOUNDS:
            self._on_checkpoint(self, path.name, data)


BOUNDS: dict[str, tuple[str, Callable[[Partition], Offset]]] = {
    HIGH_WATERMARKS: ("checkpoint-beyond-high-watermark", lambda partition: partition.high_watermark),
    RECOVERY_POINTS: ("recovery-point-beyond-end", lambda partition: partition.log.log_end_offset),
    LOG_START_OFFSETS: ("checkpoint-beyond-log-start", lambda partition: partition.log.log_start_offset),
}
"""What no line of a checkpoint may be beyond when it is written."""


def remove_what_is_twice(disks: Sequence[SimulatedDisk], folder: Path) -> list[str]:
    """An operator does what a node asks for that finds a partition in two directories, as Kafka's does: it is removed from the
    last one, which has failed. This comes of a failure while the replica was being moved out of it. Gives the partitions."""
    last, others = disks[-1], disks[:-1]
    twice = [
        name
        for name in last.list_folder(folder)
        if last.is_folder(folder / name) and any(disk.is_folder(folder / name) for disk in others)
    ]
    for partition in twice:
        for name in last.list_folder(folder / partition):
            last.remove(folder / partition / name)
        last.remove(folder / partition)
    last.sync_folder(folder)
    return twice
