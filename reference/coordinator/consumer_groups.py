"""The consumer groups (KIP-848) among the groups of one shard: heartbeats decided, descriptions, and what time brings.

Decisions are records and an answer; the groups change when the records are replayed. Beside the records there are only
timers: a member's session, and the time that it has for giving up partitions; whoever lets one pass is fenced, as if it had
left (CGH-13). A new coordinator starts them anew. Source: org.apache.kafka.coordinator.group.GroupMetadataManager of 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import replace
from typing import Any, cast

from reference.coordinator import consumer_group_records as records
from reference.coordinator.assignment import with_epoch
from reference.coordinator.consumer_group import ConsumerGroup
from reference.coordinator.consumer_group_records import decode_record
from reference.coordinator.consumer_group_replay import is_gone, replay
from reference.coordinator.consumer_group_settings import ConsumerGroupSettings
from reference.coordinator.consumer_heartbeat import Heartbeat, response_to
from reference.coordinator.consumer_heartbeat_check import check_instance
from reference.coordinator.consumer_member import JOINING, LEAVING, LEAVING_STATIC, ConsumerMember, MemberState
from reference.coordinator.group import Decided, Group, KeyValue, Write
from reference.coordinator.metadata_hash import TopicHashes
from reference.coordinator.subscription_patterns import must_resolve, resolve
from reference.coordinator.timers import Timers
from reference.coordinator.topics import Topics
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from reference.protocol.primitives import Buffer, GroupId, TimestampMs, TopicName

RETRY_MS = 500
"""When what time brought is tried again, where its records could not be written."""

SESSION, REBALANCE, PATTERNS = "session", "rebalance", "patterns"

TimerKey = tuple[str, GroupId, str]
"""Of what kind, of which group, and of which member (none for its patterns)."""


class ConsumerGroups:
    """All consumer groups of a shard; `groups` is the shard's one table of groups by id, of both types."""

    def __init__(
        self,
        groups: MutableMapping[GroupId, Group],
        topics: Topics,
        settings: ConsumerGroupSettings,
        new_member_id: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._settings = settings
        self._new_member_id = new_member_id
        self._hashes = TopicHashes(topics)
        self._newest_topics_version = topics.version
        self._timers: Timers[TimerKey] = Timers()
        self._revoking_epochs: dict[tuple[GroupId, str], int] = {}
        """The epoch in which a member is to give up partitions: its timer means nothing in another."""

    # ---- heartbeats

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str, now: TimestampMs
    ) -> Decided[ConsumerGroupHeartbeatResponse]:
        """Decide on a heartbeat that `check_request` has let through. Errors: KafkaError; nothing is then changed."""
        if request.member_epoch in (LEAVING, LEAVING_STATIC):
            return self._leave(request)
        written: list[KeyValue] = []
        group = (
            self._joined(request.group_id, written) if request.member_epoch == JOINING else self.of(request.group_id)
        )
        _check_room(group, request.member_id, self._settings.max_size)
        beat = Heartbeat(group, self._topics, self._hashes, self._settings, now, written)
        member = beat.decide(request, request.member_id or self._new_member_id(), client_id, client_host)
        self._time(beat, member, now)
        response = response_to(request, beat.before, member, self._settings.heartbeat_interval_ms)
        return Decided(response, beat.records)

    def of(self, id: GroupId) -> ConsumerGroup:
        """Errors: KafkaError GROUP_ID_NOT_FOUND (CGH-07)."""
        group = self._groups.get(id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {id} is not a consumer group.")
        return group

    def _joined(self, id: GroupId, written: list[KeyValue]) -> ConsumerGroup:
        """The group that a member joins: a new one where there is none, or an empty one of the classic type (CGH-17)."""
        group = self._groups.get(id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is not None:
            if not group.is_empty:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {id} is not a consumer group.")
            written += group.tombstones()
        return ConsumerGroup(id)

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> Decided[ConsumerGroupHeartbeatResponse]:
        """A member goes for good, or, a static one, for now (CGH-10, CGH-11)."""
        group = self.of(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            existing = group.static_member(request.instance_id)
            member = check_instance(existing, request.member_id, request.instance_id)
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is not None and request.member_epoch == LEAVING_STATIC:
            away = replace(
                member, epoch=LEAVING_STATIC, assigned=with_epoch(member.assigned, JOINING), pending_revocation={}
            )
            return Decided(response, [records.current_record(group.id, away)])
        return Decided(response, self._fence(group, member))

    def _fence(self, group: ConsumerGroup, member: ConsumerMember) -> list[KeyValue]:
        """A member is gone: what it owned is free, and the others get new targets with their next heartbeats."""
        self._forget(group.id, member.id)
        written = records.member_tombstones(group.id, member.id)
        if member.regex and group.subscribers_of(member.regex) == [member.id]:
            written.append(records.pattern_tombstone(group.id, member.regex))
        others = [each for each in group.members.values() if each.id != member.id]
        metadata_hash = self._hashes.of({topic for each in others for topic in group.topics_of(each)})
        written.append(records.group_epoch_record(group.id, group.epoch + 1, metadata_hash))
        return written

    # ---- time

    def _time(self, beat: Heartbeat, member: ConsumerMember, now: TimestampMs) -> None:
        """The timers that follow from a heartbeat."""
        group = beat.group
        self._timers.schedule((SESSION, group.id, member.id), now + self._settings.session_timeout_ms)
        if beat.has_moved:
            self._time_revocation(group.id, member, now)
        key = (PATTERNS, group.id, "")
        newest, interval_ms = self._newest_topics_version, self._settings.regex_refresh_interval_ms
        if self._timers.deadline_of(key) is None and must_resolve(
            group, beat.members.values(), beat.pattern, newest, interval_ms, now
        ):
            self._timers.schedule(key, now)

    def _time_revocation(self, group: GroupId, member: ConsumerMember, now: TimestampMs) -> None:
        key = (REBALANCE, group, member.id)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self._timers.schedule(key, now + member.rebalance_timeout_ms)
            self._revoking_epochs[group, member.id] = member.epoch
        else:
            self._timers.cancel(key)
            self._revoking_epochs.pop((group, member.id), None)

    def _forget(self, group: GroupId, member: str) -> None:
        for kind in (SESSION, REBALANCE):
            self._timers.cancel((kind, group, member))
        self._revoking_epochs.pop((group, member), None)

    def next_deadline(self) -> TimestampMs | None:
        """When `tick` has something to do next."""
        return self._timers.next_deadline()

    def tick(self, now: TimestampMs, write: Write) -> None:
        """Fence whose time is over, and match the patterns that are due; each by one write."""
        for _ in range(len(self._timers)):
            key = self._timers.take_due(now)
            if key is None:
                return
            written = self._due(key, now)
            try:
                if written:
                    write(written, now)
            except KafkaError:
                self._timers.schedule(key, now + RETRY_MS)

    def _due(self, key: TimerKey, now: TimestampMs) -> list[KeyValue]:
        kind, group_id, member_id = key
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return []
        if kind == PATTERNS:
            return resolve(group, self._topics, self._hashes, now)
        member = group.members.get(member_id)
        if member is None or (kind == REBALANCE and self._revoking_epochs.get((group_id, member_id)) != member.epoch):
            return []
        return self._fence(group, member)

    # ---- the log and the metadata

    def replay(self, key: Buffer, value: Buffer | None) -> None:
        """Take up a record of a consumer group. Errors: CodecError."""
        decoded = decode_record(key, value)
        if decoded is None:
            return
        table, change = decoded
        id: GroupId = cast("Any", table).group_id
        group = self._groups.get(id)
        if not isinstance(group, ConsumerGroup):
            if change is None:
                return
            group = self._groups[id] = ConsumerGroup(id)
        replay(group, table, change)
        if is_gone(group):
            del self._groups[id]

    def loaded(self, now: TimestampMs) -> None:
        """Every member has a whole session to be heard of, and as long as before to give up what it is to."""
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    self._timers.schedule((SESSION, group.id, member.id), now + self._settings.session_timeout_ms)
                    self._time_revocation(group.id, member, now)

    def topics_changed(self, names: Iterable[TopicName]) -> None:
        """Topics were made, grown, placed elsewhere or deleted: the groups that subscribe to them look again (CGH-15)."""
        changed = frozenset(names)
        self._hashes.forget(changed)
        self._newest_topics_version = self._topics.version
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                group.checked_at_epoch = None


def _check_room(group: ConsumerGroup, member_id: str, max_size: int) -> None:
    if len(group.members) >= max_size and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {max_size} members.",
        )
