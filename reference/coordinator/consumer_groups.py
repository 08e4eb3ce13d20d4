"""The consumer groups (KIP-848) among the groups of one shard: heartbeats, timeouts, and replayed records.

The coordinator writes the records of each decision in one write; groups change when these are replayed. Only timers
(`consumer_timers`) are not in the log: a member that misses one is fenced, as if it had left (CGH-13). A new
coordinator starts them again.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager of 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from reference.coordinator import consumer_group_records as records
from reference.coordinator.assignment import with_epoch
from reference.coordinator.classic_group import ClassicGroup
from reference.coordinator.consumer_group import ConsumerGroup
from reference.coordinator.consumer_group_records import decode_record
from reference.coordinator.consumer_group_replay import is_gone, replay
from reference.coordinator.consumer_heartbeat import Heartbeat, response_to
from reference.coordinator.consumer_heartbeat_check import check_instance
from reference.coordinator.consumer_member import JOINING, LEAVING, LEAVING_STATIC, ConsumerMember
from reference.coordinator.consumer_timers import ConsumerTimers, Due, Wait
from reference.coordinator.group import Group, KeyValue, Write
from reference.coordinator.group_conversions import downgrade, upgrade
from reference.coordinator.group_settings import SettingsOf
from reference.coordinator.group_tracing import BEYOND, GroupTracing, Steps
from reference.coordinator.metadata_hash import TopicHashes
from reference.coordinator.subscription_patterns import must_resolve, resolve
from reference.coordinator.topics import Topics
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from reference.protocol.primitives import Buffer, GroupId, TimestampMs, TopicName
from reference.replication.replica import Trace


class Conversions(Protocol):
    """Handles a classic group's pending requests and timers when a group changes its type."""

    def upgraded(self, group: ClassicGroup) -> None:
        """The group is about to become a consumer group."""
        ...

    def downgraded(self, id: GroupId, members: Sequence[ConsumerMember], is_stale: bool, now: TimestampMs) -> None:
        """The group has become a classic one; `is_stale` requires a rebalance."""
        ...


