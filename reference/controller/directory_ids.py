"""Identities of log directories, and those with a meaning of their own.

Source: KIP-858; org.apache.kafka.common.DirectoryId.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

DirectoryId: TypeAlias = UUID
"""Identity of a log directory (`directory.id` of meta.properties)."""

MIGRATING: DirectoryId = UUID(int=0)
"""A directory of a replica that was placed before directories had ids."""

UNASSIGNED: DirectoryId = UUID(int=1)
"""A directory that its broker has not reported yet."""

LOST: DirectoryId = UUID(int=2)
"""Some directory that does not work any more."""

RESERVED = 100
"""Ids below are for meanings like these."""


def is_reserved(directory: DirectoryId) -> bool:
    return directory.int < RESERVED


def is_online(directory: DirectoryId, working: Sequence[DirectoryId]) -> bool:
    """Whether a replica there can serve; `working` are the directories of its broker, none where they are not known."""
    if directory in (UNASSIGNED, MIGRATING):
        return True
    return directory != LOST and (not working or directory in working)
