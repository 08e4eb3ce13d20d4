"""The topics of a cluster, for a coordinator without a node."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from uuid import UUID


class FakeTopics:
    """Topics that a test creates and grows; a topic's id follows from the number of creations of its name."""

    def __init__(self, **counts: int) -> None:
        self.version = 0
        self.ids: dict[str, UUID] = {}
        self._counts: dict[UUID, int] = {}
        self._numbers = itertools.count(1)
        for name, count in counts.items():
            self.make(name, count)

    def make(self, name: str, count: int) -> None:
        self.version += 1
        self.ids[name] = UUID(int=next(self._numbers))
        self._counts[self.ids[name]] = count

    def grow(self, name: str, count: int) -> None:
        self.version += 1
        self._counts[self.ids[name]] = count

    def delete(self, name: str) -> None:
        self.version += 1
        del self._counts[self.ids.pop(name)]

    def names(self) -> Iterable[str]:
        return [*self.ids]

    def id_of(self, name: str) -> UUID | None:
        return self.ids.get(name)

    def name_of(self, id: UUID) -> str | None:
        return next((name for name, known in self.ids.items() if known == id), None)

    def partition_count(self, id: UUID) -> int:
        return self._counts.get(id, 0)

    def partition_racks(self, id: UUID) -> Sequence[Sequence[str]]:
        return [[] for _ in range(self.partition_count(id))]
