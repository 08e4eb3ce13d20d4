"""Checksums of flushed segments: `segment-checksums`, a file of the data folder that Apache Kafka does not have.

Kafka's layout cannot show that a `.log` or `.txnindex` file was deleted, truncated or replaced: a start would serve less without
noticing. So each checkpoint lists the closed segments below the recovery point, and a clean end all segments, each with its
length and checksums of both its ends (of a short one, of all). The bytes between have the batches' own checksums.

    version 0, number of lines, then `topic partition topic_id base_offset log_bytes head tail transactions`, and a last
    line `checksum crc` over the lines before

A log has no lines during its compaction. Before a truncation the lines above the new end are removed.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from reference.protocol.primitives import Offset
from reference.storage.checkpoints import TopicPartition, text_of_uuid, uuid_of_text
from reference.storage.disk import Disk, File
from reference.storage.errors import CorruptFile

SEGMENT_CHECKSUMS = "segment-checksums"
SPAN_BYTES = 4096
"""Bytes at the beginning and at the end of a log file that the checksums cover."""


class SegmentChecksum(NamedTuple):
    """A segment's files as they were made durable."""

    log_bytes: int
    head: int
    """Checksum of the log file's first SPAN_BYTES."""
    tail: int
    """Checksum of its last SPAN_BYTES."""
    transactions: int
    """Checksum of the whole transaction index; 0 where there is none."""

    def fits(self, file: File) -> bool:
        """Whether a log file, which may have grown since, begins with the bytes that were flushed."""
        return file.size >= self.log_bytes and self[:3] == checksum_of(file, b"", self.log_bytes)[:3]


def checksum_of(file: File, transactions: bytes, size: int | None = None) -> SegmentChecksum:
    """The checksum of a log file's first `size` bytes (all by default) and of a transaction index. Errors: OSError."""
    size = file.size if size is None else size
    start = max(0, size - SPAN_BYTES)
    head, tail = file.read(0, min(size, SPAN_BYTES)), file.read(start, size - start)
    return SegmentChecksum(size, crc32(head), crc32(tail), crc32(transactions))


class LogChecksums(NamedTuple):
    """The flushed segments of one log, by base offset."""

    topic_id: UUID
    segments: Mapping[Offset, SegmentChecksum]


NO_CHECKSUMS: Mapping[Offset, SegmentChecksum] = {}


def read_checksums(disk: Disk, folder: Path) -> dict[TopicPartition, LogChecksums] | None:
    """The stored entries by partition; None where there is no such file. Errors: OSError, CorruptFile."""
    try:
        text = disk.read_file(folder / SEGMENT_CHECKSUMS).decode(errors="replace")
    except FileNotFoundError:
        return None
    body, _, last = text.removesuffix("\n").rpartition("\n")
    lines = body.splitlines()
    if last != f"checksum {crc32(body.encode())}" or lines[:2] != ["0", str(len(lines) - 2)]:
        raise CorruptFile(f"{SEGMENT_CHECKSUMS} is damaged")
    found: dict[TopicPartition, tuple[UUID, dict[Offset, SegmentChecksum]]] = {}
    for topic, partition, topic_id, base, *fields in (line.split(" ") for line in lines[2:]):
        log = found.setdefault((topic, int(partition)), (uuid_of_text(topic_id), {}))
        log[1][Offset(int(base))] = SegmentChecksum(*map(int, fields))
    return {key: LogChecksums(*log) for key, log in found.items()}


def write_checksums(disk: Disk, folder: Path, logs: Mapping[TopicPartition, LogChecksums]) -> None:
    """Write the file. Errors: OSError."""
    lines = [
        " ".join(map(str, (topic, partition, text_of_uuid(log.topic_id), base, *checksum)))
        for (topic, partition), log in sorted(logs.items())
        for base, checksum in sorted(log.segments.items())
    ]
    body = "\n".join(("0", str(len(lines)), *lines))
    disk.write_file(folder / SEGMENT_CHECKSUMS, f"{body}\nchecksum {crc32(body.encode())}\n".encode())
