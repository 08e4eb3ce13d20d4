"""The settings of groups and offsets; a consumer group (KIP-848) may override its own."""

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
    """offset.metadata.max.bytes, compared with the number of UTF-16 units, as Java counts a string."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """offsets.retention.minutes"""
    offsets_retention_check_interval_ms: int = 600_000
    """offsets.retention.check.interval.ms"""


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """The broker's group.consumer.* settings, with the group's own overrides."""

    assignors: tuple[str, ...] = ("uniform", "range")
    """group.consumer.assignors: the first is the default."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """The shortest time between two target assignments of one group."""
    max_size: int = 2_147_483_647
    regex_refresh_interval_ms: int = 600_000
    max_classic_size: int = 2_147_483_647
    """group.max.size, the largest size at which a consumer group may become a classic one."""
    migration_policy: str = "bidirectional"
    """group.consumer.migration.policy: the allowed type changes of groups with members."""

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
