"""Opening a partition's log folder when the broker starts, after a clean shutdown or a crash.

A clean shutdown has flushed all files, and opening reads a few kilobytes of each segment. After a crash the segments from the
recovery point on are read: their indexes are rebuilt from their batches, and the log is truncated at the first damaged batch,
or at the first gap between segments. Older segments were flushed, with their indexes, before the recovery point moved past
them. They are read too where their indexes do not match their batches: otherwise a wrong position would be taken for the log
end, and a wrong timestamp would let retention delete young records.

Nothing is truncated after a clean shutdown, nor below the recovery point after a crash. That data was whole on disk, so damage
there came later and must not remove acknowledged records in silence. After a clean shutdown the caller runs `check` before the
start changes anything. Where it finds damage, the broker does not start until an operator decides. Apache Kafka fails too, but
only where it meets a batch that is too small, and only once: its next start treats the shutdown as a crash, and truncates. To
Kafka a missing log file is an empty one. Here the remaining files show that it is missing: its indexes, `segment-checksums`, the
recovery point.

Recovery assumes no order in which writes reached the disk before a crash, beyond the promises of `Disk`. A gap between two
segments is a loss: each segment begins at the end of the one before, unless the indexes there cannot express its first batch, and
then all before the gap is made durable first. Compaction may have removed a segment's last records, so a gap is accepted in a
compacted log, and after a flushed segment with matching indexes. Compaction stays below the recovery point here; Apache Kafka
compacts above it too, so in its folders any gap is accepted.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from reference.protocol.primitives import FIRST_OFFSET, NO_EPOCH, LeaderEpoch, Offset, TimestampMs
from reference.protocol.records.batch import BatchHeader, check_crc
from reference.protocol.records.errors import RecordsError
from reference.storage.checkpoints import CLEAN_SHUTDOWN, LEADER_EPOCHS, LOG_START_OFFSETS, read_topic_id
from reference.storage.config import LogConfig
from reference.storage.disk import TEMPORARY, Disk, File
from reference.storage.epoch_cache import EpochCache
from reference.storage.errors import CorruptFile
from reference.storage.index_check import has_indexes, sound_end
from reference.storage.index_search import last_slot_up_to
from reference.storage.producer_state import ProducerState, marker_of, snapshots_of
from reference.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    StoredBatch,
    batches_of,
    file_name,
)
from reference.storage.segment_checksums import NO_CHECKSUMS, SEGMENT_CHECKSUMS, SegmentChecksum
from reference.storage.snapshot_check import load_producers
from reference.storage.swaps import complete_swaps


class Loaded(NamedTuple):
    """A log after recovery; its last segment is active."""

    segments: list[Segment]
    log_start: Offset
    log_end: Offset
    recovered_bytes: int
    """Bytes of log files that recovery read and kept."""
    lost_bytes: int
    """Bytes of log files that were truncated or removed."""
    repairs: list[str]
    """A sentence for each damaged transaction index or epoch checkpoint that was rebuilt."""


class PreviousRun(NamedTuple):
    """What a log's previous run left in the checkpoints and the clean shutdown file."""

    log_start: Offset = FIRST_OFFSET
    recovery_point: Offset = FIRST_OFFSET
    """All records below it were flushed."""
    clean: bool = False
    """Whether the shutdown was clean."""
    checksums: Mapping[Offset, SegmentChecksum] | None = NO_CHECKSUMS
    """The checksums of flushed segments, by base offset; None for a folder that Apache Kafka wrote. There recovery may truncate
    below the recovery point, which Kafka lowers only after it has truncated. It may find gaps above: Kafka compacts there."""


