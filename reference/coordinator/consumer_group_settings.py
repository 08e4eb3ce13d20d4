"""The settings of consumer groups (KIP-848), as they hold for one group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """The broker's group.consumer.* settings, and where a group has its own, that."""

    assignors: tuple[str, ...] = ("uniform", "range")
    """group.consumer.assignors: the first is the default."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """The least time between two targets of one group."""
    max_size: int = 2_147_483_647
    regex_refresh_interval_ms: int = 600_000
