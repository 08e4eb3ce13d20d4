"""Snapshots of the cluster's metadata: files `OFFSET-EPOCH.checkpoint` beside the log.

A snapshot has the state after the log below OFFSET; EPOCH is that of the last record in it. The file is a sequence of record
batches: a control batch with the header (the timestamp of the last record), metadata records, and a control batch with the
footer. It is written under another name (`.checkpoint.part`), flushed and renamed, so that a file with the final name is
whole; it never changes after that.
Source: KIP-630; org.apache.kafka.snapshot.Snapshots, RecordsSnapshotWriter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from reference.controller.metadata_records import NEWEST_LEVEL, decode_metadata_record, encode_metadata_record
from reference.protocol.codec import CodecError, decode, encode
from reference.protocol.messages.snapshot_footer_record import SnapshotFooterRecord
from reference.protocol.messages.snapshot_header_record import SnapshotHeaderRecord
from reference.protocol.primitives import FIRST_EPOCH, FIRST_OFFSET, Buffer, LeaderEpoch, Offset, TimestampMs
from reference.protocol.records.batch import (
    HEADER_BYTES,
    Batch,
    build,
    check_crc,
    read_batches,
    records_of,
    whole_batch_size,
)
from reference.protocol.records.control import ControlType, control_key, control_type
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.record import Record
from reference.protocol.schema import Message
from reference.storage.disk import Disk, File
from reference.storage.errors import CorruptFile, StorageError

SUFFIX = ".checkpoint"
PARTIAL_SUFFIX = ".checkpoint.part"
NAME = re.compile(r"(\d{20})-(\d{10})" + re.escape(SUFFIX))
BOOTSTRAP_NAME = "bootstrap.checkpoint"
"""Records of the formatting tool for the first active controller; in a snapshot's format, under another name."""
BATCH_RECORDS = 1000
"""The number of records in one batch of a snapshot."""
MAX_BATCH_BYTES = 16 * 1024 * 1024
"""A longer batch of a snapshot is damaged: metadata are written in batches of at most 8 MiB."""


