"""The offsets that groups have committed, and those that wait for the end of their transaction.

What is committed within a transaction is *pending*: it counts when the transaction's marker comes, from its place in the
log on, so that an ordinary commit behind it stays the last one. Source: requirements OFF-*, TXV-08, TXV-09;
org.apache.kafka.coordinator.group.OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from reference.coordinator.group import KeyValue
from reference.coordinator.group_records import Place, offset_record
from reference.protocol.messages.offset_commit_record import OffsetCommitValue
from reference.protocol.primitives import (
    NO_TIMESTAMP,
    NO_UUID,
    GroupId,
    LeaderEpoch,
    Offset,
    ProducerId,
    TimestampMs,
    TopicId,
    TopicName,
)

NO_EXPIRY = NO_TIMESTAMP


class CommittedOffset(NamedTuple):
    """Where a group goes on in a partition."""

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    committed_at: TimestampMs
    expires_at: TimestampMs
    """When it expires, whatever the retention; -1 where the commit did not say (requests 2 to 4 can)."""
    topic_id: TopicId
    """Of the topic that it was committed for; none where that is not known."""
    number: int
    """Its place among the records of the shard's partition."""

    def is_expired(self, now: TimestampMs, since: TimestampMs, retention_ms: int) -> bool:
        """Whether the time of an offset whose retention began at `since` is over."""
        return now >= self.expires_at if self.expires_at != NO_EXPIRY else now - since >= retention_ms

    def is_of(self, topic_id: TopicId) -> bool:
        """Whether it may have been committed for the topic of that id, as far as both are known."""
        return NO_UUID in (topic_id, self.topic_id) or topic_id == self.topic_id


class Offsets:
    """A shard's offsets, by group and partition; all of it is what the records say."""

    def __init__(self) -> None:
        self._committed: dict[GroupId, dict[Place, CommittedOffset]] = {}
        self._pending: dict[ProducerId, dict[tuple[GroupId, Place], CommittedOffset]] = {}
        self._producers: dict[GroupId, dict[Place, set[ProducerId]]] = {}
        """The producers whose open transactions have an offset for a partition."""
        self._replayed = 0

    # ---- the records

    def replay(
        self, group: GroupId, place: Place, value: OffsetCommitValue | None, producer_id: ProducerId | None
    ) -> None:
        """Take up a record: a commit, one within a producer's transaction, or the removal of whatever there is."""
        self._replayed += 1
        if value is None:
            self._forget(group, place)
        elif producer_id is None:
            self._committed.setdefault(group, {})[place] = self._offset_of(value)
        else:
            self._pending.setdefault(producer_id, {})[group, place] = self._offset_of(value)
            self._producers.setdefault(group, {}).setdefault(place, set()).add(producer_id)

    def _offset_of(self, value: OffsetCommitValue) -> CommittedOffset:
        return CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            self._replayed,
        )

    def _forget(self, group: GroupId, place: Place) -> None:
        for producer_id in [*self._producers.get(group, {}).get(place, ())]:
            self._release(group, place, producer_id)
            pending = self._pending[producer_id]
            del pending[group, place]
            if not pending:
                del self._pending[producer_id]
        committed = self._committed.get(group)
        if committed is not None:
            committed.pop(place, None)
            if not committed:
                del self._committed[group]

    def _release(self, group: GroupId, place: Place, producer_id: ProducerId) -> None:
        places = self._producers[group]
        places[place].discard(producer_id)
        if not places[place]:
            del places[place]
        if not places:
            del self._producers[group]

    def end_transaction(self, producer_id: ProducerId, committed: bool) -> None:
        """A marker: the producer's pending offsets take effect, unless a later commit exists, or are dropped (TXV-08)."""
        for (group, place), pending in self._pending.pop(producer_id, {}).items():
            self._release(group, place, producer_id)
            if committed:
                offsets = self._committed.setdefault(group, {})
                standing = offsets.get(place)
                if standing is None or pending.number > standing.number:
                    offsets[place] = pending

    # ---- questions

    def of(self, group: GroupId) -> dict[Place, CommittedOffset]:
        """A group's committed offsets; none for an unknown group (OFF-02)."""
        return self._committed.get(group, {})

    def is_unstable(self, group: GroupId, place: Place) -> bool:
        """Whether an open transaction may yet change the partition's offset (KIP-447)."""
        return place in self._producers.get(group, {})

    def has_pending(self, group: GroupId) -> bool:
        return group in self._producers

    def has(self, group: GroupId, place: Place) -> bool:
        """Whether there is anything of the partition to remove."""
        return place in self.of(group) or self.is_unstable(group, place)

    # ---- removing

    def tombstones(self, group: GroupId) -> list[KeyValue]:
        """The records that remove everything a group has committed, pending offsets too."""
        places = dict.fromkeys([*self.of(group), *self._producers.get(group, {})])
        return [offset_tombstone(group, place) for place in places]

    def expired(self, group: GroupId, place: Place, now: TimestampMs, since: TimestampMs, retention_ms: int) -> bool:
        """Whether a committed offset's time is over; one that a transaction may yet change is kept (OFF-15)."""
        return self.of(group)[place].is_expired(now, since, retention_ms) and not self.is_unstable(group, place)

    def of_topics(self, topics: Mapping[TopicId, TopicName]) -> Iterator[tuple[GroupId, Place]]:
        """The groups and partitions with offsets of deleted topics, pending ones too (OFF-16)."""
        gone = {name: id for id, name in topics.items()}
        for group, offsets in self._committed.items():
            for place, offset in offsets.items():
                if place[0] in gone and offset.is_of(gone[place[0]]):
                    yield group, place
        for pending in self._pending.values():
            for (group, place), offset in pending.items():
                if place[0] in gone and offset.is_of(gone[place[0]]):
                    yield group, place


def offset_tombstone(group: GroupId, place: Place) -> KeyValue:
    return offset_record(group, place, None)
