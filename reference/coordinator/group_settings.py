"""The settings that groups and offsets are held to; those of consumer groups (KIP-848) may be a group's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from reference.protocol.primitives import GroupId


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
    max_classic_size: int = 2_147_483_647
    """group.max.size, to which a group must fit that becomes a classic one."""
    migration_policy: str = "bidirectional"
    """group.consumer.migration.policy: which way groups with members may change their type."""

    @property
    def may_upgrade(self) -> bool:
        return self.migration_policy in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        return self.migration_policy in ("bidirectional", "downgrade")

    @property
    def may_mix(self) -> bool:
        """Whether members of the classic protocol may join a consumer group."""
        return self.migration_policy != "disabled"


SettingsOf: TypeAlias = "Callable[[GroupId], ConsumerGroupSettings]"
"""A group's effective settings: its own, else the broker's."""