def load(
    disk: Disk,
    folder: Path,
    config: LogConfig,
    epochs: EpochCache,
    producers: ProducerState,
    previous: PreviousRun,
    now: TimestampMs,
) -> Loaded:
    """Open the segments of a folder, and finish or undo what the previous run left unfinished.

    Errors: OSError; CorruptFile where data that the previous run had flushed is damaged.
    """
    log_start, recovery_point, clean, checksums = previous
    found = disk.list_folder(folder)
    names = complete_swaps(disk, folder, found)
    check_files(disk, folder, names, checksums or NO_CHECKSUMS, clean)
    names = remove_leftovers(disk, folder, names)
    bases = [Offset(int(name[: -len(LOG_SUFFIX)])) for name in names if name.endswith(LOG_SUFFIX)]
    recovery = _Recovery(disk, folder, config, epochs, producers, previous, now)
    segments = recovery.open_segments(bases)
    log_end = segments[-1].next_offset() if segments else log_start
    if log_end < recovery_point and checksums is not None:
        raise _loss(folder, f"it ends at {log_end}, and was flushed up to {recovery_point}")
    if log_end < log_start:
        # All remaining records are below the log start offset: a crash lost the newer ones.
        for segment in segments:
            recovery.remove(segment)
        segments, log_end = [], log_start
    if not segments:
        segments = [Segment(disk, folder, log_start, now)]
    log_start = max(log_start, segments[0].base_offset)
    recovery.remove_stray_snapshots(snapshots_of(names), segments, log_end)
    if recovery.lost_bytes or (bases and not clean and disk.list_folder(folder) != found):
        # A removed file must not return after another crash. The first flush makes the names of new files durable.
        disk.sync_folder(folder)
    recovery.check_epochs(segments, log_end)
    epochs.truncate_from_end(log_end)
    epochs.truncate_from_start(log_start)
    recovery.restore_epochs(segments, log_start, log_end)
    recovery.rebuild_producers(segments, log_end)
    segments[-1].activate(config.segment_index_bytes)
    return Loaded(segments, log_start, log_end, recovery.recovered_bytes, recovery.lost_bytes, recovery.repairs)


def check(
    disk: Disk,
    folder: Path,
    now: TimestampMs,
    checksums: Mapping[Offset, SegmentChecksum] = NO_CHECKSUMS,
    log_start: Offset = FIRST_OFFSET,
) -> None:
    """Check the segments of a log after a clean shutdown. It changes nothing.

    A segment whose indexes match its batches is accepted. In any other, all batches are read and their CRCs checked. The log does
    not end below `log_start`, or a start would remove all of it.
    Errors: OSError; CorruptFile, which names file and position.
    """
    read_topic_id(disk, folder)
    log_end: Offset | None = None
    names = disk.list_folder(folder)
    for name in sorted(names):
        if name.endswith(LOG_SUFFIX):
            base = Offset(int(name[: -len(LOG_SUFFIX)]))
            if log_end is not None and log_end > base:
                raise _overlap(folder / name, log_end)
            log_end = _sound_end_of(disk, folder, base, now) if has_indexes(disk, folder, base) else None
            if log_end is None:
                log_end = _check_batches(disk.open_file(folder / name), folder / name, base)
    check_files(disk, folder, names, checksums, clean=True)
    if log_end is not None and log_end < log_start:
        raise CorruptFile(
            f"{folder} ends at offset {log_end}, and begins at {log_start} by {LOG_START_OFFSETS}: restore that file, or remove"
            " its line, and deleted records are served again whose segments are left"
        )


def check_files(
    disk: Disk, folder: Path, names: Sequence[str], checksums: Mapping[Offset, SegmentChecksum], clean: bool
) -> None:
    """Check that every flushed log file exists, with the flushed contents. `names` are the folder's.

    A deletion renames the log file first and then its indexes, so indexes beside a renamed log file are no error. After a crash
    segments below the oldest remaining one may be missing: retention removed them, or the log started over. A log file renamed
    for deletion does not count as remaining: it may be older than segments that were removed when the log started over.

    Errors: OSError; CorruptFile, which names the file.
    """
    stems = {name.partition(".")[0] for name in names if LOG_SUFFIX in name}
    for name in names:
        stem, _, ending = name.partition(".")
        if "." + ending in INDEX_SUFFIXES and stem not in stems:
            raise CorruptFile(
                f"{folder / stem}{LOG_SUFFIX} is gone, and its index {name} is there: restore the log file, or remove the index"
            )
    left = [name for name in names if name.endswith((LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX))]
    oldest = min((int(name.partition(".")[0]) for name in left), default=0)
    for base, checksum in checksums.items():
        name = file_name(base, LOG_SUFFIX)
        if name in names:
            if not checksum.fits(disk.open_file(folder / name)):
                raise _loss(folder, f"{name} is not the file of {checksum.log_bytes} bytes that was flushed")
        elif clean or (file_name(base, "") not in stems and base >= oldest):
            raise _loss(folder, f"{name} is gone")


