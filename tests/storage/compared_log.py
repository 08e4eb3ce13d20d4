"""The results of a log, compared with those of its model after each step."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reference.protocol.primitives import FIRST_OFFSET, Offset, ProducerId, TimestampMs
from reference.protocol.records.batch import check_crc, read_batches
from reference.storage.errors import OffsetOutOfRange
from reference.storage.log import Log
from tests.storage.log_model import TOMBSTONES_STAY_MS, Plain, Stored


class ComparedLog(RuleBasedStateMachine):
    """A log, its model, and the steps that change neither. `LogMachine` documents its attributes."""

    log: Log
    now: TimestampMs
    start: Offset
    end: Offset
    history: list[Stored]
    written: list[Stored]
    met: dict[Offset, TimestampMs]
    compacted_below: Offset
    sequences: dict[ProducerId, int]
    high_watermark: Offset
    started_over: bool

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
        """Whether the transaction of a batch was aborted."""
        ends = (
            each.marker
            for each in self.written
            if each.producer == stored.producer and each.marker is not None and each.base > stored.base
        )
        return next(ends, None) is False

    def check_end(self) -> None:
        assert self.log.log_end_offset == self.end

    def visible(self) -> list[Stored]:
        return [stored for stored in self.history if stored.last >= self.start]

    def undecided(self) -> list[Stored]:
        """The first batch of each open transaction."""
        opened: dict[ProducerId, Stored] = {}
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
        offset = Offset(chance.randint(self.start, self.end))
        bound = Offset(chance.randint(offset, self.end))
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
    def read_out_of_range(self, offset: Offset) -> None:
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
        """Compare open transactions below a high watermark behind the end, and all aborted transactions."""
        if not hasattr(self, "log"):
            return
        behind = (0, 1, 3, 8)[self.now % 4]
        if self.started_over:
            return
        high_watermark = self.high_watermark = max(self.high_watermark, self.end - behind)
        open_at = [stored.base for stored in self.undecided()]
        first: dict[ProducerId, Offset] = {}
        aborted: list[tuple[ProducerId, Offset]] = []
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
        found = self.log.aborted_transactions(FIRST_OFFSET, self.end + 1)
        if not self.compacted_below:
            assert [row[:2] for row in found] == aborted
        for stored in self.history:
            if stored.records and stored.marker is None and stored.transactional:
                is_reported = any(
                    row.producer_id == stored.producer and row.first_offset <= stored.base < row.last_offset
                    for row in found
                )
                assert is_reported == self.was_aborted(stored)

    def written_by(self, producer: ProducerId) -> list[Stored]:
        """A producer's batches that lie whole above the log start offset."""
        return [s for s in self.visible() if s.producer == producer and s.marker is None and s.base >= self.start]

    @invariant()
    def producers_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        found = {row.producer_id: row.last_sequence for row in self.log.active_producers()}
        for producer, following in self.sequences.items():
            if self.written_by(producer) or not self.started_over:
                assert found[producer] == following - 1
