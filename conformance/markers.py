"""The markers that end a transaction in a partition, decoded from control batches (KIP-98)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from conformance.answers import only
from conformance.batches import CONTROL, Batch, batches
from conformance.wire import Failed

ABORT, COMMIT = 0, 1
"""Types of control records that end a transaction."""
CONTROL_KEY = struct.Struct(">hh")
CONTROL_VALUE = struct.Struct(">hi")


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a transaction in a partition, decoded from its control batch."""

    offset: int
    kind: int
    """ABORT or COMMIT."""
    producer_id: int
    producer_epoch: int
    key_version: int
    value_version: int | None
    """None where the value is too short; accepted, because clients read the key alone."""
    coordinator_epoch: int


def marker_of(batch: Batch) -> Marker:
    """Decode the marker of a control batch. Errors: Failed where the batch has not one record, or its key is too short."""
    record = only(batch.records(), f"record in the control batch at {batch.base_offset}")
    key, value = record.key or b"", record.value or b""
    if len(key) < CONTROL_KEY.size:
        failure = Failed(f"the control record at {batch.base_offset} has key {key.hex(' ')} and value {value.hex(' ')}")
        failure.built_on = "TXV-05"
        raise failure
    key_version, kind = CONTROL_KEY.unpack_from(key)
    has_value = len(value) >= CONTROL_VALUE.size
    value_version, coordinator_epoch = CONTROL_VALUE.unpack_from(value) if has_value else (None, -1)
    return Marker(
        batch.base_offset, kind, batch.producer_id, batch.producer_epoch, key_version, value_version, coordinator_epoch
    )


def markers(data: bytes) -> list[Marker]:
    """The markers in fetched bytes."""
    return [marker_of(one) for one in batches(data) if one.attributes & CONTROL]