class SnapshotId(NamedTuple):
    """The end of a snapshot; ids compare as logs do, by epoch first."""

    epoch: LeaderEpoch
    end_offset: Offset

    @property
    def file_name(self) -> str:
        """Kafka's name of the file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


BOOTSTRAP = SnapshotId(FIRST_EPOCH, FIRST_OFFSET)
"""The bootstrap snapshot of a formatted node. It is not sent to others: the first leader appends its records to the log."""


class SnapshotReceipt:
    """A snapshot that is fetched in pieces."""

    def __init__(self, disk: Disk, folder: Path, id: SnapshotId) -> None:
        """Errors: StorageError."""
        self.id = id
        self._disk = disk
        self._path = folder / id.file_name.replace(SUFFIX, PARTIAL_SUFFIX)
        try:
            disk.remove(self._path)
            self._file = disk.open_file(self._path)
        except OSError as error:
            raise _storage_error(self._path, error) from error

    @property
    def size(self) -> int:
        """The number of received bytes."""
        return self._file.size

    def append(self, data: Buffer) -> None:
        """Append the next piece. Errors: StorageError."""
        try:
            self._file.append(data)
        except OSError as error:
            raise _storage_error(self._path, error) from error

    def check(self) -> None:
        """Check that the received file is a whole snapshot. Errors: CorruptFile that names the file."""
        for _ in records_in(self._file, self._path):
            pass

    def abandon(self) -> None:
        """Remove a partly received snapshot; a file that cannot be removed is left for the next start."""
        with suppress(OSError):
            self._disk.remove(self._path)

    def freeze(self) -> None:
        """Store the file as a snapshot, durably. Errors: StorageError."""
        try:
            self._file.flush()
            self._disk.rename(self._path, self._path.with_name(self.id.file_name))
            self._disk.sync_folder(self._path.parent)
        except OSError as error:
            raise _storage_error(self._path, error) from error


class Snapshots:
    """The snapshots of one folder, sorted by id."""

    def __init__(self, disk: Disk, folder: Path, log_start: Offset) -> None:
        """Find the snapshots; remove unfinished ones, and those that end below the log's start.

        Errors: StorageError; CorruptFile for invalid bootstrap records.
        """
        self._disk = disk
        self._folder = folder
        self.ids: list[SnapshotId] = []
        try:
            for name in disk.list_folder(folder):
                found = NAME.fullmatch(name)
                if found is not None and int(found[1]) >= log_start:
                    self.ids.append(SnapshotId(LeaderEpoch(int(found[2])), Offset(int(found[1]))))
                elif found is not None or name.endswith(PARTIAL_SUFFIX):
                    disk.remove(folder / name)
        except OSError as error:
            raise _storage_error(folder, error) from error
        self.ids.sort()
        self.bootstrap = self._read_bootstrap()

    def _read_bootstrap(self) -> list[Message]:
        """The records that the node was formatted with. Errors: CorruptFile, StorageError."""
        path = self._folder.parent / BOOTSTRAP_NAME  # beside the folder of the metadata log
        try:
            return [*records_in(self._disk.open_file(path), path)] if self._disk.exists(path) else []
        except OSError as error:
            raise _storage_error(path, error) from error

    @property
    def earliest(self) -> SnapshotId | None:
        return self.ids[0] if self.ids else None

    @property
    def latest(self) -> SnapshotId | None:
        return self.ids[-1] if self.ids else None

    def path(self, id: SnapshotId) -> Path:
        """The file of a snapshot."""
        return self._folder / id.file_name

    def size_bytes(self, id: SnapshotId) -> int:
        """The size of a snapshot. Errors: StorageError."""
        try:
            return self._disk.size_of(self.path(id))
        except OSError as error:
            raise _storage_error(self.path(id), error) from error

    def read(self, id: SnapshotId, position: int, size: int) -> bytes:
        """A piece of a snapshot. Errors: StorageError."""
        try:
            return self._disk.open_file(self.path(id)).read(position, size)
        except OSError as error:
            raise _storage_error(self.path(id), error) from error

    def records(self, id: SnapshotId) -> Iterator[Message]:
        """The metadata records of a snapshot; unknown types as `UnknownRecord`.

        Errors: CorruptFile that names the file; StorageError.
        """
        try:
            yield from records_in(self._disk.open_file(self.path(id)), self.path(id))
        except OSError as error:
            raise _storage_error(self.path(id), error) from error

    def control_records(self, id: SnapshotId) -> Iterator[Record]:
        """The control records of a snapshot. Errors: CorruptFile that names the file; StorageError."""
        path = self.path(id)
        try:
            for batch in _batches(self._disk.open_file(path), path):
                if batch.header.is_control:
                    yield from records_of(batch.data)
        except RecordsError as error:
            raise CorruptFile(f"{path}: no snapshot: {error}") from error
        except OSError as error:
            raise _storage_error(path, error) from error

    def last_contained_timestamp(self, id: SnapshotId) -> TimestampMs:
        """The timestamp of the last record that a snapshot covers. Errors: CorruptFile, StorageError."""
        path = self.path(id)
        try:
            first = next(_batches(self._disk.open_file(path), path), None)
        except OSError as error:
            raise _storage_error(path, error) from error
        if first is None:
            raise CorruptFile(f"{path}: no snapshot: it is empty")
        return _read_header(first, path).last_contained_log_timestamp

    def write(
        self,
        id: SnapshotId,
        records: Iterable[Message],
        times: tuple[TimestampMs, TimestampMs],
        level: int = NEWEST_LEVEL,
        voters: Sequence[tuple[ControlType, Message]] = (),
    ) -> None:
        """Write a snapshot durably; `times` are the timestamp of the last record in it, and now.

        Errors: StorageError; then there is no snapshot.
        """
        receipt = SnapshotReceipt(self._disk, self._folder, id)
        try:
            for batch in snapshot_batches(id.epoch, records, times, level, voters):
                receipt.append(batch)
            self.take(receipt)
        except StorageError:
            receipt.abandon()
            raise

    def receive(self, id: SnapshotId) -> SnapshotReceipt:
        """Begin to receive a snapshot. Errors: StorageError."""
        return SnapshotReceipt(self._disk, self._folder, id)

    def take(self, receipt: SnapshotReceipt) -> None:
        """Add a snapshot that was received completely. Errors: StorageError."""
        receipt.freeze()
        if receipt.id not in self.ids:
            self.ids.append(receipt.id)
            self.ids.sort()

    def forget_below(self, end_offset: Offset) -> int:
        """Remove the snapshots that end below an offset; return their number. Errors: StorageError."""
        gone = [each for each in self.ids if each.end_offset < end_offset]
        for each in gone:
            try:
                self._disk.remove(self.path(each))
            except OSError as error:
                raise _storage_error(self.path(each), error) from error
            self.ids.remove(each)
        return len(gone)


def format_voters(disk: Disk, folder: Path, records: Sequence[tuple[ControlType, Message]], now: TimestampMs) -> None:
    """Write the bootstrap snapshot of a new node with the first voters. `folder` is that of the metadata log.

    Errors: StorageError.
    """
    try:
        disk.make_folder(folder)
    except OSError as error:
        raise _storage_error(folder, error) from error
    Snapshots(disk, folder, FIRST_OFFSET).write(BOOTSTRAP, [], (now, now), voters=records)


def write_bootstrap(disk: Disk, folder: Path, records: Sequence[Message], now: TimestampMs) -> None:
    """Write the bootstrap records for the first active controller. Errors: OSError."""
    data = b"".join(snapshot_batches(FIRST_EPOCH, records, (now, now), NEWEST_LEVEL, ()))
    disk.write_file(folder / BOOTSTRAP_NAME, data)


def records_in(file: File, path: Path) -> Iterator[Message]:
    """The metadata records of a snapshot file. Errors: CorruptFile, OSError."""
    footer = False
    try:
        for index, batch in enumerate(_batches(file, path)):
            if footer:
                raise CorruptFile(f"{path}: no snapshot: bytes follow its footer")
            if index == 0:
                _read_header(batch, path)
            elif batch.header.is_control:
                footer = any(control_type(record) == ControlType.SNAPSHOT_FOOTER for record in records_of(batch.data))
            else:
                for record in records_of(batch.data):
                    yield decode_metadata_record(record.value or b"")
    except (RecordsError, CodecError) as error:
        raise CorruptFile(f"{path}: no snapshot: {error}") from error
    if not footer:
        raise CorruptFile(f"{path}: no snapshot: it ends without a footer")


def _batches(file: File, path: Path) -> Iterator[Batch]:
    position = 0
    while position < file.size:
        size = _batch_size(file.read(position, HEADER_BYTES), path, position)
        batch = next(read_batches(file.read(position, size)), None)
        if batch is None:
            raise CorruptFile(f"{path}: no snapshot: it is cut off in the batch at {position}")
        check_crc(batch.data, batch.header)
        yield batch
        position += size


def _batch_size(head: bytes, path: Path, position: int) -> int:
    whole_batch_size(head, 0)  # raises for invalid lengths and formats
    size = 12 + int.from_bytes(head[8:12], "big", signed=True)
    if len(head) < HEADER_BYTES or not HEADER_BYTES <= size <= MAX_BATCH_BYTES:
        raise CorruptFile(f"{path}: no snapshot: no batch at {position}")
    return size


def _read_header(batch: Batch, path: Path) -> SnapshotHeaderRecord:
    if batch.header.is_control:
        record = next(iter(records_of(batch.data)))
        if control_type(record) == ControlType.SNAPSHOT_HEADER:
            return decode(SnapshotHeaderRecord, 0, record.value or b"")
    raise CorruptFile(f"{path}: no snapshot: it does not begin with a header")


def snapshot_batches(
    epoch: LeaderEpoch,
    records: Iterable[Message],
    times: tuple[TimestampMs, TimestampMs],
    level: int,
    voters: Sequence[tuple[ControlType, Message]],
) -> Iterator[bytearray]:
    """The batches of a snapshot; `voters` are the control records with the voters, if the log has them."""
    last_timestamp, now = times
    header = SnapshotHeaderRecord(last_contained_log_timestamp=last_timestamp)
    head = [(ControlType.SNAPSHOT_HEADER, header), *voters]
    yield _control_batch(head, FIRST_OFFSET, epoch, now)
    offset = Offset(FIRST_OFFSET + len(head))
    pending: list[Message] = []
    for record in records:
        pending.append(record)
        if len(pending) == BATCH_RECORDS:
            yield _data_batch(pending, offset, epoch, now, level)
            offset += len(pending)
            pending = []
    if pending:
        yield _data_batch(pending, offset, epoch, now, level)
    footer = ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord()
    yield _control_batch([footer], offset + len(pending), epoch, now)


def _control_batch(
    messages: Sequence[tuple[ControlType, Message]], offset: Offset, epoch: LeaderEpoch, now: TimestampMs
) -> bytearray:
    records = [
        Record(offset + index, now, control_key(kind), encode(message, 0))
        for index, (kind, message) in enumerate(messages)
    ]
    return build(records, control=True, leader_epoch=epoch)


def _data_batch(
    records: Sequence[Message], offset: Offset, epoch: LeaderEpoch, now: TimestampMs, level: int
) -> bytearray:
    values = [encode_metadata_record(record, level) for record in records]
    return build([Record(offset + index, now, None, value) for index, value in enumerate(values)], leader_epoch=epoch)


def _storage_error(path: Path, error: OSError) -> StorageError:
    return StorageError(f"{path}: {error.strerror or error}")
