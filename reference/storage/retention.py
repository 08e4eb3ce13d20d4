"""Which segments retention deletes: by time, by size, and by the log's start (requirements RET-01 to RET-06)."""

from collections.abc import Sequence
from typing import Protocol

from reference.protocol.primitives import Offset, TimestampMs
from reference.storage.config import LogConfig


class AgingSegment(Protocol):
    """The part of a segment that retention needs."""

    @property
    def base_offset(self) -> Offset:
        """First offset that the segment may hold."""
        ...

    @property
    def size(self) -> int:
        """Bytes of its log file."""
        ...

    @property
    def largest_timestamp(self) -> TimestampMs:
        """The largest timestamp of its records; if they have none, the time of the file's last change."""
        ...


def breaching_segments(
    segments: Sequence[AgingSegment],
    config: LogConfig,
    log_start: Offset,
    log_end: Offset,
    high_watermark: Offset,
    now: TimestampMs,
) -> int:
    """The number of oldest segments that are due; all of them only if the active one is not empty, and due too.

    A segment is due if it ends at or below the high watermark, and it is older than retention.ms, or the rest still has
    retention.bytes, or it ends at or before the log's start. The first two need cleanup.policy=delete. A segment that
    compaction has emptied has no age; it is deleted with the next one.
    """
    found = 0
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    for slot, segment in enumerate(segments):
        end = segments[slot + 1].base_offset if slot + 1 < len(segments) else log_end
        is_active = slot + 1 == len(segments)
        if end > high_watermark or (is_active and segment.size == 0):
            return found
        excess -= segment.size
        due = end <= log_start and not is_active
        if config.deletes:
            due = due or 0 <= config.retention_ms < now - segment.largest_timestamp
            due = due or (config.retention_bytes >= 0 and excess >= 0)
        if due:
            found = slot + 1
        elif segment.size or is_active:
            return found
    return found