def _loss(folder: Path, what: str) -> CorruptFile:
    return CorruptFile(
        f"{folder}: {what}. Restore it; or, if other replicas have its records, remove the folder; or accept the loss and remove"
        f" {CLEAN_SHUTDOWN} and {SEGMENT_CHECKSUMS} from {folder.parent}: the next start recovers all its logs as after a crash"
    )


def _overlap(path: Path, end: Offset) -> CorruptFile:
    """The error for a segment that begins before the previous one ends; no crash can cause that."""
    return CorruptFile(
        f"{path} begins before offset {end}, where the segment before it ends: these are not files of one log. Restore them;"
        " or, if other replicas have the log's records, remove the folder"
    )


def _sound_end_of(disk: Disk, folder: Path, base: Offset, now: TimestampMs) -> Offset | None:
    try:
        return sound_end(Segment(disk, folder, base, now))
    except CorruptFile:
        return None


def _check_batches(file: File, path: Path, base: Offset) -> Offset:
    """The segment's end offset. Errors: CorruptFile."""
    position, end = 0, base
    try:
        for batch in _whole_batches(file, base):
            position, end = batch.position + len(batch.data), batch.header.next_offset
    except (RecordsError, CorruptFile) as error:
        raise _damaged(path, position, file.size, error) from error
    return end


def _damaged(path: Path, position: int, size: int, error: RecordsError | CorruptFile) -> CorruptFile:
    return CorruptFile(
        f"{path} was whole when it was flushed, and is damaged at byte {position} of {size}: {error}. Restore it; or"
        f" accept the loss and remove {CLEAN_SHUTDOWN} and {SEGMENT_CHECKSUMS} from {path.parent.parent}: the next start"
        " recovers all its logs as after a crash, and truncates this one there"
    )


def _whole_batches(file: File, base: Offset) -> Iterator[StoredBatch]:
    """A log file's batches, up to the first damaged or out-of-order one. Errors: RecordsError, CorruptFile."""
    expected = base
    for batch in batches_of(file):
        header = batch.header
        check_crc(batch.data, header)
        if (
            header.base_offset < expected
            or header.last_offset_delta < 0
            or header.last_offset - base > MAX_RELATIVE_OFFSET
        ):
            # The checksum does not cover the base offset: a flipped bit can move it beyond what the indexes can express.
            raise CorruptFile(f"offset {header.base_offset} after {expected - 1}")
        yield batch
        expected = header.next_offset


def remove_leftovers(disk: Disk, folder: Path, names: Sequence[str]) -> list[str]:
    """Remove files that the previous run was writing or deleting: first indexes without a log file, then the rest.

    Renamed log files go last: if this is interrupted, they show the next start why indexes have no log file. `names` are the
    folder's; returns those that are left.
    """
    orphans = [
        name for name in names if name.endswith(INDEX_SUFFIXES) and name.partition(".")[0] + LOG_SUFFIX not in names
    ]
    unfinished = [name for name in names if name.endswith((TEMPORARY, DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX))]
    for name in (*orphans, *unfinished):
        disk.remove(folder / name)
    removed = {*orphans, *unfinished}
    return [name for name in names if name not in removed]


INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


