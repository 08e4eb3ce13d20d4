"""Ids of log directories, and the reserved ids.

Source: KIP-858; org.apache.kafka.common.DirectoryId.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

DirectoryId: TypeAlias = UUID
"""Identity of a log directory (`directory.id` of meta.properties)."""

MIGRATING: DirectoryId = UUID(int=0)
"""The directory of a replica that was placed before directories had ids."""

UNASSIGNED: DirectoryId = UUID(int=1)
"""The directory of a replica whose broker has not reported it yet."""

LOST: DirectoryId = UUID(int=2)
"""A directory that is offline, whichever it is."""

RESERVED = 100
"""Ids below this are reserved."""


def is_reserved(directory: DirectoryId) -> bool:
    return directory.int < RESERVED


def is_online(directory: DirectoryId, working: Sequence[DirectoryId]) -> bool:
    """Whether a replica in the directory can serve; `working` are its broker's online directories, empty if unknown."""
    if directory in (UNASSIGNED, MIGRATING):
        return True
    return directory != LOST and (not working or directory in working)
