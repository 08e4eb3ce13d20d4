"""Removes expired offsets, groups with neither members nor offsets, and offsets of deleted topics. Each removal is a
tombstone that the caller writes.

Source: requirements OFF-15, OFF-16; KIP-211; org.apache.kafka.coordinator.group.GroupCoordinatorShard.cleanupGroupMetadata.
"""

from __future__ import annotations

from collections.abc import Mapping

from reference.coordinator.group import Group, KeyValue
from reference.coordinator.offsets import Offsets, offset_tombstone
from reference.protocol.primitives import GroupId, TimestampMs, TopicId, TopicName


def expire(groups: Mapping[GroupId, Group], offsets: Offsets, retention_ms: int, now: TimestampMs) -> list[KeyValue]:
    """The tombstones of all expired offsets, and of groups that have neither members nor offsets any more."""
    tombstones: list[KeyValue] = []
    for group in groups.values():
        expired = _expired_offsets(group, offsets, retention_ms, now)
        tombstones += expired
        is_bare = len(expired) == len(offsets.of(group.id)) and not offsets.has_pending(group.id)
        if is_bare and group.is_empty:
            tombstones += group.tombstones()
    return tombstones


def _expired_offsets(group: Group, offsets: Offsets, retention_ms: int, now: TimestampMs) -> list[KeyValue]:
    """The tombstones of offsets whose retention has passed and whose topics no member consumes."""
    expired: list[KeyValue] = []
    for place, offset in offsets.of(group.id).items():
        since = group.expires_from(offset.committed_at)
        if (
            since is not None
            and not group.is_subscribed_to(place[0])
            and offsets.expired(group.id, place, now, since, retention_ms)
        ):
            expired.append(offset_tombstone(group.id, place))
    return expired


def of_deleted_topics(offsets: Offsets, topics: Mapping[TopicId, TopicName]) -> list[KeyValue]:
    """The tombstones of all offsets of deleted topics."""
    return [offset_tombstone(group, place) for group, place in dict.fromkeys(offsets.of_topics(topics))]