class _Recovery:
    """The state of one `load`."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        config: LogConfig,
        epochs: EpochCache,
        producers: ProducerState,
        previous: PreviousRun,
        now: TimestampMs,
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.config = config
        self.epochs = epochs
        self.producers = producers
        self.log_start = previous.log_start
        self.recovery_point = previous.recovery_point
        self.clean = previous.clean
        self.is_kafkas = previous.checksums is None
        self.checksums = previous.checksums or NO_CHECKSUMS
        self.flushed_to = 0 if previous.checksums is None else previous.recovery_point
        """Damage below this offset is an error: nothing is truncated there."""
        self.now = now
        self.recovered_bytes = 0
        self.lost_bytes = 0
        self.repairs: list[str] = []
        self.without_transactions: set[Offset] = set()
        """Segments whose transaction index could not be read and was removed."""

    def open_segments(self, bases: list[Offset]) -> list[Segment]:
        """The segments of a folder up to the first damage or gap; later ones are removed.

        Errors: CorruptFile where a segment to be removed was flushed.
        """
        first_unflushed = last_slot_up_to(bases.__getitem__, len(bases), self.recovery_point)
        segments: list[Segment] = []
        for slot, base in enumerate(bases):
            flushed = self.clean or slot < first_unflushed
            is_indexed = flushed and has_indexes(self.disk, self.folder, base)
            segment = self._open(base)
            end = sound_end(segment) if is_indexed else None
            trusted = end is not None and self._has_its_transactions(segment)
            is_last = slot + 1 == len(bases)
            whole = trusted or self._recover(segment, segments, is_last)
            segments.append(segment)
            if is_last:
                break
            next_base = bases[slot + 1]
            may_have_gap = self.clean or trusted or self.is_kafkas or (flushed and self.config.compacts)
            if end is None or not trusted:
                end = segment.next_offset()
            is_overlapped = whole and end > next_base
            if is_overlapped and (self.clean or any(self._open(later).size for later in bases[slot + 1 :])):
                raise _overlap(self._open(next_base).path(LOG_SUFFIX), end)
            if not whole or is_overlapped or not (may_have_gap or self._follows(end, next_base)):
                if next_base < self.flushed_to:
                    raise _loss(self.folder, f"{end} to {next_base} are gone, and were flushed")
                for later in bases[slot + 1 :]:
                    self.remove(self._open(later))
                break
        return segments

    def _follows(self, end: Offset, base: Offset) -> bool:
        """Whether a segment begins where the previous one ends, or later because the indexes there had no room for its offset."""
        try:
            return base == end or self._open(base).header_at(0).last_offset - end > MAX_RELATIVE_OFFSET
        except RecordsError:
            return False

    def _open(self, base: Offset) -> Segment:
        try:
            return Segment(self.disk, self.folder, base, self.now)
        except CorruptFile:
            self.disk.remove(self.folder / file_name(base, TRANSACTION_INDEX_SUFFIX))
            self.without_transactions.add(base)
            return Segment(self.disk, self.folder, base, self.now)

    def _has_its_transactions(self, segment: Segment) -> bool:
        known, index = self.checksums.get(segment.base_offset), segment.transaction_index
        is_sound = segment.base_offset not in self.without_transactions and index.is_sound(segment.base_offset)
        if is_sound and (known is None or known.transactions == crc32(index.data)):
            return True
        self.repairs.append(f"{segment.transaction_index.path.name} is made again: it was damaged")
        return False

    def _recover(self, segment: Segment, before: list[Segment], is_last: bool) -> bool:
        """Read a segment, rebuild its indexes and truncate it after its last whole batch; False when there was damage.

        The indexes of the log's last segment keep the room that it needs as the active one.
        Errors: CorruptFile where nothing may be truncated.
        """
        self._rebuild_producers_to(segment.base_offset, before)
        segment.clear_indexes(self.config.segment_index_bytes)
        position, end, epoch = 0, segment.base_offset, NO_EPOCH
        whole = True
        try:
            for batch in _whole_batches(segment.file, segment.base_offset):
                header = batch.header
                if not self.config.may_lack_offsets:
                    _check_place(header, end, epoch)
                segment.index(
                    header.base_offset,
                    header.last_offset,
                    batch.position,
                    len(batch.data),
                    header.max_timestamp,
                    self.config.index_interval_bytes,
                )
                if header.leader_epoch > self.epochs.latest:
                    self.epochs.assign(header.leader_epoch, header.base_offset)
                # After a failed fsync the system may keep pages in its cache and mark them clean, so that a later fsync would
                # not write them. The same bytes are written again, so that the next flush writes them to the disk.
                segment.file.rewrite(batch.position, batch.data)
                marker = marker_of(header, batch.data)
                aborted = self.producers.aborted_by(header, marker, header.base_offset) if marker is not None else None
                if aborted is not None:
                    segment.transaction_index.append(aborted)
                self.producers.append(header, marker, header.base_offset, header.max_timestamp)
                position, end, epoch = batch.position + len(batch.data), header.next_offset, header.leader_epoch
        except (RecordsError, CorruptFile) as error:
            if self.clean or end < self.flushed_to:
                raise _damaged(segment.path(LOG_SUFFIX), position, segment.size, error) from error
            whole = False
            self.lost_bytes += segment.size - position
            segment.file.truncate(position)
        self.recovered_bytes += position
        if is_last:
            segment.note_largest_timestamp()
        else:
            segment.close()
        return whole

    def remove(self, segment: Segment) -> None:
        """Remove a segment's files, and count its bytes as lost."""
        self.lost_bytes += segment.size
        segment.remove()

    def check_epochs(self, segments: list[Segment], log_end: Offset) -> None:
        """Clear the epoch cache if it disagrees with the batches at the start of an epoch or at the log end.

        `restore_epochs` then rebuilds it from the batches.
        """
        starts = [start for _, start in self.epochs.entries]
        for offset in sorted({*starts, *(start - 1 for start in starts), log_end - 1}):
            header = _header_from(segments, offset) if offset < log_end else None
            known = NO_EPOCH if header is None else self.epochs.epoch_at(max(offset, header.base_offset))
            if header is not None and NO_EPOCH not in (known, header.leader_epoch) and known != header.leader_epoch:
                self.repairs.append(f"{LEADER_EPOCHS} had other epochs than the batches, and is made from them")
                self.epochs.clear()
                return

    def restore_epochs(self, segments: list[Segment], log_start: Offset, log_end: Offset) -> None:
        """Read from the batches the epochs below the first one that the epoch cache has.

        An advance of the log start offset drops entries durably. A crash can restore an older log start offset, and with it
        records below the first epoch in the cache.
        """
        known_from = self.epochs.known_from
        end = log_end if known_from is None else min(known_from, log_end)
        restored: list[tuple[LeaderEpoch, Offset]] = []
        for segment in segments:
            if log_start < end and segment.base_offset < end:
                for epoch, start in segment.epoch_starts(max(log_start, segment.base_offset), end):
                    if epoch > (restored[-1][0] if restored else NO_EPOCH):
                        restored.append((epoch, start))
        self.epochs.restore(restored)

    # ---- producers

    def remove_stray_snapshots(self, offsets: list[Offset], segments: list[Segment], log_end: Offset) -> None:
        """Remove producer snapshots beyond the log end. Of the others keep those at a segment's base offset and the newest."""
        kept = {segment.base_offset for segment in segments} | {log_end}
        for offset in offsets:
            if offset > log_end or (offset not in kept and offset != offsets[-1]):
                self.producers.remove_snapshot(offset)

    def rebuild_producers(self, segments: list[Segment], log_end: Offset) -> None:
        """Replay the producer state from the newest snapshot to the log end.

        No snapshot is taken: only a later start would use it, and a start after a crash would wait for the disk for each log.
        """
        self._rebuild_producers_to(log_end, segments)

    def _rebuild_producers_to(self, offset: Offset, segments: list[Segment]) -> None:
        if self.producers.end_offset != offset or not segments:
            load_producers(self.producers, segments, self.log_start, offset)
            replay(self.producers, segments, offset)


