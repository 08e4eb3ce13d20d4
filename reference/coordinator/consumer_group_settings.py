"""The settings of consumer groups (KIP-848), as they hold for one group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from reference.protocol.primitives import GroupId


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
