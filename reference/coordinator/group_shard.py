"""The groups and the offsets of one partition of `__consumer_offsets`.

On becoming leader of the partition a broker rebuilds the shard by replaying its records; see
`reference.node.coordination`.
It holds groups of both types under their ids, and the offsets of all of them.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorShard.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from reference.coordinator import group_expiry
from reference.coordinator.classic_group import ClassicGroup
from reference.coordinator.classic_groups import ClassicGroups
from reference.coordinator.classic_member import Client, Terms
from reference.coordinator.classic_members import ClassicMembers
from reference.coordinator.consumer_group import ConsumerGroup
from reference.coordinator.consumer_group_records import RECORD_TYPES as CONSUMER_GROUP_RECORDS
from reference.coordinator.consumer_groups import ConsumerGroups
from reference.coordinator.consumer_member import ConsumerMember
from reference.coordinator.group import Group, Say, Token, Write
from reference.coordinator.group_records import Place, decode_key, decode_value, read_offset_key, record_type
from reference.coordinator.group_settings import ConsumerGroupSettings, GroupSettings, SettingsOf
from reference.coordinator.offset_commits import OffsetCommits
from reference.coordinator.offset_fetches import OffsetFetches
from reference.coordinator.offsets import Offsets
from reference.coordinator.topics import Topics
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.group_metadata_record import GroupMetadataKey, GroupMetadataValue
from reference.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from reference.protocol.messages.join_group import JoinGroupRequest
from reference.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from reference.protocol.messages.legacy_offset_commit_record import LegacyOffsetCommitKey, LegacyOffsetCommitValue
from reference.protocol.messages.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from reference.protocol.messages.sync_group import SyncGroupRequest
from reference.protocol.primitives import (
    Buffer,
    Chance,
    GroupId,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicId,
    TopicName,
)
from reference.replication.replica import Trace

Producer = tuple[ProducerId, ProducerEpoch]

MAX_TOMBSTONES = 1_000
"""The most tombstones in one write."""


class GroupShard:
    """One partition's groups and offsets. `write` appends records, and `say` sends responses."""

    def __init__(
        self,
        settings: GroupSettings,
        chance: Chance,
        topics: Topics,
        write: Write,
        say: Say,
        consumer_settings: SettingsOf = lambda group: ConsumerGroupSettings(),
        trace: Trace | None = None,
    ) -> None:
        self._settings = settings
        self._chance = chance
        self._write = write
        self._expiry_at: TimestampMs | None = None
        self.groups: dict[GroupId, Group] = {}
        self.offsets = Offsets()
        self.commits = OffsetCommits(self.groups, self.offsets, topics, settings)
        self.fetches = OffsetFetches(self.groups, self.offsets, topics)
        self.classic = ClassicGroups(self.groups, settings, write, say, self._new_member_id)
        self.consumer = ConsumerGroups(
            self.groups, topics, consumer_settings, self._new_consumer_member_id, write, self, trace
        )
        self.classic_members = ClassicMembers(self.consumer, say)
        self._replays: dict[int, Callable[[Buffer, Buffer | None, Producer | None], None]] = {
            LegacyOffsetCommitKey.KEY: self._replay_legacy_offset,
            OffsetCommitKey.KEY: self._replay_offset,
            GroupMetadataKey.KEY: self._replay_classic_group,
            **dict.fromkeys(CONSUMER_GROUP_RECORDS, self._replay_consumer_group),
        }

    def _new_member_id(self, prefix: str) -> str:
        bits = f"{self._chance.getrandbits(128):032x}"
        return f"{prefix}-{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"

    def _new_consumer_member_id(self) -> str:
        """A random UUID of version 4 in Kafka's encoding, without a leading hyphen."""
        id = UUID(int=self._chance.getrandbits(128), version=4)
        text = urlsafe_b64encode(id.bytes).decode().rstrip("=")
        return f"_{text[1:]}" if text.startswith("-") else text

    # ---- members of the classic protocol, in whatever group they are

    def join(self, request: JoinGroupRequest, version: int, client: Client, token: Token, now: TimestampMs) -> None:
        group = self._mixed(request.group_id)
        if group is not None:
            self.classic_members.join(group, request, version, client, token, now)
        else:
            self.classic.join(request, version, client, token, now)

    def sync(self, request: SyncGroupRequest, token: Token, now: TimestampMs) -> None:
        group = self._mixed(request.group_id)
        if group is not None:
            self.classic_members.sync(group, request, token, now)
        else:
            self.classic.sync(request, token, now)

    def heartbeat(self, request: HeartbeatRequest, now: TimestampMs) -> HeartbeatResponse:
        group = self._mixed(request.group_id)
        if group is not None:
            return self.classic_members.heartbeat(group, request, now)
        return self.classic.heartbeat(request, now)

    def leave(self, request: LeaveGroupRequest, version: int, now: TimestampMs) -> LeaveGroupResponse:
        """Errors: KafkaError where a consumer group's records cannot be written."""
        group = self._mixed(request.group_id)
        if group is not None:
            return self.classic_members.leave(group, request, version, now)
        return self.classic.leave(request, version, now)

    def _mixed(self, id: GroupId) -> ConsumerGroup | None:
        """The consumer group of that id, if it has members; an empty one may become a classic group."""
        group = self.groups.get(id)
        return group if isinstance(group, ConsumerGroup) and not group.is_empty else None

    def upgraded(self, group: ClassicGroup) -> None:
        """Fail pending requests of a classic group that becomes a consumer group: the members have to join again (CGH-17)."""
        for member in group.members.values():
            self.classic.rebalances.refuse_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS)

    def downgraded(self, id: GroupId, members: Sequence[ConsumerMember], is_stale: bool, now: TimestampMs) -> None:
        """Give the members of a new classic group their full lists of protocols again, which its record does not have."""
        group = self.classic.find(id)
        assert group is not None, "its record has just been replayed"
        for each in members:
            assert each.classic is not None, "a classic group has classic members"
            terms = Terms([*each.classic.protocols], each.classic.session_timeout_ms, each.rebalance_timeout_ms)
            group.update(group.members[each.id], terms)
        self.classic.rebalances.loaded(group, now)
        if is_stale:
            self.classic.rebalances.rebalance(group, now)

    # ---- the log

    def replay(self, key: Buffer, value: Buffer | None, now: TimestampMs, producer: Producer | None) -> None:
        """Replay one record; skip a type that this coordinator does not keep.

        Errors: CodecError if the bytes are no such record.
        """
        replay = self._replays.get(record_type(key))
        if replay is not None:
            replay(key, value, producer)

    def _replay_offset(self, key: Buffer, value: Buffer | None, producer: Producer | None) -> None:
        group, place = read_offset_key(bytes(key))
        self._take_up_offset(group, place, decode_value(OffsetCommitValue, value), producer)

    def _replay_legacy_offset(self, key: Buffer, value: Buffer | None, producer: Producer | None) -> None:
        """Replay record type 0, which Kafka has not written since 0.9."""
        old_key, old = decode_key(LegacyOffsetCommitKey, key), decode_value(LegacyOffsetCommitValue, value)
        new = old and OffsetCommitValue(offset=old.offset, metadata=old.metadata, commit_timestamp=old.commit_timestamp)
        self._take_up_offset(old_key.group, (old_key.topic, old_key.partition), new, producer)

    def _take_up_offset(
        self, group: GroupId, place: Place, value: OffsetCommitValue | None, producer: Producer | None
    ) -> None:
        if value is not None and group not in self.groups:
            self.groups[group] = ClassicGroup(group)
        self.offsets.replay(group, place, value, producer[0] if producer is not None else None)

    def _replay_classic_group(self, key: Buffer, value: Buffer | None, producer: Producer | None) -> None:
        self.classic.replay(decode_key(GroupMetadataKey, key).group, decode_value(GroupMetadataValue, value))

    def _replay_consumer_group(self, key: Buffer, value: Buffer | None, producer: Producer | None) -> None:
        self.consumer.replay(key, value)

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """End a transaction: its pending offsets take effect if `committed`, or are dropped."""
        self.offsets.end_transaction(producer[0], committed)

    # ---- coming and going

    def loaded(self, now: TimestampMs) -> None:
        self.classic.loaded(now)
        self.consumer.loaded(now)
        self._expiry_at = now + self._settings.offsets_retention_check_interval_ms

    def unload(self, now: TimestampMs) -> None:
        self.classic.unload()

    # ---- time

    def tick(self, now: TimestampMs) -> None:
        """Handle sessions, rebalances and expiry that are due."""
        self.classic.rebalances.tick(now)
        self.consumer.tick(now)
        if self._expiry_at is not None and now >= self._expiry_at:
            self._expiry_at = now + self._settings.offsets_retention_check_interval_ms
            retention_ms = self._settings.offsets_retention_ms
            self._remove(group_expiry.expire(self.groups, self.offsets, retention_ms, now), now)

    def next_deadline(self) -> TimestampMs | None:
        times = [self.classic.rebalances.next_deadline(), self.consumer.next_deadline(), self._expiry_at]
        return min((time for time in times if time is not None), default=None)

    # ---- the metadata

    def topics_changed(self, names: Iterable[TopicName], *, are_new: bool) -> None:
        """Handle topics that were created, grown or deleted (CGH-15); `are_new` if some of them were created."""
        self.consumer.topics_changed(names, are_new=are_new)

    def topics_deleted(self, topics: dict[TopicId, TopicName], now: TimestampMs) -> None:
        """Remove the offsets of deleted topics (OFF-16)."""
        self._remove(group_expiry.of_deleted_topics(self.offsets, topics), now)

    def _remove(self, tombstones: list[tuple[bytes, bytes | None]], now: TimestampMs) -> None:
        """Write tombstones in batches. After a failed write, the next expiry finds the rest again."""
        try:
            for at in range(0, len(tombstones), MAX_TOMBSTONES):
                self._write(tombstones[at : at + MAX_TOMBSTONES], now)
        except KafkaError:
            return
