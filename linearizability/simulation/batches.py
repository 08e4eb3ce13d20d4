"""Decoded record batches, cached by their bytes: each is decoded once for all replicas and clients that have it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from reference.protocol.primitives import Buffer
from reference.protocol.records.batch import BatchHeader, check_crc, read_header, records_of, whole_batch_size
from reference.protocol.records.record import Record

MOST_KEPT = 4_096
"""The size of the caches: the batches of the last few runs."""


def batches_in(data: Buffer) -> Iterator[bytes]:
    """The batches of a buffer, as bytes. Leaves out an incomplete last one. Errors: CorruptBatch."""
    position = 0
    while (size := whole_batch_size(data, position)) is not None:
        yield bytes(data[position : position + size])
        position += size


@lru_cache(MOST_KEPT)
def header_of(batch: bytes) -> BatchHeader:
    """A batch's header, after a check of the checksum. Errors: CorruptBatch."""
    header = read_header(batch)
    check_crc(memoryview(batch), header)
    return header


@lru_cache(MOST_KEPT)
def records_in(batch: bytes) -> tuple[Record, ...]:
    """A batch's records, decompressed. Errors: CorruptBatch, InvalidRecord."""
    return tuple(records_of(memoryview(batch)))
