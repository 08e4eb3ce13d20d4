"""Log directories that take no new replicas: `cordoned.log.dirs` (KIP-1066).

A new replica on this broker is created in another directory, and none moves into a cordoned one; existing replicas are kept.
The controller learns of cordoned directories by heartbeats, and places no replica on a broker whose directories are all
cordoned.
Source: kafka.log.LogManager.nextLogDirs; kafka.server.ReplicaManager.alterReplicaLogDirs; BrokerLifecycleManager.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from reference.controller.broker_rules import FIRST_WITH_CORDONS
from reference.controller.configs import Configuration
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager


def follow_cordons(configuration: Configuration, logs: LogManager) -> Callable[[], list[UUID] | None]:
    """Make the logs apply the setting; return a function for the ids of the cordoned directories, None if records cannot have
    them."""

    def cordoned() -> list[LogDirectory]:
        names = configuration.cordoned_directories
        named = zip(configuration.directories, logs.directories, strict=False)
        return [directory for name, directory in named if name in names]

    def ids() -> list[UUID] | None:
        is_said = configuration.image.metadata_level >= FIRST_WITH_CORDONS
        return [each.id for each in cordoned()] if is_said else None

    logs.is_cordoned = lambda directory: directory in cordoned()
    return ids
