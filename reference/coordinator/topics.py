"""The cluster's topics, as far as a group coordinator needs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from reference.protocol.primitives import TopicId, TopicName


class Topics(Protocol):
    """The topics as the node's metadata report them now."""

    @property
    def version(self) -> int:
        """Grows with the metadata."""
        ...

    def names(self) -> Iterable[TopicName]:
        """All topics, internal ones too."""
        ...

    def id_of(self, name: TopicName) -> TopicId | None: ...

    def name_of(self, id: TopicId) -> TopicName | None: ...

    def partition_count(self, id: TopicId) -> int: ...

    def partition_racks(self, id: TopicId) -> Sequence[Sequence[str]]:
        """For each partition the racks of its replicas, as far as they have any."""
        ...
