"""The steps of a log on each kind of disk."""

from __future__ import annotations

import contextlib
import random

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from reference.protocol.primitives import NO_PRODUCER_ID, Offset, ProducerId
from reference.protocol.records.compression import Codec
from reference.storage.disk import Disk
from reference.storage.errors import StorageError
from reference.storage.posix_disk import PosixDisk
from tests.storage.breaking_disk import BreakingDisk
from tests.storage.log_machine import LogMachine
from tests.storage.log_model import plain


class PosixLogMachine(LogMachine):
    """On the operating system's files."""

    def make_disk(self) -> Disk:
        return PosixDisk()


class SimulatedLogMachine(LogMachine):
    """In memory, where power fails and disks are full, or break in the middle of a cut or a swap."""

    def make_disk(self) -> Disk:
        self.simulated = BreakingDisk()
        return self.simulated

    @precondition(lambda self: self.config.compacts and not self.disk_is_full())
    @rule(
        batches=st.sampled_from([0, 5, 1000]), changes=st.integers(0, 30),
        then=st.sampled_from(["power", "power", "crash", "repair"]), seed=st.integers(0, 1 << 32),
    )  # fmt: skip
    def compact_until_the_disk_breaks(self, batches: int, changes: int, then: str, seed: int) -> None:
        self.compact(batches, 0, True)
        self.simulated.changes_left = changes
        try:
            self.go_on_compacting(1000)
        except (StorageError, OSError):
            cleaning, self.job = self.job, None
            with contextlib.suppress(OSError):
                assert cleaning is not None
                cleaning[0].abandon()
        self.simulated.changes_left = None
        self.adopt()
        {"power": lambda: self.lose_power(seed), "crash": self.crash, "repair": lambda: self.tick(1)}[then]()
        self.adopt()

    @precondition(lambda self: not self.disk_is_full())
    @rule(
        back=st.integers(1, 25), changes=st.integers(0, 12), repairs=st.booleans(), seed=st.integers(0, 1 << 32),
    )  # fmt: skip
    def truncate_until_the_disk_breaks(self, back: int, changes: int, repairs: bool, seed: int) -> None:
        """Break the disk within a truncation: the log has its old or its new end, and can be truncated again."""
        target = self.end - back
        if target < max(self.start, self.settled_below):
            return
        before = list(self.history), list(self.written), self.end
        self.simulated.changes_left = changes
        with contextlib.suppress(StorageError):
            self.log.truncate_to(target, self.now)
        self.simulated.changes_left = None
        self.ended_at(self.log.log_end_offset)
        assert target - 4 <= self.end <= before[2]
        self.read_everything()
        if repairs:
            self.tick(1)
            self.append([(2, 10, Codec.NONE, NO_PRODUCER_ID, False, 0)])
        else:
            # What was not made durable may be undone.
            self.history, self.written, self.end = before
            self.lose_power(seed)

    @precondition(lambda self: not self.disk_is_full() and not self.config.compacts)
    @rule(
        offset=st.integers(0, 100), written=st.integers(0, 5), flushed=st.booleans(), changes=st.integers(0, 30),
    )  # fmt: skip
    def start_over_until_killed(self, offset: Offset, written: int, flushed: bool, changes: int) -> None:
        """Kill the process as the log starts over: it is empty then, or has the first of its segments."""
        self.append([(4, 90, Codec.NONE, ProducerId(1), False, 0)] * written)
        if flushed:
            self.flush()
            self.write_checkpoint()
        self.simulated.changes_left = changes
        with contextlib.suppress(StorageError):
            self.log.truncate_fully_and_start_at(offset, self.now)
        self.simulated.changes_left = None
        # All that the disk was told is durable: a later loss of power brings nothing back.
        for name in self.disk.list_folder(self.folder / "t-0"):
            self.disk.open_file(self.folder / "t-0" / name).flush()
        self.disk.sync_folder(self.folder / "t-0")
        self.open(clean=False)
        start, end = self.log.log_start_offset, self.log.log_end_offset
        if start == end == offset:
            self.begins_empty(offset)
        else:
            assert start <= self.start
            assert end <= self.end
            self.ended_at(end)
            self.reopened()

    def ended_at(self, end: Offset) -> None:
        self.history = [stored for stored in self.history if stored.last < end]
        self.forget_from(end)
        self.end = end
        self.start = min(self.start, end)
        self.high_watermark = min(self.high_watermark, self.end)
        self.count_sequences()

    def sync_parents(self) -> None:
        for parent in self.folder.parents:
            self.disk.sync_folder(parent)

    def disk_is_full(self) -> bool:
        return self.simulated.capacity_bytes is not None

    @rule(left=st.sampled_from([0, 50, 100, 200, 1000]))
    def fill_disk(self, left: int) -> None:
        self.simulated.capacity_bytes = self.simulated.used_bytes + left

    @rule()
    def free_disk(self) -> None:
        self.simulated.capacity_bytes = None

    @precondition(lambda self: not self.disk_is_full())
    @rule(seed=st.integers(0, 1 << 32))
    def lose_power(self, seed: int) -> None:
        """Lose power: a prefix is kept, at least up to the last flush; checkpoints are durable once written."""
        flushed = max((stored.last + 1 for stored in self.written if stored.last < self.log.recovery_point), default=0)
        self.job = None
        old_start = self.start
        self.simulated.lose_power(random.Random(seed), in_any_order=seed % 2 == 1)
        self.open(clean=False)
        assert flushed <= self.log.log_end_offset <= self.end
        assert self.log.log_start_offset <= old_start
        self.start, self.end = self.log.log_start_offset, self.log.log_end_offset
        self.reloaded()
        while self.history and self.history[-1].last >= self.end:
            self.history.pop()
        self.forget_from(self.end)
        self.adopt()
        if self.history:
            assert self.history[-1].last < self.end
        self.count_sequences()
        self.read_everything()
        for stored in self.visible():
            assert plain(stored.data) == stored.records
