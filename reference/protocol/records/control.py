"""Control records: the markers that end transactions in a partition, and the types of the metadata log.

A control record's key is a version (16 bits) and a type; a marker's value is a version and the epoch of the coordinator
that wrote it.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from reference.protocol.primitives import FIRST_OFFSET, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from reference.protocol.records.batch import BatchProducer, build
from reference.protocol.records.errors import InvalidRecord
from reference.protocol.records.record import Record

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlType(IntEnum):
    """The types of control records."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransaction(NamedTuple):
    """A marker: the end of a producer's transaction in this partition."""

    committed: bool
    coordinator_epoch: LeaderEpoch


def control_type(record: Record) -> int:
    """The type of a control record: a `ControlType`, or a number that it does not know. Errors: InvalidRecord."""
    if record.key is None or len(record.key) < _KEY.size:
        raise InvalidRecord("a control record's key is shorter than a version and a type")
    return _KEY.unpack_from(record.key)[1]


def read_end_transaction(record: Record) -> EndTransaction:
    """The marker in a record of a producer's control batch. Errors: InvalidRecord when it is none."""
    kind = control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise InvalidRecord(f"control record of type {kind} where a transaction's end belongs")
    if record.value is None or len(record.value) < _MARKER.size:
        raise InvalidRecord("a transaction marker's value is shorter than a version and an epoch")
    return EndTransaction(kind == ControlType.COMMIT, _MARKER.unpack_from(record.value)[1])


def control_key(kind: ControlType) -> bytes:
    """The key of a control record."""
    return _KEY.pack(0, kind)


def build_end_transaction(
    marker: EndTransaction,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    now: TimestampMs,
    offset: Offset = FIRST_OFFSET,
) -> bytearray:
    """The control batch that ends a producer's transaction."""
    key = control_key(ControlType.COMMIT if marker.committed else ControlType.ABORT)
    record = Record(offset, now, key, _MARKER.pack(0, marker.coordinator_epoch))
    return build([record], producer=BatchProducer(producer_id, producer_epoch, transactional=True), control=True)
