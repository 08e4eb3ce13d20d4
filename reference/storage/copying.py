"""A log's copy in another log directory: it follows the log, as a replica follows its leader, until it has all (KIP-113)."""

from __future__ import annotations

from reference.protocol.primitives import TimestampMs
from reference.storage.log import Log

COPY_BYTES = 1024 * 1024
"""How much is copied in a step, give or take a batch: clients wait meanwhile."""


def copy_step(log: Log, copy: Log, now: TimestampMs) -> bool:
    """Cut what the log does not have, append what the copy does not have; whether it has all then.

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
    """Drop what comes after the last epoch that both have, and its end (KIP-101)."""
    while copy.leader_epoch >= 0:
        shared = log.end_offset_for_epoch(min(copy.leader_epoch, log.leader_epoch))
        end = min(shared.end_offset, copy.end_offset_for_epoch(shared.leader_epoch).end_offset)
        if end >= copy.log_end_offset:
            return
        if end <= copy.log_start_offset:
            copy.truncate_fully_and_start_at(log.batch_start(log.log_start_offset), now)
            return
        copy.truncate_to(end)
