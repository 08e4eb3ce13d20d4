"""A log's copy in another log directory: it follows the log, as a replica its leader, until it has all records (KIP-113)."""

from __future__ import annotations

from reference.protocol.primitives import TimestampMs
from reference.storage.log import Log

COPY_BYTES = 1024 * 1024
"""Bytes that a step copies, give or take a batch: clients wait during a step."""


def copy_step(log: Log, copy: Log, now: TimestampMs) -> bool:
    """Truncate the copy where it differs from the log, append the next batches; returns whether it is complete.

    Errors: StorageError; RecordsError for a batch that is damaged.
    """
    _cut(log, copy, now)
    if copy.log_end_offset <= log.log_start_offset:
        # A log may start within a batch (DeleteRecords): the copy begins with the whole of it.
        start = log.batch_start(log.log_start_offset)
        if copy.log_end_offset != start:
            copy.truncate_fully_and_start_at(start, now)
    offset = max(copy.log_end_offset, log.log_start_offset)
    if offset < log.log_end_offset:
        found = log.read(offset, COPY_BYTES).records
        copy.append_as_follower(found if isinstance(found, bytes) else found.read(), now)
    if copy.log_start_offset < log.log_start_offset <= copy.log_end_offset:
        copy.advance_log_start_offset(log.log_start_offset)
    return copy.log_end_offset == log.log_end_offset


def _cut(log: Log, copy: Log, now: TimestampMs) -> None:
    """Truncate the copy to the end of the last leader epoch that both logs have (KIP-101)."""
    while copy.leader_epoch >= 0:
        shared = log.end_offset_for_epoch(min(copy.leader_epoch, log.leader_epoch))
        end = min(shared.end_offset, copy.end_offset_for_epoch(shared.leader_epoch).end_offset)
        if end >= copy.log_end_offset:
            return
        if end <= copy.log_start_offset:
            copy.truncate_fully_and_start_at(log.batch_start(log.log_start_offset), now)
            return
        copy.truncate_to(end)
