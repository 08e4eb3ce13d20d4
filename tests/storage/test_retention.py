"""The number of segments that retention removes."""

from dataclasses import dataclass

import pytest

from reference.protocol.primitives import Offset, TimestampMs
from reference.storage.config import LogConfig
from reference.storage.retention import breaching_segments


@dataclass
class Aging:
    base_offset: Offset
    size: int
    largest_timestamp: TimestampMs


def aging(base_offset: int, size: int, largest_timestamp: int) -> Aging:
    return Aging(Offset(base_offset), size, TimestampMs(largest_timestamp))


SEGMENTS = [aging(0, 100, 1000), aging(10, 100, 2000), aging(20, 100, 3000), aging(30, 50, 9000)]
NONE = LogConfig(retention_ms=-1, retention_bytes=-1)


def due(
    config: LogConfig, *, start: int = 0, high_watermark: int = 40, now: int = 10_000, segments: list[Aging] = SEGMENTS
) -> int:
    return breaching_segments(segments, config, Offset(start), Offset(40), Offset(high_watermark), TimestampMs(now))


@pytest.mark.parametrize(
    ("retention_ms", "expected"), [(-1, 0), (9000, 0), (8999, 1), (7999, 2), (6999, 3), (1000, 3), (999, 4), (0, 4)]
)
def test_by_time(retention_ms: int, expected: int) -> None:
    """Older than retention.ms by the youngest record (RET-01, RET-05); -1 switches the rule off (RET-03)."""
    assert due(LogConfig(retention_ms=retention_ms)) == expected


@pytest.mark.parametrize(
    ("retention_bytes", "expected"), [(-1, 0), (350, 0), (251, 0), (250, 1), (150, 2), (50, 3), (49, 3), (0, 4)]
)
def test_by_size(retention_bytes: int, expected: int) -> None:
    """A segment goes only if what stays still has retention.bytes (RET-02)."""
    assert due(LogConfig(retention_ms=-1, retention_bytes=retention_bytes)) == expected


@pytest.mark.parametrize(("start", "expected"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3), (40, 3)])
def test_below_the_logs_start(start: int, expected: int) -> None:
    """The active segment is not removed because of the log start alone."""
    assert due(NONE, start=start) == expected


@pytest.mark.parametrize(("high_watermark", "expected"), [(0, 0), (9, 0), (10, 1), (25, 2), (39, 3), (40, 4)])
def test_nothing_above_the_high_watermark(high_watermark: int, expected: int) -> None:
    """RET-06."""
    assert due(LogConfig(retention_ms=0), high_watermark=high_watermark) == expected


def test_a_compacted_topic_is_not_deleted_from() -> None:
    assert due(LogConfig(cleanup_policy="compact", retention_ms=0, retention_bytes=0)) == 0
    assert due(LogConfig(cleanup_policy="compact,delete", retention_ms=0)) == 4
    assert due(LogConfig(cleanup_policy="compact", retention_ms=0), start=10) == 1


def test_a_young_segment_keeps_the_older_ones_behind_it() -> None:
    segments = [aging(0, 10, 9999), aging(10, 10, 1)]
    assert due(LogConfig(retention_ms=100), segments=segments) == 0


def test_an_empty_active_segment_stays() -> None:
    assert due(LogConfig(retention_ms=0), segments=[*SEGMENTS, aging(40, 0, 0)]) == 4
    assert due(LogConfig(retention_ms=0), segments=[aging(40, 0, 0)]) == 0


@pytest.mark.parametrize(("retention_ms", "expected"), [(9000, 0), (7999, 2), (6999, 3)])
def test_a_segment_that_compaction_emptied_is_removed_with_the_next_one(retention_ms: int, expected: int) -> None:
    """Its file is as young as the compaction, and must not keep what is old behind it."""
    emptied = [aging(0, 0, 10_000), *SEGMENTS[1:]]
    config = LogConfig(cleanup_policy="compact,delete", retention_ms=retention_ms)
    assert due(config, segments=emptied) == expected
