# pyright: reportPrivateUsage=false
"""Compares what a log keeps beside its batches with them: leader epochs, producers, snapshots, indexes, aborted transactions.

Each is computed again from one walk over the batches, and compared. A walk costs as much as the log is long, so it is made
where these are cut or made again (truncation, restart, a new leader epoch), and after each SAMPLED-th change else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from linearizability.simulation.world import Violation
from reference.protocol.errors import KafkaError
from reference.protocol.primitives import NO_OFFSET, NO_TIMESTAMP, Offset, ProducerId
from reference.protocol.records.batch import CONTROL, TRANSACTIONAL, BatchHeader, read_header
from reference.protocol.records.errors import RecordsError
from reference.storage.checkpoints import LEADER_EPOCHS, RECOVERY_POINTS, read_lines, read_offsets
from reference.storage.errors import CorruptFile, StorageError
from reference.storage.log import Log
from reference.storage.producer_state import CACHED_BATCHES, Producer, _read_snapshot, marker_of
from reference.storage.segment import Segment
from reference.storage.transaction_index import AbortedTransaction

EVENTS = frozenset({"Truncate", "Restart", "BecomeLeader", "BecomeFollower", "StartOver"})
"""Steps of a replica after which its whole log is compared."""
CUTS = frozenset({"Truncate", "StartOver"})
"""Those which the recovery point on the disk must not be beyond."""
SAMPLED = 512
"""Of a node's other replica changes, one in this many is compared."""
SNAPSHOTS_COMPARED = 2
"""The number of newest producer snapshots that are compared with the batches below them."""


class Stored(NamedTuple):
    """One batch of a segment's file."""

    position: int
    header: BatchHeader
    data: memoryview


class Sequences(NamedTuple):
    """A batch of a producer: its sequence numbers and offsets."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int


class Written:
    """A producer's state by the batches."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "start", "timestamp")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[Sequences] = deque(maxlen=CACHED_BATCHES)
        self.coordinator_epoch = -1
        self.timestamp = -1
        self.start = NO_OFFSET
        """Start of its open transaction."""

    @property
    def summary(self) -> tuple[int, Sequences | None, int, int, int]:
        """Return what a snapshot keeps of it."""
        last = self.batches[-1] if self.batches else None
        return self.epoch, last, self.timestamp, self.coordinator_epoch, self.start


Summaries = dict[int, tuple[int, Sequences | None, int, int, int]]


class Walk:
    """The state that results from a log's batches, from its start on."""

    def __init__(self, log: Log, snapshots: list[Offset]) -> None:
        """`snapshots` are offsets at which the producers are remembered. Errors: RecordsError."""
        self.start = log.log_start_offset
        self.segments: list[tuple[Segment, list[Stored]]] = []
        self.epochs: list[tuple[int, int]] = []
        self.producers: dict[ProducerId, Written] = {}
        self.aborted: list[AbortedTransaction] = []
        self.at: dict[int, Summaries] = {}
        """Offset -> the producers below it."""
        self._snapshots = snapshots
        self.is_complete = self.start == 0 and log._bases[0] == 0
        """Whether nothing was ever deleted, so that all producers are known from their first batches on."""
        next_offset = self.start
        for segment in log._segments:
            batches = [*stored_in(segment)]
            self.segments.append((segment, batches))
            for batch in batches:
                header = batch.header
                if header.next_offset > self.start:
                    self.is_complete &= header.base_offset == next_offset
                    next_offset = header.next_offset
                    self._take(header, batch.data)
        self.end = next_offset

    def _take(self, header: BatchHeader, data: memoryview) -> None:
        base = header.base_offset
        if not self.epochs or self.epochs[-1][0] != header.leader_epoch:
            self.epochs.append((header.leader_epoch, max(base, self.start)))
        if base in self._snapshots:
            self._remember(base)
        if header.producer_id < 0 or base < self.start:
            return
        marker = marker_of(header, data)
        if marker is None and header.attributes & CONTROL:
            return
        written = self.producers.get(header.producer_id)
        if written is None:
            written = self.producers[header.producer_id] = Written(header.producer_epoch)
        elif written.epoch != header.producer_epoch:
            written.epoch = header.producer_epoch
            written.batches.clear()
        written.timestamp = header.max_timestamp
        if marker is None:
            written.batches.append(Sequences(header.base_sequence, header.last_sequence, base, header.last_offset))
            if header.attributes & TRANSACTIONAL and written.start < 0:
                written.start = base
            return
        written.coordinator_epoch = marker.coordinator_epoch
        start, written.start = written.start, NO_OFFSET
        if not marker.committed and start >= 0:
            others = [each.start for each in self.producers.values() if each.start >= 0]
            self.aborted.append(AbortedTransaction(header.producer_id, start, base, min(others, default=base + 1)))

    def _remember(self, offset: int) -> None:
        self.at[offset] = {producer: written.summary for producer, written in self.producers.items()}

    def at_end(self, offset: int) -> Summaries | None:
        """The producers below an offset at which they were to be remembered; None where no batch begins or ends there."""
        if offset == self.end:
            self._remember(offset)
        return self.at.get(offset)


