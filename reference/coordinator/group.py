"""The interface of groups of all types.

A group id belongs to one group, a classic one or a consumer group of KIP-848. Offsets, lists and deletions use only
this interface. Source: org.apache.kafka.coordinator.group.Group.
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
"""Appends records as one batch and has them replayed. Errors: KafkaError; then the state is unchanged."""

Token = object
"""The caller's handle of a request; it is passed back unread."""

Say = Callable[[Token, Message], None]
"""Sends a response when all records written so far are committed; an error response at once."""

CheckPartition = Callable[[TopicName, UUID, int], None]
"""Raises KafkaError where a member may not commit for a partition."""


R = TypeVar("R", bound=Message)


@dataclass(slots=True)
class Decided(Generic[R]):
    """The response to a request, valid once the records are written."""

    response: R
    records: list[KeyValue] = field(default_factory=list[KeyValue])


class Group(Protocol):
    """The interface of a group for its offsets and its administration."""

    @property
    def id(self) -> GroupId: ...

    @property
    def type(self) -> str:
        """ "Classic" or "Consumer"."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """The protocol type: "consumer", "connect", ...; None before the first member joined."""
        ...

    @property
    def state_name(self) -> str: ...

    @property
    def is_empty(self) -> bool: ...

    def is_subscribed_to(self, topic: TopicName) -> bool:
        """Whether its members consume a topic; then its offsets neither expire nor may be deleted."""
        ...

    def expires_from(self, commit_timestamp: TimestampMs) -> TimestampMs | None:
        """The time at which the retention of an offset with that commit timestamp began; None while it does not run (KIP-211)."""
        ...

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, version: int, transactional: bool
    ) -> CheckPartition | None:
        """Check that a member may commit. Errors: KafkaError."""
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that a member may fetch offsets. Errors: KafkaError."""
        ...

    def check_offset_delete(self) -> None:
        """Check that offsets may be deleted. Errors: KafkaError."""
        ...

    def check_delete(self) -> None:
        """Check that the group may be deleted. Errors: KafkaError."""
        ...

    def tombstones(self) -> list[KeyValue]:
        """The records that remove the group, its offsets excepted."""
        ...