class ConsumerGroups:
    """All consumer groups of a shard; `groups` is the shard's one table of groups by id, of both types."""

    def __init__(
        self,
        groups: MutableMapping[GroupId, Group],
        topics: Topics,
        settings_of: SettingsOf,
        new_member_id: Callable[[], str],
        write: Write,
        conversions: Conversions,
        trace: Trace | None = None,
    ) -> None:
        self._groups = groups
        self._conversions = conversions
        self._write = write
        self._tracing = GroupTracing(trace) if trace is not None else None
        self._newest_topics_version = topics.version
        self.topics = topics
        self.settings_of = settings_of
        self.new_member_id = new_member_id
        self.hashes = TopicHashes(topics)
        self.timers = ConsumerTimers(lambda group: settings_of(group).session_timeout_ms)

    # ---- heartbeats

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str, now: TimestampMs
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle a heartbeat that has passed `check_request`.

        Errors: KafkaError, also if the records cannot be written; then the group is unchanged.
        """
        if request.member_epoch in (LEAVING, LEAVING_STATIC):
            return self.leave_group(request, now)
        group, written = self._group(request)
        self.check_room(group, request.member_id, request.instance_id)
        settings = self.settings_of(group.id)
        steps: Steps | None = [] if self._tracing is not None else None
        beat = Heartbeat(group, self.topics, self.hashes, settings, now, written, steps=steps)
        member = beat.decide(request, request.member_id or self.new_member_id(), client_id, client_host)
        self.carry_out(beat, member)
        return response_to(request, beat.before, member, settings.heartbeat_interval_ms)

    def carry_out(self, beat: Heartbeat, member: ConsumerMember) -> None:
        """Write the decision about a member, and start the timers that follow from it.

        A heartbeat that cannot be written still renews the member's session. Errors: KafkaError.
        """
        group, now = beat.group, beat.now
        former = self._groups.get(group.id)
        if isinstance(former, ClassicGroup):
            self._conversions.upgraded(former)
        are_patterns_due = self._are_patterns_due(beat)
        if member.classic is None:
            self._begin_waits(beat, member)
        self._write(beat.records, now)
        if self._tracing is not None:
            if beat.steps is None or isinstance(former, ClassicGroup):
                self._tracing.trace_step(BEYOND, group.id)
            else:
                self._tracing.trace_steps(group, beat.steps)
        if isinstance(former, ClassicGroup):
            for each in group.members.values():
                self.timers.received(group.id, each, now)
        if member.classic is not None:
            self._begin_waits(beat, member)
        if are_patterns_due:
            self.timers.match_patterns(group.id, now)

    def _begin_waits(self, beat: Heartbeat, member: ConsumerMember) -> None:
        self.timers.received(beat.group.id, member, beat.now)
        if beat.has_moved:
            self.timers.moved(beat.group.id, member, beat.now)

    def _are_patterns_due(self, beat: Heartbeat) -> bool:
        """Whether the patterns have to be matched, by the group's patterns before this heartbeat."""
        newest, interval_ms = self._newest_topics_version, beat.settings.regex_refresh_interval_ms
        return not self.timers.are_patterns_due(beat.group.id) and must_resolve(
            beat.group, beat.members.values(), beat.pattern, newest, interval_ms, beat.now
        )

    def of(self, id: GroupId) -> ConsumerGroup:
        """Errors: KafkaError GROUP_ID_NOT_FOUND (CGH-07)."""
        group = self._groups.get(id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {id} is not a consumer group.")
        return group

    def _group(self, request: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, list[KeyValue]]:
        """The group of a heartbeat, and the records that create it or change its type.

        A joining member creates a missing group, and turns a classic group into a consumer group (CGH-17).
        Errors: KafkaError GROUP_ID_NOT_FOUND.
        """
        group = self._groups.get(request.group_id)
        if group is None and request.member_epoch != JOINING:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
        if request.member_epoch != JOINING or isinstance(group, ConsumerGroup):
            return self.of(request.group_id), []
        if isinstance(group, ClassicGroup) and not group.is_empty:
            return upgrade(group, self.topics, self.hashes, self.settings_of(group.id))
        return ConsumerGroup(request.group_id), group.tombstones() if group is not None else []

    def check_room(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """Errors: KafkaError GROUP_MAX_SIZE_REACHED, but not for a static member that comes back (CGH-43).

        Apache Kafka before 4.4 refuses that too, until the session of the member's former process is over (KAFKA-20601).
        """
        max_size = self.settings_of(group.id).max_size
        is_known = member_id in group.members or (instance_id is not None and instance_id in group.static_members)
        if len(group.members) >= max_size and not is_known:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {max_size} members.",
            )

    # ---- leaving

    def leave_group(self, request: ConsumerGroupHeartbeatRequest, now: TimestampMs) -> ConsumerGroupHeartbeatResponse:
        """Remove a member; a static member may leave temporarily (CGH-10, CGH-11)."""
        group = self.of(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            existing = group.static_member(request.instance_id)
            member = check_instance(existing, request.member_id, request.instance_id)
        if request.instance_id is not None and request.member_epoch == LEAVING_STATIC:
            away = replace(
                member, epoch=LEAVING_STATIC, assigned=with_epoch(member.assigned, JOINING), pending_revocation={}
            )
            self._write([records.current_record(group.id, away)], now)
            if self._tracing is not None:
                self._tracing.trace_step(BEYOND, group.id)
        else:
            self.fence(group, [member], now)
            if self._tracing is not None:
                self._tracing.trace_step("LeaveGroup", group.id, member=member.id, groupEpoch=group.epoch)
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember], now: TimestampMs) -> None:
        """Remove members: their partitions become free, and the others get new targets with their next heartbeats.

        If all others are of the classic protocol, the group becomes a classic one. Errors: KafkaError.
        """
        gone = {member.id for member in members}
        others = [each for each in group.members.values() if each.id not in gone]
        if self._may_become_classic(group, others):
            self.make_classic(group, others, is_stale=True, now=now)
        else:
            self._write(self._without(group, members, others), now)
            for id in gone:
                self.timers.forget(group.id, id)

    def _without(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], others: Sequence[ConsumerMember]
    ) -> list[KeyValue]:
        written = [record for member in members for record in records.member_tombstones(group.id, member.id)]
        left = {each.regex for each in others}
        gone = {member.regex for member in members if member.regex} - left
        written += [records.pattern_tombstone(group.id, pattern) for pattern in sorted(gone)]
        metadata_hash = self.hashes.of({topic for each in others for topic in group.topics_of(each)})
        return [*written, records.group_epoch_record(group.id, group.epoch + 1, metadata_hash)]

    # ---- groups that change their type

    def _may_become_classic(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> bool:
        settings = self.settings_of(group.id)
        is_classic = bool(members) and all(member.classic is not None for member in members)
        return is_classic and settings.may_downgrade and len(members) <= settings.max_classic_size

    def may_become_classic(self, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
        """Whether the group becomes classic when a classic member replaces `replaced`, its last member of the new protocol."""
        if replaced.classic is not None:
            return False
        settings = self.settings_of(group.id)
        is_classic = all(each.classic is not None for each in group.members.values() if each.id != replaced.id)
        return is_classic and settings.may_downgrade and len(group.members) <= settings.max_classic_size

    def make_classic(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], *, is_stale: bool, now: TimestampMs
    ) -> None:
        """Convert the group to a classic one of these members. Errors: KafkaError."""
        former = [*group.members]
        if self._tracing is not None:
            self._tracing.trace_step(BEYOND, group.id)
        self._write(downgrade(group, members, self.topics, now), now)
        for id in former:
            self.timers.forget(group.id, id)
        self._conversions.downgraded(group.id, members, is_stale, now)

    # ---- time

    def next_deadline(self) -> TimestampMs | None:
        """The time of the next timer."""
        return self.timers.next_deadline()

    def tick(self, now: TimestampMs) -> None:
        """Fence members whose timers have expired, and match the patterns that are due, each in one write."""
        for _ in range(len(self.timers)):
            due = self.timers.take_due(now)
            if due is None:
                return
            try:
                self._carry_out_due(due, now)
            except KafkaError:
                self.timers.again(due, now)

    def _carry_out_due(self, due: Due, now: TimestampMs) -> None:
        group = self._groups.get(due.group)
        if not isinstance(group, ConsumerGroup):
            return
        if due.wait is Wait.PATTERNS:
            written = resolve(group, self.topics, self.hashes, now)
            if written:
                self._write(written, now)
            return
        member = group.members.get(due.member)
        if member is not None and self.timers.is_over(due, member):
            self.lose_member(group, member, now)

    def lose_member(self, group: ConsumerGroup, member: ConsumerMember, now: TimestampMs) -> None:
        """Fence a member that has missed a timer (CGH-13). Errors: KafkaError."""
        self.fence(group, [member], now)
        if self._tracing is not None:
            self._tracing.trace_step("LoseMember", group.id, member=member.id, groupEpoch=group.epoch)

    # ---- the log and the metadata

    def replay(self, key: Buffer, value: Buffer | None) -> None:
        """Replay a record of a consumer group. Errors: CodecError."""
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
        """Start every member's session, and its time to revoke partitions."""
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    self.timers.loaded(group.id, member, now)

    def topics_changed(self, names: Iterable[TopicName], *, are_new: bool) -> None:
        """Make every group compare its topics again, after topics were created, grown, moved or deleted (CGH-15). Match
        patterns again only if there are new topics (CGH-16)."""
        self.hashes.forget(names)
        if are_new:
            self._newest_topics_version = self.topics.version
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                group.checked_at_epoch = None