def stored_in(segment: Segment) -> Iterator[Stored]:
    """Yield the batches of a segment's file. Errors: RecordsError."""
    data = memoryview(segment.file.read(0, segment.file.size))
    position = 0
    while position < len(data):
        header = read_header(data, position)
        yield Stored(position, header, data[position : position + header.size])
        position += header.size


def require_agreement(name: str, log: Log, is_cut: bool = False, is_compacted: bool = False) -> None:
    """Compare all that a log keeps with its batches; after a cut its recovery point on the disk, too. Errors: Violation."""
    if log._cut is not None or log._swap is not None or log._disk.failure is not None:
        return  # the disk has broken it off, and the log says so to who uses it
    try:
        snapshots = log._producers.snapshot_offsets()
        walk = Walk(log, snapshots[-SNAPSHOTS_COMPARED:])
        _Comparison(name, log, walk, snapshots).all(is_cut, is_compacted)
    except (RecordsError, CorruptFile, StorageError, KafkaError, OSError) as error:
        raise Violation("log-damaged", f"{name}: {error!r}") from error


class _Comparison:
    """Compares a log with one walk over its batches."""

    def __init__(self, name: str, log: Log, walk: Walk, snapshots: list[Offset]) -> None:
        self._name, self._log, self._walk, self._snapshots = name, log, walk, snapshots

    def all(self, is_cut: bool, is_compacted: bool) -> None:
        """Errors: Violation."""
        log = self._log
        self._require(log.recovery_point <= log.log_end_offset, "recovery-point-beyond-end", log.recovery_point)
        if is_cut:
            stored = read_offsets(log._disk, log.folder.parent / RECOVERY_POINTS).get((log.topic, log.partition), 0)
            self._require(stored <= log.log_end_offset, "recovery-point-beyond-end", f"{stored} on the disk")
        for segment, batches in self._walk.segments:
            self._compare_indexes(segment, batches)
        if not is_compacted:
            self._compare_epochs()
            self._compare_producers()
            self._compare_aborted()

    # ---- indexes

    def _compare_indexes(self, segment: Segment, batches: list[Stored]) -> None:
        newest, newest_offset = NO_TIMESTAMP, segment.base_offset
        positions: dict[int, int] = {}
        newest_at: dict[int, int] = {}
        for batch in batches:
            header = batch.header
            positions[header.last_offset] = batch.position
            if header.max_timestamp > newest:
                newest, newest_offset = header.max_timestamp, header.last_offset
            newest_at[header.last_offset] = newest
        before = -1
        for slot in range(segment.offset_index.count):
            offset, position = segment.offset_index.entry(slot)
            text = f"entry {slot} of {segment.offset_index.path.name} says that {offset} ends the batch at {position}"
            self._require(positions.get(offset) == position and offset > before, "index-disagrees", text)
            before = offset
        before_at = (NO_TIMESTAMP, NO_OFFSET)
        for slot in range(segment.time_index.count):
            timestamp, offset = segment.time_index.entry(slot)
            text = f"entry {slot} of {segment.time_index.path.name} says that {timestamp} is the newest up to {offset}"
            is_right = newest_at.get(offset) == timestamp or (timestamp == -1 and offset == segment.base_offset)
            self._require(is_right and (timestamp, offset) > before_at, "index-disagrees", text)
            before_at = (timestamp, offset)
        kept = (segment.max_timestamp, segment.max_timestamp_offset)
        if batches:
            text = f"the segment at {segment.base_offset} takes {kept} for its newest timestamp, which is {newest, newest_offset}"
            self._require(kept == (newest, newest_offset), "index-disagrees", text)

    # ---- leader epochs

    def _compare_epochs(self) -> None:
        log = self._log
        entries = log._epochs.entries
        inside = [entry for entry in entries if entry[1] < log.log_end_offset]
        rest = entries[len(inside) :]
        text = f"{entries}, where the batches say {self._walk.epochs} up to {log.log_end_offset}"
        self._require(inside == self._walk.epochs and len(rest) <= 1, "epochs-disagree", text)
        epochs = [epoch for epoch, _ in entries]
        self._require(epochs == sorted({*epochs}), "epochs-disagree", text)
        written = [(int(epoch), int(start)) for epoch, start in read_lines(log._disk, log.folder / LEADER_EPOCHS, 2)]
        rest = entries[len(written) :]  # epochs of records that were not flushed: recovery reads them in the batches
        text = f"{entries} in memory, {written} on the disk, flushed up to {log.recovery_point}"
        is_right = written + rest == entries and all(start >= log.recovery_point for _, start in rest)
        self._require(is_right, "epochs-disagree", text)
        latest = entries[-1] if entries else (-1, -1)
        self._require(
            log.leader_epoch == latest[0], "epochs-disagree", f"{entries}, and the latest is {log.leader_epoch}"
        )

    # ---- producers

    def _compare_producers(self) -> None:
        state, walk = self._log._producers, self._walk
        for producer_id, written in walk.producers.items():
            producer = state.producers.get(producer_id)
            if producer is None:
                self._broken("producers-disagree", f"producer {producer_id} is forgotten")
            kept, ours = _summary_of(producer), written.summary
            text = f"producer {producer_id} is {kept}, and its batches say {ours}"
            is_deleted = ours[1] is None and not walk.is_complete
            same = (kept[0], kept[2]) == (ours[0], ours[2]) and (kept[1] == ours[1] or is_deleted)
            self._require(same, "producers-disagree", text)
            self._require(ours[3] in (-1, kept[3]), "producers-disagree", text)
            self._require(self._starts_agree(kept[4], ours[4]), "producers-disagree", text)
            known = [Sequences(*batch[:4]) for batch in producer.batches]
            text = f"of producer {producer_id} are known {known}, and its batches are {[*written.batches]}"
            ending = [*written.batches][-len(known) :] if known else []
            is_right = ending == known[-len(ending) :] if ending else not known or is_deleted
            self._require(is_right, "producers-disagree", text)
        if walk.is_complete:
            unknown = {*state.producers} - {*walk.producers}
            self._require(not unknown, "producers-disagree", f"no batch is of the producers {sorted(unknown)}")
        ongoing = {each.transaction_start for each in state.producers.values() if each.transaction_start >= 0}
        text = f"open transactions at {sorted(ongoing)}, and {[*state._ongoing]} hold back readers"
        self._require([*state._ongoing] == sorted(ongoing), "transactions-disagree", text)
        text = f"markers {[*state._undecided]} are noted, and the log ends at {self._log.log_end_offset}"
        is_within = all(marker < self._log.log_end_offset for _, marker in state._undecided)
        self._require(is_within, "transactions-disagree", text)
        self._compare_snapshots()

    def _starts_agree(self, kept: int, ours: int) -> bool:
        """A transaction may have begun with a batch that was deleted since."""
        return kept == ours or (not self._walk.is_complete and 0 <= kept < self._walk.start <= ours)

    def _compare_snapshots(self) -> None:
        log, walk, state = self._log, self._walk, self._log._producers
        beyond = [offset for offset in self._snapshots if offset > log.log_end_offset]
        text = f"producer snapshots {beyond} of a log that ends at {log.log_end_offset}"
        self._require(not beyond, "snapshots-disagree", text)
        if not walk.is_complete:
            return
        for offset in self._snapshots[-SNAPSHOTS_COMPARED:]:
            ours = walk.at_end(offset)
            if ours is None:
                continue
            kept = {
                producer_id: _summary_of(producer)
                for producer_id, producer in _read_snapshot(log._disk.read_file(state.snapshot_path(offset)))
            }
            text = f"the snapshot at {offset} has {kept}, and the batches say {ours}"
            self._require(kept == ours, "snapshots-disagree", text)

    # ---- aborted transactions

    def _compare_aborted(self) -> None:
        kept = [entry for segment, _ in self._walk.segments for entry in segment.transaction_index.entries]
        ours = self._walk.aborted
        text = f"{kept}, and the markers say {ours}"
        if self._walk.is_complete:
            self._require(kept == ours, "transactions-disagree", text)
        else:
            # A transaction may have begun in a batch below the log's start (DeleteRecords), which the walk leaves out.
            begun_before = {(each[0], each[2]) for each in kept if each.first_offset < self._walk.start}
            known = {each[:3] for each in kept}
            is_kept = all(each[:3] in known or (each[0], each[2]) in begun_before for each in ours)
            self._require(is_kept, "transactions-disagree", text)
        for segment, batches in self._walk.segments:
            bound = batches[-1].header.next_offset if batches else segment.base_offset
            is_own = all(
                segment.base_offset <= entry.last_offset < bound for entry in segment.transaction_index.entries
            )
            self._require(is_own, "transactions-disagree", text)

    # ----

    def _require(self, holds: bool, rule: str, text: object) -> None:
        if not holds:
            self._broken(rule, text)

    def _broken(self, rule: str, text: object) -> NoReturn:
        raise Violation(rule, f"{self._name}, from {self._log.log_start_offset} to {self._log.log_end_offset}: {text}")


def _summary_of(producer: Producer) -> tuple[int, Sequences | None, int, int, int]:
    last = Sequences(*producer.batches[-1][:4]) if producer.batches else None
    return producer.epoch, last, producer.last_timestamp, producer.coordinator_epoch, producer.transaction_start
