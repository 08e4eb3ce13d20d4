"""The interface of groups of all types.

A group id belongs to one group, a classic one or a consumer group of KIP-848. Offsets, lists and deletions ask it only what
stands here. Source: org.apache.kafka.coordinator.group.Group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from reference.protocol.primitives import GroupId, TimestampMs, TopicName
from reference.protocol.schema import Message

KeyValue = tuple[bytes, bytes | None]
"""One record of the log; a null value is a tombstone."""

Write = Callable[[Sequence[KeyValue], TimestampMs], None]
"""Appends records as one batch and has them replayed. Errors: KafkaError; nothing is then changed."""

Token = object
"""The caller's handle of a request; it is passed back unread."""

Say = Callable[[Token, Message], None]
"""Takes an answer, which goes out when everything that was written so far is committed; one that is an error, at once."""

CheckPartition = Callable[[TopicName, UUID, int], None]
"""Raises KafkaError where a member may not commit for a partition."""


R = TypeVar("R", bound=Message)


@dataclass(slots=True)
class Decided(Generic[R]):
    """The answer to a request, which is true once the records are written."""

    response: R
    records: list[KeyValue] = field(default_factory=list[KeyValue])


class Group(Protocol):
    """A group as its offsets and its administration see it."""

    @property
    def id(self) -> GroupId: ...

    @property
    def type(self) -> str:
        """ "Classic" or "Consumer"."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """The protocol type: "consumer", "connect", ...; None where no member ever joined."""
        ...

    @property
    def state_name(self) -> str: ...

    @property
    def is_empty(self) -> bool: ...

    def is_subscribed_to(self, topic: TopicName) -> bool:
        """Whether its members consume a topic, whose offsets are therefore neither expired nor deleted."""
        ...

    def expires_from(self, commit_timestamp: TimestampMs) -> TimestampMs | None:
        """When the retention of an offset that was committed then began; None while it does not pass (KIP-211)."""
        ...

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, version: int, transactional: bool
    ) -> CheckPartition | None:
        """Whether that member may commit. Errors: KafkaError."""
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether that member may fetch offsets. Errors: KafkaError."""
        ...

    def check_offset_delete(self) -> None:
        """Whether offsets may be deleted. Errors: KafkaError."""
        ...

    def check_delete(self) -> None:
        """Whether the group may be deleted. Errors: KafkaError."""
        ...

    def tombstones(self) -> list[KeyValue]:
        """The records that remove the group, its offsets excepted."""
        ...
