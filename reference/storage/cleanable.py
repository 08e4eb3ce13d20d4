"""Which part of a log may be compacted, and whether a compaction is due.

    | clean | dirty: may be compacted | not yet |
            first dirty               end       log end

Dirty records were written since the last compaction. A compaction takes whole segments. It leaves out the active segment,
records from the last stable offset on, segments with records younger than min.compaction.lag.ms, and unflushed records:
recovery treats a gap above the recovery point as lost records.
Source: org.apache.kafka.storage.internals.log.LogCleanerManager; requirements CMP-02, CMP-03.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from reference.protocol.primitives import Offset, TimestampMs
from reference.protocol.records.validate import MAX_LONG
from reference.storage.config import MAX_INT, LogConfig
from reference.storage.segment import Segment


class Cleanable(NamedTuple):
    """The section of a log that may be compacted now."""

    start: Offset
    """First dirty offset."""
    end: Offset
    """The base offset of the first segment that may not be compacted; `start` where nothing may."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Whether the first batch of a dirty segment is older than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        """Dirty bytes divided by clean and dirty bytes; 0.0 where there are none."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether a compaction should be done."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio)


def cleanable(
    closed: Sequence[Segment],
    config: LogConfig,
    active_base: Offset,
    log_start: Offset,
    checkpoint: Offset,
    stable_end: Offset,
    now: TimestampMs,
) -> Cleanable:
    """The cleanable section of a log with these closed segments, compacted up to `checkpoint` before.

    A checkpoint outside of the log belongs to an earlier log: then everything is dirty. `stable_end` is the last stable
    offset or the recovery point, whichever is lower.
    """
    start = checkpoint if log_start <= checkpoint <= active_base else log_start
    bases = [segment.base_offset for segment in closed]
    first_dirty = max(0, bisect_right(bases, start) - 1) if start < active_base else len(bases)
    dirty = closed[first_dirty:]
    young_from = now - config.min_compaction_lag_ms if config.min_compaction_lag_ms > 0 else MAX_LONG
    young = (segment.base_offset for segment in dirty if segment.largest_timestamp > young_from)
    limit = min(stable_end, next(young, active_base))
    ends = [*bases, active_base]
    slot = max(first_dirty, bisect_right(ends, limit) - 1)
    return Cleanable(
        start,
        ends[slot] if slot > first_dirty else start,
        sum(segment.size for segment in closed[: bisect_left(bases, start)]),
        sum(segment.size for segment in closed[first_dirty:slot]),
        _is_overdue(dirty, config, now),
    )


def _is_overdue(dirty: Sequence[Segment], config: LogConfig, now: TimestampMs) -> bool:
    first = (segment.read_first_timestamp() for segment in dirty)
    times = [time for time in first if time is not None and time > 0]
    return bool(times) and min(times) < now - config.max_compaction_lag_ms


def groups(segments: Sequence[Segment], config: LogConfig, end: Offset) -> list[list[Segment]]:
    """Groups of adjacent segments, each small enough to become one segment, in each of its files.

    `end` is the base offset of the segment after the last.
    """
    found: list[list[Segment]] = []
    for slot, segment in enumerate(segments):
        behind = segments[slot + 1].base_offset if slot + 1 < len(segments) else end
        if found and _fits(found[-1], segment, behind, config):
            found[-1].append(segment)
        else:
            found.append([segment])
    return found


def _fits(group: Sequence[Segment], segment: Segment, behind: Offset, config: LogConfig) -> bool:
    together = [*group, segment]
    return (
        sum(each.size for each in together) <= config.segment_bytes
        and sum(each.offset_index.size_bytes for each in together) <= config.segment_index_bytes
        and sum(each.time_index.size_bytes for each in together) <= config.segment_index_bytes
        and behind - 1 - group[0].base_offset <= MAX_INT
    )
