"""The clients of drawn groups, as `drawn_groups` remembers them."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from linearizability.client.group_member import ClassicMember

JOINS = 0


@dataclass
class Classic:
    """A client of the classic protocol, and where it is."""

    said: ClassicMember
    others: list[str] = field(default_factory=list[str])
    """As a leader it knows the members."""
    owned: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    is_waiting: bool = False
    is_to_sync: bool = False


@dataclass
class Consumer:
    """A client of the new protocol, and where it is."""

    group: str
    instance: str | None
    id: str
    epoch: int = JOINS
    owned: set[tuple[UUID, int]] = field(default_factory=set[tuple[UUID, int]])
