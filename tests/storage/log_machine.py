"""A log beside a model of it: a list of batches that knows no files.

Hypothesis draws the steps: appends, transactions, reads, rolls, retention, truncation, flushes, compaction, full disks,
crashes, power failures. After each step the log answers what the model answers; after a crash it holds everything, after a power
failure a prefix, at least up to the last flush.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reference.protocol.records.batch import Batch, build, check_crc, read_batches, records_of
from reference.protocol.records.compression import Codec
from reference.protocol.records.control import EndTransaction, build_end_transaction
from reference.protocol.records.record import Record
from reference.protocol.records.validate import Origin
from reference.storage.cleanable import cleanable
from reference.storage.cleaning import Cleaning
from reference.storage.config import LogConfig
from reference.storage.disk import Disk
from reference.storage.errors import OffsetOutOfRange, RefusedByProducerState, StorageError
from reference.storage.log import Log
from reference.storage.posix_disk import PosixDisk
from tests.storage.breaking_disk import BreakingDisk

START = 1_700_000_000_000


class Plain(NamedTuple):
    """A record as the model keeps it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def plain(batch: memoryview | bytes) -> tuple[Plain, ...]:
    return tuple(
        Plain(one.offset, one.timestamp, one.key and bytes(one.key), None if one.value is None else bytes(one.value))
        for one in records_of(memoryview(batch))
    )


BATCH = st.tuples(
    st.integers(1, 4),
    st.sampled_from([0, 10, 90]),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
    st.sampled_from([-1, -1, 1, 2]),
    st.booleans(),
    st.integers(-20, 50),
)
"""Records, their size, codec, producer (-1: none), whether in a transaction, how their timestamps jump."""


TOMBSTONES_STAY_MS = 1_000
"""Longer than a run without a long tick, shorter than a long tick."""


class Stored(NamedTuple):
    """A batch as the model keeps it."""

    base: int
    last: int
    data: bytes
    epoch: int
    records: tuple[Plain, ...]
    producer: int = -1
    transactional: bool = False
    marker: bool | None = None
    """True for a commit, False for an abort."""
    next_sequence: int = 0
    """The sequence number with which its producer goes on."""