def _check_place(header: BatchHeader, end: Offset, epoch: LeaderEpoch) -> None:
    """Check the base offset and the leader epoch of a batch of the metadata log, which its CRC does not cover.

    In that log no offset is missing, and a leader's first batch is a control batch. `end` and `epoch` are those of the batch
    before. Errors: CorruptFile.
    """
    if header.base_offset != end:
        raise CorruptFile(f"a batch at offset {header.base_offset} follows the end {end}")
    if epoch not in (NO_EPOCH, header.leader_epoch) and not (header.is_control and header.leader_epoch > epoch):
        raise CorruptFile(f"a batch of leader epoch {header.leader_epoch} follows one of {epoch}")


def _header_from(segments: list[Segment], offset: Offset) -> BatchHeader | None:
    """The header of the batch that contains an offset, or of the next one. Errors: CorruptBatch."""
    for slot, segment in enumerate(segments):
        if slot + 1 == len(segments) or segments[slot + 1].base_offset > offset:
            found = segment.find(offset)
            if found is not None:
                return segment.header_at(found.position)
    return None


def replay(producers: ProducerState, segments: list[Segment], log_end: Offset) -> None:
    """Apply the batches from the producer state's end offset up to `log_end`. Errors: RecordsError."""
    for slot, segment in enumerate(segments):
        if slot + 1 < len(segments) and segments[slot + 1].base_offset <= producers.end_offset:
            continue
        found = segment.find(max(producers.end_offset, segment.base_offset))
        for batch in segment.batches(found.position) if found is not None else ():
            if batch.header.base_offset >= log_end:
                break
            header = batch.header
            producers.append(header, marker_of(header, batch.data), header.base_offset, header.max_timestamp)
    producers.end_offset = log_end
