"""The committed offsets of groups, and those of open transactions.

An offset that is committed within a transaction is *pending* until the transaction's marker commits it. It then takes
effect with its own place in the log, so that a later ordinary commit is not overwritten. Source: requirements OFF-*,
TXV-08, TXV-09;
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
    """A group's committed offset in a partition."""

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    committed_at: TimestampMs
    expires_at: TimestampMs
    """The time at which it expires, whatever the retention; -1 if the commit has none (requests 2 to 4 may have one)."""
    topic_id: TopicId
    """The id of the topic at the commit; `NO_UUID` if unknown."""
    number: int
    """The number of records of the shard's partition up to this one."""

    def is_expired(self, now: TimestampMs, since: TimestampMs, retention_ms: int) -> bool:
        """Whether an offset whose retention began at `since` has expired."""
        return now >= self.expires_at if self.expires_at != NO_EXPIRY else now - since >= retention_ms

    def is_of(self, topic_id: TopicId) -> bool:
        """Whether the offset may be of the topic with that id; True if either id is unknown."""
        return NO_UUID in (topic_id, self.topic_id) or topic_id == self.topic_id


class Offsets:
    """A shard's offsets, by group and partition; only records change them."""

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
        """Replay a record: an ordinary commit, a commit within a producer's transaction, or a tombstone."""
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
        """Replay a marker: the producer's pending offsets take effect, unless a later commit exists, or are dropped (TXV-08)."""
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
        """Whether an open transaction has a pending offset for the partition (KIP-447)."""
        return place in self._producers.get(group, {})

    def has_pending(self, group: GroupId) -> bool:
        return group in self._producers

    def has(self, group: GroupId, place: Place) -> bool:
        """Whether the partition has a committed or pending offset."""
        return place in self.of(group) or self.is_unstable(group, place)

    # ---- removing

    def tombstones(self, group: GroupId) -> list[KeyValue]:
        """The tombstones of all offsets of a group, pending ones too."""
        places = dict.fromkeys([*self.of(group), *self._producers.get(group, {})])
        return [offset_tombstone(group, place) for place in places]

    def expired(self, group: GroupId, place: Place, now: TimestampMs, since: TimestampMs, retention_ms: int) -> bool:
        """Whether a committed offset has expired; one with a pending offset in a transaction is kept (OFF-15)."""
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
