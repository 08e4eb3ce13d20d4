"""A log beside a model of it: a list of batches that knows no files.

Hypothesis draws the steps: appends, transactions, reads, rolls, retention, truncation, flushes, compaction, full disks,
crashes, power failures. After each step the log's results equal the model's; after a crash it has everything, after a power
failure a prefix, at least up to the last flush.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from reference.protocol.primitives import FIRST_EPOCH, FIRST_OFFSET, Offset, ProducerEpoch, ProducerId, TimestampMs
from reference.protocol.records.batch import Batch, BatchProducer, build, read_batches
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
from reference.storage.recovery import PreviousRun
from reference.storage.segment_list import LogIdentity
from tests.storage.compared_log import ComparedLog
from tests.storage.log_model import START, TOMBSTONES_STAY_MS, Stored, plain

BATCH = st.tuples(
    st.integers(1, 4),
    st.sampled_from([0, 10, 90]),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
    st.sampled_from([-1, -1, 1, 2]),
    st.booleans(),
    st.integers(-20, 50),
)
"""Records, their size, codec, producer (-1: none), whether in a transaction, how their timestamps jump."""
DrawnBatch = tuple[int, int, Codec, ProducerId, bool, int]


class LogMachine(ComparedLog):
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
        """Whether the run deletes nothing, so that all transactions stay comparable."""
        self.now = START
        self.history = []
        """All batches up to the end, those below the log's start among them, as the log holds them."""
        self.written = []
        """The same as they were written, with those that compaction removed."""
        self.keys = keys
        self.job: tuple[Cleaning, Iterator[int]] | None = None
        self.met = {}
        """Tombstone -> the time of its first compaction: its delete horizon is no earlier."""
        self.clean_to = self.compacted_below = self.settled_below = FIRST_OFFSET
        """The end of the last whole compaction, and the largest offset that one has read."""
        self.start = self.end = FIRST_OFFSET
        self.epoch = FIRST_EPOCH
        self.sequences = {}
        self.high_watermark = FIRST_OFFSET
        """The highest one given to the log; after a restart it must not get a lower one than its end."""
        self.started_over = False
        """Records below the log's start have gone: producers whose state went with them are not compared."""
        self.checkpoint = (FIRST_OFFSET, FIRST_OFFSET)
        self.open(clean=False)

    def open(self, clean: bool) -> None:
        recovery_point, log_start = self.checkpoint
        self.log = Log(
            self.disk,
            self.folder / "t-0",
            self.config,
            self.now,
            LogIdentity("t", 0),
            PreviousRun(log_start, recovery_point, clean),
        )
        self.log.checkpoint = self.write_checkpoint

    def record(self, index: int, time: TimestampMs, size: int) -> Record:
        """A record with a repeated key; every fifth is a tombstone, and all values differ."""
        offset = self.end + index
        value = None if offset % 5 == 4 else offset.to_bytes(3, "big") + bytes(size)
        return Record(Offset(index), time, b"k%d" % (offset * offset % self.keys), value)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            del self.log
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- growing

    @rule(batches=st.lists(BATCH, min_size=1, max_size=5))
    def append(self, batches: list[DrawnBatch]) -> None:
        for batch in batches:
            self.append_one(*batch)

    @rule(batches=st.lists(BATCH, min_size=1, max_size=3), producer=st.sampled_from([1, 2]), commit=st.booleans())
    def transaction(self, batches: list[DrawnBatch], producer: ProducerId, commit: bool) -> None:
        for count, size, codec, _, _, jump in batches:
            self.append_one(count, size, codec, producer, True, jump)
        self.end_transaction(producer, commit)

    def append_one(
        self, count: int, size: int, codec: Codec, producer: ProducerId, transactional: bool, jump: int
    ) -> None:
        self.now += 1
        records = [self.record(index, self.now + jump * index, size) for index in range(count)]
        open_transactions = {stored.producer for stored in self.undecided()}
        transactional = (transactional or producer in open_transactions) and producer >= 0
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        epoch = ProducerEpoch(0 if producer >= 0 else -1)
        batch = build(
            records, codec=codec, producer=BatchProducer(producer, epoch, sequence, transactional=transactional)
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
    def end_transaction(self, producer: ProducerId, commit: bool) -> None:
        self.now += 1
        batch = build_end_transaction(EndTransaction(commit, FIRST_EPOCH), producer, ProducerEpoch(0), self.now)
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
        """Append batches of a leader whose log was compacted: offsets may have gaps."""
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
        """Count the producers' sequence numbers in the remaining batches."""
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
        id = ProducerId(1)
        producer = BatchProducer(id, ProducerEpoch(0), self.sequences.get(id, 0) + 7)
        batch = build([Record(FIRST_OFFSET, self.now, b"k", b"v")], producer=producer)
        known = {producer.producer_id for producer in self.log.active_producers()}
        if id in known:
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
    def compact_again_and_again(self, written: list[DrawnBatch]) -> None:
        """Compact twice: the second compaction reads the same batches again."""
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
            log.checkpoint()
            self.compacted_below = max(self.compacted_below, section.end)
            self.settled_below = self.high_watermark
            self.meet_tombstones(section.end)
            cleaning = Cleaning(log, section, self.now, 600)
            self.job = cleaning, cleaning.steps()

    def meet_tombstones(self, end: Offset) -> None:
        for stored in self.history:
            for record in stored.records:
                if record.value is None and record.offset < end:
                    self.met.setdefault(record.offset, self.now)

    def adopt(self) -> None:
        """Take the compacted log into the model: its records were written, and each missing one has a reason."""
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

    def batches_from(self, offset: Offset) -> list[Batch]:
        found: list[Batch] = []
        while offset < self.end:
            records = self.log.read(offset, 500).records
            whole = list(read_batches(records if isinstance(records, bytes) else records.read()))
            if not whole:
                break
            offset = whole[-1].header.next_offset
            found += whole
        return found

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
    def start_over(self, offset: Offset) -> None:
        self.log.truncate_fully_and_start_at(offset, self.now)
        self.begins_empty(offset)

    def begins_empty(self, offset: Offset) -> None:
        self.history, self.written, self.sequences, self.started_over = [], [], {}, False
        self.clean_to = self.compacted_below = self.settled_below = offset
        self.met = {}
        self.start = self.end = offset
        self.reloaded()

    # ---- ends

    @precondition(lambda self: not self.disk_is_full())
    @rule()
    def restart(self) -> None:
        """Stop cleanly and start again."""
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
        """Kill the process: everything that was written is kept."""
        self.open(clean=False)
        if self.visible():  # a log that ends in a gap below its start begins again, and loses what no reader could see
            assert self.log.lost_bytes == 0
        self.reopened()

    def forget_from(self, end: Offset) -> None:
        while self.written and self.written[-1].last >= end:
            self.written.pop()
        self.met = {offset: at for offset, at in self.met.items() if offset < end}

    def reopened(self) -> None:
        """Check that all batches are kept. An end in a gap is lost, and so is a log start without a checkpoint."""
        self.job = None
        written = self.history[-1].last + 1 if self.history else FIRST_OFFSET
        assert min(written, self.end) <= self.log.log_end_offset <= self.end
        assert self.log.log_start_offset <= self.start
        self.start, self.end = self.log.log_start_offset, self.log.log_end_offset
        self.reloaded()
        self.adopt()

    # ---- what holds after every step

    def sync_parents(self) -> None:
        """Make the data folder itself durable."""

    def disk_is_full(self) -> bool:
        return False
