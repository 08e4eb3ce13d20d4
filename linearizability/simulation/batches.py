"""What record batches say: each is read once, however many replicas hold it and however many clients are given it.

A batch's bytes decide all that can be read out of them, so what was read is kept by the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from reference.protocol.primitives import Buffer
from reference.protocol.records.batch import BatchHeader, check_crc, read_header, records_of, whole_batch_size
from reference.protocol.records.record import Record

MOST_KEPT = 4_096
"""So many batches are kept: those of the last few runs."""


def batches_in(data: Buffer) -> Iterator[bytes]:
    """The batches of a buffer, each as its bytes; a last one that is cut off is left out. Errors: CorruptBatch."""
    position = 0
    while (size := whole_batch_size(data, position)) is not None:
        yield bytes(data[position : position + size])
        position += size


@lru_cache(MOST_KEPT)
def header_of(batch: bytes) -> BatchHeader:
    """A batch's header, its checksum held against its bytes. Errors: CorruptBatch."""
    header = read_header(batch)
    check_crc(memoryview(batch), header)
    return header


@lru_cache(MOST_KEPT)
def records_in(batch: bytes) -> tuple[Record, ...]:
    """A batch's records, unpacked. Errors: CorruptBatch, InvalidRecord."""
    return tuple(records_of(memoryview(batch)))
