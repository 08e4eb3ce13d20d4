"""The interface to the cluster's topics for a group coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from reference.protocol.primitives import TopicId, TopicName


class Topics(Protocol):
    """The topics in the node's present metadata."""

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
        """The racks of each partition's replicas, without replicas that have no rack."""
        ...