class LogMachine(RuleBasedStateMachine):
    """The steps that both disks know."""

    def make_disk(self) -> Disk:
        raise NotImplementedError

    @initialize(
        segment_bytes=st.sampled_from([500, 1000, 5000]),
        interval=st.sampled_from([0, 100, 4096]),
        index_bytes=st.sampled_from([64, 160, 4096]),
        policy=st.sampled_from(["delete", "compact,delete", "compact,delete"]),
        keeps=st.booleans(),
        keys=st.sampled_from([1, 3, 20, 1000]),
    )
    def open_first(
        self, segment_bytes: int, interval: int, index_bytes: int, policy: str, keeps: bool, keys: int
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tidegauge-log-"))
        self.disk = self.make_disk()
        self.disk.make_folder(self.folder)
        self.sync_parents()
        self.config = LogConfig(
            cleanup_policy=policy,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            file_delete_delay_ms=50,
            delete_retention_ms=TOMBSTONES_STAY_MS,
        )
        self.keeps = keeps
        """Nothing is deleted in this run, so that all transactions stay comparable."""
        self.now = START
        self.history: list[Stored] = []
        """All batches up to the end, those below the log's start among them, as the log holds them."""
        self.written: list[Stored] = []
        """The same as they were written, with those that compaction took."""
        self.keys = keys
        self.job: tuple[Cleaning, Iterator[int]] | None = None
        self.met: dict[int, int] = {}
        """When a compaction first met each tombstone: its delete horizon is counted from no earlier."""
        self.clean_to = self.compacted_below = self.settled_below = 0
        """Up to where a compaction came to its end, and how far one ever looked."""
        self.start = self.end = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.high_watermark = 0
        """The highest that the log was given; after a new start it must not learn of a lower one than its end."""
        self.started_over = False
        """Records below the log's start have gone: producers whose state went with them are not compared."""
        self.checkpoint = (0, 0)
        self.open(clean=False)

    def open(self, clean: bool) -> None:
        recovery_point, log_start = self.checkpoint
        self.log = Log(
            self.disk,
            self.folder / "t-0",
            self.config,
            self.now,
            topic="t",
            partition=0,
            recovery_point=recovery_point,
            log_start=log_start,
            clean=clean,
            checkpoint=self.write_checkpoint,
        )

    def record(self, index: int, time: int, size: int) -> Record:
        """Keys come again, every fifth record is a tombstone, and no two values are alike."""
        offset = self.end + index
        value = None if offset % 5 == 4 else offset.to_bytes(3, "big") + bytes(size)
        return Record(index, time, b"k%d" % (offset * offset % self.keys), value)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            del self.log
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- growing

    @rule(batches=st.lists(BATCH, min_size=1, max_size=5))
    def append(self, batches: list[tuple[int, int, Codec, int, bool, int]]) -> None:
        for batch in batches:
            self.append_one(*batch)

    @rule(batches=st.lists(BATCH, min_size=1, max_size=3), producer=st.sampled_from([1, 2]), commit=st.booleans())
    def transaction(self, batches: list[tuple[int, int, Codec, int, bool, int]], producer: int, commit: bool) -> None:
        for count, size, codec, _, _, jump in batches:
            self.append_one(count, size, codec, producer, True, jump)
        self.end_transaction(producer, commit)

    def append_one(self, count: int, size: int, codec: Codec, producer: int, transactional: bool, jump: int) -> None:
        self.now += 1
        records = [self.record(index, self.now + jump * index, size) for index in range(count)]
        open_transactions = {stored.producer for stored in self.undecided()}
        transactional = (transactional or producer in open_transactions) and producer >= 0
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        epoch = 0 if producer >= 0 else -1
        batch = build(
            records,
            codec=codec,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        size_before = self.log.size_bytes
        try:
            info = self.log.append_as_leader(batch, self.epoch, self.now)
        except StorageError:
            assert self.disk_is_full(), "only a full disk refuses"
            assert self.log.size_bytes == size_before
            return
        except RefusedByProducerState:
            # All that is left of the producer is a marker, which reports its epoch and no sequence: Kafka wants 0 then.
            assert self.started_over and not self.written_by(producer)
            assert {row.producer_id: row.last_sequence for row in self.log.active_producers()}[producer] == -1
            self.sequences[producer] = 0
            return
        assert (info.first_offset, info.last_offset) == (self.end, self.end + count - 1)
        assert not info.is_duplicate
        self.take(
            Stored(
                info.first_offset,
                info.last_offset,
                bytes(batch),
                self.epoch,
                plain(batch),
                producer,
                transactional,
                next_sequence=sequence + count,
            )
        )
        if producer >= 0:
            self.sequences[producer] = sequence + count
            again = self.log.append_as_leader(bytearray(8) + batch[8:], self.epoch, self.now)
            assert again.is_duplicate
            assert (again.first_offset, again.last_offset) == (info.first_offset, info.last_offset)

    @rule(producer=st.sampled_from([1, 2]), commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        self.now += 1
        batch = build_end_transaction(EndTransaction(commit, 0), producer, 0, self.now)
        try:
            info = self.log.append_as_leader(batch, self.epoch, self.now, Origin.COORDINATOR)
        except StorageError:
            assert self.disk_is_full()
            return
        self.take(
            Stored(info.first_offset, info.last_offset, bytes(batch), self.epoch, plain(batch), producer, True, commit)
        )

    @rule(gap=st.integers(0, 3), count=st.integers(1, 3))
    def append_as_follower(self, gap: int, count: int) -> None:
        """What a leader sends whose log was compacted: offsets may have gaps."""
        self.now += 1
        base = self.end + (gap if self.config.compacts else 0)
        records = [Record(base + index, self.now, b"k", b"v") for index in range(count)]
        batch = build(records, leader_epoch=self.epoch)
        try:
            info = self.log.append_as_follower(bytes(batch) + bytes(batch)[:40], self.now)
        except StorageError:
            assert self.disk_is_full()
            return
        assert (info.first_offset, info.last_offset) == (base, base + count - 1)
        self.take(Stored(base, base + count - 1, bytes(batch), self.epoch, plain(batch)))

    def count_sequences(self) -> None:
        """What the batches that are left say of their producers."""
        self.sequences = {
            stored.producer: stored.next_sequence
            for stored in self.written
            if stored.producer >= 0 and stored.marker is None
        }

    def reloaded(self) -> None:
        self.high_watermark = self.end

    def take(self, stored: Stored) -> None:
        self.history.append(stored)
        self.written.append(stored)
        self.end = stored.last + 1

    @rule()
    def append_out_of_sequence(self) -> None:
        batch = build(
            [Record(0, self.now, b"k", b"v")],
            producer_id=1,
            producer_epoch=0,
            base_sequence=self.sequences.get(1, 0) + 7,
        )
        known = {producer.producer_id for producer in self.log.active_producers()}
        if 1 in known:
            with pytest.raises(RefusedByProducerState):
                self.log.append_as_leader(batch, self.epoch, self.now)

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1
        with contextlib.suppress(StorageError):
            self.log.assign_epoch_start(self.epoch, self.end)

    @rule()
    def roll(self) -> None:
        with contextlib.suppress(StorageError):
            self.log.roll(self.now)

    @rule(ms=st.sampled_from([1, 60, 700_000]))
    def tick(self, ms: int) -> None:
        self.now += ms
        self.log.tick(self.now)

    @rule()
    def flush(self) -> None:
        before = self.log.recovery_point
        self.log.flush(self.now)
        if self.disk_is_full():  # there may be no room for the file of epochs
            assert before <= self.log.recovery_point <= self.end
            return
        assert self.log.recovery_point in (
            self.end,
            self.written[-1].last + 1 if self.written else self.log.recovery_point,
        )

    @rule()
    def write_checkpoint(self) -> None:
        if hasattr(self, "log"):
            self.checkpoint = (self.log.recovery_point, self.log.log_start_offset)

    # ---- compaction

    @precondition(lambda self: self.config.compacts)
    @rule(batches=st.sampled_from([1, 3, 10, 1000]), behind=st.sampled_from([0, 0, 1, 8]), rolls=st.booleans())
    def compact(self, batches: int, behind: int, rolls: bool) -> None:
        """Go on with a compaction for some batches, or begin one that leaves out what lies behind the high watermark."""
        self.now += 1
        if rolls:
            with contextlib.suppress(StorageError):
                self.log.roll(self.now)
                self.log.flush(self.now)
        if self.job is None or self.job[0].is_stale:
            self.begin_compaction(behind)
        try:
            self.go_on_compacting(batches)
        except (StorageError, OSError):
            assert self.disk_is_full()
            self.job = None
        self.adopt()

    @precondition(lambda self: self.config.compacts)
    @rule(written=st.lists(BATCH, min_size=1, max_size=3))
    def compact_again_and_again(self, written: list[tuple[int, int, Codec, int, bool, int]]) -> None:
        """What the first compaction has met, the second one meets again."""
        for _ in range(2):
            self.append(written)
            self.compact(1000, 0, True)

    def go_on_compacting(self, batches: int) -> None:
        if self.job is not None:
            cleaning, steps = self.job
            for _ in zip(range(batches), steps, strict=False):
                pass
            if cleaning.done is not None:
                self.job, self.clean_to = None, cleaning.done.end

    def begin_compaction(self, behind: int) -> None:
        if self.job is not None:
            self.job[0].abandon()
            self.job = None
        log = self.log
        self.high_watermark = max(self.high_watermark, self.end - behind)
        stable = min(log.last_stable_offset(self.high_watermark), log.recovery_point)
        section = cleanable(
            log.closed_segments,
            log.config,
            log.active_base,
            log.log_start_offset,
            min(self.clean_to, log.recovery_point),
            stable,
            self.now,
        )
        if section.dirty_bytes and not self.disk_is_full():
            log.flush(self.now)
            log.write_checkpoint()
            self.compacted_below = max(self.compacted_below, section.end)
            self.settled_below = self.high_watermark
            self.meet_tombstones(section.end)
            cleaning = Cleaning(log, section, self.now, 600)
            self.job = cleaning, cleaning.steps()

    def meet_tombstones(self, end: int) -> None:
        for stored in self.history:
            for record in stored.records:
                if record.value is None and record.offset < end:
                    self.met.setdefault(record.offset, self.now)

    def adopt(self) -> None:
        """What a compaction left is a part of what was written, and of what is missing each has a reason."""
        left = {stored.base: stored for stored in self.written}
        history: list[Stored] = []
        for batch in self.batches_from(self.start):
            header = batch.header
            original = left[header.base_offset]
            found = plain(batch.data)
            assert header.last_offset == original.last
            assert header.leader_epoch == original.epoch
            assert set(found) <= set(original.records)
            assert list(found) == sorted(found)
            history.append(original._replace(data=bytes(batch.data), records=found))
        kept = {record.offset for stored in history for record in stored.records}
        for stored in self.written:
            for record in stored.records:
                if record.offset not in kept and stored.last >= self.start:
                    assert self.may_be_missing(stored, record), f"{record} of {stored} is missing"
        below = [stored for stored in self.history if stored.last < self.start]
        self.history = below + history

    def batches_from(self, offset: int) -> list[Batch]:
        found: list[Batch] = []
        while offset < self.end:
            records = self.log.read(offset, 500).records
            whole = list(read_batches(records if isinstance(records, bytes) else records.read()))
            if not whole:
                break
            offset = whole[-1].header.next_offset
            found += whole
        return found

    def may_be_missing(self, stored: Stored, record: Plain) -> bool:
        """Whether compaction may have taken a record."""
        if record.offset >= self.compacted_below:
            return False
        if stored.marker is not None:
            return True  # what markers are for is tested with the transactions
        if stored.transactional and self.was_aborted(stored):
            return True
        is_superseded = any(
            later.key == record.key
            for other in self.written
            if other.marker is None and not (other.transactional and self.was_aborted(other))
            for later in other.records
            if record.offset < later.offset < self.compacted_below
        )
        is_old_tombstone = record.offset in self.met and self.now >= self.met[record.offset] + TOMBSTONES_STAY_MS
        return is_superseded or is_old_tombstone

    def was_aborted(self, stored: Stored) -> bool:
        """Whether the transaction of a batch ended so."""
        ends = (
            each.marker
            for each in self.written
            if each.producer == stored.producer and each.marker is not None and each.base > stored.base
        )
        return next(ends, None) is False

    # ---- shrinking

    @precondition(lambda self: not self.keeps)
    @rule(retention=st.sampled_from([0, 300, 2000]), below=st.integers(0, 30))
    def delete_by_size(self, retention: int, below: int) -> None:
        """Retention may take any number of whole old segments, but nothing at or above the high watermark."""
        high_watermark = max(self.start, self.end - below)
        self.log.config = replace(self.config, retention_bytes=retention)
        with contextlib.suppress(StorageError):
            self.log.delete_old_segments(self.now, high_watermark)
        self.log.config = self.config
        assert self.start <= self.log.log_start_offset <= high_watermark
        if self.log.log_start_offset > self.start:
            self.start = self.log.log_start_offset
            self.started_over = True

    @precondition(lambda self: not self.keeps)
    @rule(ahead=st.integers(1, 10))
    def delete_records(self, ahead: int) -> None:
        target = self.start + ahead
        if target > self.end:
            with pytest.raises(OffsetOutOfRange):
                self.log.advance_log_start_offset(target)
            return
        with contextlib.suppress(StorageError):
            self.log.advance_log_start_offset(target)
        self.start = target
        self.started_over = True

    @precondition(lambda self: not self.disk_is_full())
    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        target = self.end - back
        if target < max(self.start, self.settled_below):
            return  # what is compacted is committed, and so are the markers by which aborted records went: they stay
        assert self.log.truncate_to(target, self.now) == (target < self.end)
        while self.history and self.history[-1].last >= target:
            target = min(target, self.history.pop().base)
        self.forget_from(target)
        self.end = target
        self.start = min(self.start, target)
        self.high_watermark = min(self.high_watermark, self.end)
        self.count_sequences()

    @precondition(lambda self: not self.disk_is_full())
    @rule(offset=st.integers(0, 100))
    def start_over(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset, self.now)
        self.history, self.written, self.sequences, self.started_over = [], [], {}, False
        self.clean_to = self.compacted_below = self.settled_below = offset
        self.met = {}
        self.start = self.end = offset
        self.reloaded()

    # ---- ends

    @precondition(lambda self: not self.disk_is_full())
    @rule()
    def restart(self) -> None:
        """A clean end and a new start."""
        producers = sorted(self.log.active_producers())
        self.log.close()
        self.write_checkpoint()
        self.open(clean=True)
        assert self.log.recovered_bytes == 0
        assert sorted(self.log.active_producers()) == producers
        self.reopened()

    @precondition(lambda self: not self.disk_is_full())
    @rule()
    def crash(self) -> None:
        """The process dies; everything that was written is there."""
        self.open(clean=False)
        if self.visible():  # a log that ends in a gap below its start begins again, and loses what nobody could see
            assert self.log.lost_bytes == 0
        self.reopened()

    def forget_from(self, end: int) -> None:
        while self.written and self.written[-1].last >= end:
            self.written.pop()
        self.met = {offset: at for offset, at in self.met.items() if offset < end}

    def reopened(self) -> None:
        """All batches are there. An end in a gap is forgotten, and so is a start that was not in the checkpoint."""
        self.job = None
        written = self.history[-1].last + 1 if self.history else 0
        assert min(written, self.end) <= self.log.log_end_offset <= self.end
        assert self.log.log_start_offset <= self.start
        self.start, self.end = self.log.log_start_offset, self.log.log_end_offset
        self.reloaded()
        self.adopt()

    # ---- what holds after every step

    def sync_parents(self) -> None:
        """The data folder itself was made long ago."""

    def disk_is_full(self) -> bool:
        return False

    def check_end(self) -> None:
        assert self.log.log_end_offset == self.end

    def visible(self) -> list[Stored]:
        return [stored for stored in self.history if stored.last >= self.start]

    def undecided(self) -> list[Stored]:
        """The first batch of each open transaction."""
        opened: dict[int, Stored] = {}
        for stored in self.history:
            if stored.marker is not None:
                opened.pop(stored.producer, None)
            elif stored.transactional:
                opened.setdefault(stored.producer, stored)
        return list(opened.values())

    @invariant()
    def ends_agree(self) -> None:
        if hasattr(self, "log"):
            self.check_end()
            assert self.log.log_start_offset == self.start

    @rule(
        chance=st.randoms(use_true_random=False), max_bytes=st.sampled_from([0, 100, 700, 1 << 20]), one=st.booleans()
    )
    def read(self, chance: random.Random, max_bytes: int, one: bool) -> None:
        offset = chance.randint(self.start, self.end)
        bound = chance.randint(offset, self.end)
        wanted = [stored for stored in self.visible() if stored.last >= offset and stored.base < bound]
        if wanted and wanted[-1].last >= bound:
            wanted.pop()  # a bound inside of a batch keeps all of it back
        found = self.log.read(offset, max_bytes, bound, one).records
        data = found if isinstance(found, bytes) else found.read()
        assert len(data) == len(found)
        everything = b"".join(stored.data for stored in wanted)
        assert everything.startswith(data)
        if wanted and (one or max_bytes >= len(wanted[0].data)):
            assert len(data) >= min(len(wanted[0].data), max(max_bytes, len(wanted[0].data)))
            assert len(data) <= max(max_bytes, len(wanted[0].data))
        for header, _, batch in read_batches(data):
            check_crc(batch, header)

    @rule()
    def read_everything(self) -> None:
        offset, found = self.start, b""
        while offset < self.end:
            records = self.log.read(offset, 500).records
            data = records if isinstance(records, bytes) else records.read()
            whole = list(read_batches(data))
            if not whole:
                break
            offset = whole[-1].header.next_offset
            found += b"".join(bytes(batch.data) for batch in whole)
        assert found == b"".join(stored.data for stored in self.visible())

    @rule(offset=st.integers(-3, 300))
    def read_out_of_range(self, offset: int) -> None:
        if not self.start <= offset <= self.end:
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, 100)

    @rule(back=st.integers(-10, 60))
    def find_timestamp(self, back: int) -> None:
        wanted = self.now - back
        records = [
            (record.timestamp, record.offset)
            for stored in self.visible()
            for record in stored.records
            if record.offset >= self.start
        ]
        found = self.log.offset_for_timestamp(wanted)
        expected = next(((time, offset) for time, offset in records if time >= wanted), None)
        assert (found and found[:2]) == expected
        newest = self.log.latest_timestamp()
        if newest is not None and not self.started_over and not self.compacted_below:
            most = max(time for time, _ in records)
            assert newest[:2] == next((time, offset) for time, offset in records if time == most)

    @invariant()
    def epochs_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        known = self.visible()
        for stored in known:
            assert self.log.epoch_at(max(stored.base, self.start)) == stored.epoch
        for epoch in {stored.epoch for stored in known}:
            later = [stored.base for stored in self.history if stored.epoch > epoch]
            found = self.log.end_offset_for_epoch(epoch)
            assert found.leader_epoch == epoch
            last = max(stored.last for stored in self.history if stored.epoch == epoch) + 1
            assert last <= found.end_offset <= (later[0] if later else self.end)

    @invariant()
    def transactions_agree(self) -> None:
        """What is undecided below a high watermark that follows the end at some distance, and all that was aborted."""
        if not hasattr(self, "log"):
            return
        behind = (0, 1, 3, 8)[self.now % 4]
        if self.started_over:
            return
        high_watermark = self.high_watermark = max(self.high_watermark, self.end - behind)
        open_at = [stored.base for stored in self.undecided()]
        first: dict[int, int] = {}
        aborted: list[tuple[int, int]] = []
        for stored in self.history:
            if stored.marker is None and stored.transactional:
                first.setdefault(stored.producer, stored.base)
            elif stored.marker is not None and stored.producer in first:
                begun = first.pop(stored.producer)
                if stored.base >= high_watermark:
                    open_at.append(begun)
                if not stored.marker:
                    aborted.append((stored.producer, begun))
        assert self.log.last_stable_offset(high_watermark) == min([high_watermark, *open_at])
        found = self.log.aborted_transactions(0, self.end + 1)
        if not self.compacted_below:
            assert [row[:2] for row in found] == aborted
        for stored in self.history:
            if stored.records and stored.marker is None and stored.transactional:
                is_reported = any(
                    row.producer_id == stored.producer and row.first_offset <= stored.base < row.last_offset
                    for row in found
                )
                assert is_reported == self.was_aborted(stored)

    def written_by(self, producer: int) -> list[Stored]:
        """A producer's batches that the log's start left whole."""
        return [s for s in self.visible() if s.producer == producer and s.marker is None and s.base >= self.start]

    @invariant()
    def producers_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        found = {row.producer_id: row.last_sequence for row in self.log.active_producers()}
        for producer, following in self.sequences.items():
            if self.written_by(producer) or not self.started_over:
                assert found[producer] == following - 1


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
        """What went is gone, what did not is there, and the cut can be made again."""
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
            self.append([(2, 10, Codec.NONE, -1, False, 0)])
        else:
            # What was not made durable may be undone.
            self.history, self.written, self.end = before
            self.lose_power(seed)

    def ended_at(self, end: int) -> None:
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
        """A prefix is left, at least up to the last flush; the checkpoint was durable when it was written."""
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
