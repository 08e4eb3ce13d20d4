"""The broker's settings that groups and offsets are held to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The group coordinator's settings, by Kafka's names."""

    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms"""
    max_session_timeout_ms: int = 1_800_000
    """group.max.session.timeout.ms"""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms"""
    max_size: int = (1 << 31) - 1
    """group.max.size"""
    max_metadata_size: int = 4_096
    """offset.metadata.max.bytes, which are counted in UTF-16 units, as Java counts a string."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """offsets.retention.minutes"""
    offsets_retention_check_interval_ms: int = 600_000
    """offsets.retention.check.interval.ms"""
