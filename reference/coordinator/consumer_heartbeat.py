"""How the coordinator handles one heartbeat of a consumer group member (KIP-848).

A heartbeat carries the fields that changed for the member, and null for the others. In this order it may:
- add the member, or replace a static member that left;
- update the member's subscription;
- raise the group epoch, where the subscription or the topics changed;
- compute a new target assignment, where its epoch is below the group epoch;
- reconcile the member's assignment with its target.

Each change is written as a record. The response carries the member's epoch, and its assignment where that changed.
Source: GroupMetadataManager.consumerGroupHeartbeat of 4.3.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from reference.coordinator import consumer_group_records as records
from reference.coordinator.assignment import Assignment, by_topic
from reference.coordinator.consumer_group import ConsumerGroup, target_of
from reference.coordinator.consumer_heartbeat_check import NO_TIMEOUT, check_epoch, check_instance, check_released
from reference.coordinator.consumer_member import JOINING, ConsumerMember
from reference.coordinator.group import KeyValue
from reference.coordinator.group_settings import ConsumerGroupSettings
from reference.coordinator.group_tracing import BEYOND, Steps, heartbeat_arguments, targets_of
from reference.coordinator.metadata_hash import TopicHashes
from reference.coordinator.reconciliation import Target, reconcile
from reference.coordinator.subscription_patterns import PatternChange, change_pattern
from reference.coordinator.target_assignment import ASSIGNORS, ids_of, make_targets, may_assign, target_records
from reference.coordinator.topics import Topics
from reference.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from reference.protocol.primitives import TimestampMs


@dataclass(slots=True)
class Heartbeat:
    """One heartbeat while it is handled. It collects the `records` to write; `decide` returns the member after it."""

    group: ConsumerGroup
    topics: Topics
    hashes: TopicHashes
    settings: ConsumerGroupSettings
    now: TimestampMs
    records: list[KeyValue] = field(default_factory=list[KeyValue])
    members: dict[str, ConsumerMember] = field(default_factory=dict[str, ConsumerMember])
    """The group's members with this heartbeat's changes."""
    before: ConsumerMember | None = None
    epoch: int = 0
    """The group epoch after this heartbeat."""
    pattern: PatternChange = field(default_factory=PatternChange)
    has_moved: bool = False
    """Whether reconciliation changed the member."""
    steps: Steps | None = None
    """The steps to trace; None where tracing is off."""

    def __post_init__(self) -> None:
        self.members = dict(self.group.members)

    def decide(
        self, request: ConsumerGroupHeartbeatRequest, member_id: str, client_id: str, client_host: str
    ) -> ConsumerMember:
        """Take all steps, and return the member after them. Errors: KafkaError; the caller then drops `records`."""
        owned = owned_of(request)
        before = self._member(request, member_id, owned)
        after = self.advance(before, _as_said(before, request, client_id, client_host), owned)
        if self.steps is not None:
            self.trace_step("Heartbeat", **heartbeat_arguments(after, request.member_epoch, owned))
        return after

    def trace_step(self, action: str, **arguments: Any) -> None:
        """Add a step of the specification, traced when the records are written. Check `steps` first: arguments cost time."""
        assert self.steps is not None
        self.steps.append((action, arguments))

    def advance(self, before: ConsumerMember, said: ConsumerMember, owned: Assignment | None) -> ConsumerMember:
        """Take all steps after the first. `said` is the member with the heartbeat's fields. Errors: as `decide`."""
        is_changed = self.take_up(before, said)
        epoch, target = self.update_target(said, self.epoch)
        return self.move(said, epoch, target, owned, is_changed)

    def take_up(self, before: ConsumerMember, said: ConsumerMember) -> bool:
        """Update the member, and raise the group epoch if that matters; return whether the subscription changed.

        Errors: as `decide`.
        """
        self.before = before
        self.members[said.id] = said
        names_changed = said.topics != before.topics
        if self.steps is not None and (said.regex or (names_changed and said.id in self.group.members)):
            self.trace_step(BEYOND)
        if said != before:
            self.records.append(records.member_record(self.group.id, said))
        self.pattern = change_pattern(self.group, before, said)
        self.records += self.pattern.records
        self.epoch = self.raise_group_epoch(names_changed or self.pattern.is_resolved)
        return names_changed or self.pattern.is_changed

    # ---- the member

    def _member(
        self, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Assignment | None
    ) -> ConsumerMember:
        """The member before this heartbeat, after the checks of its epoch and instance id (CGH-07, CGH-08, CGH-12)."""
        joins = request.member_epoch == JOINING
        if request.instance_id is None:
            member = self.join_group(member_id) if joins else self.group.member(member_id)
        else:
            existing = self.group.static_member(request.instance_id)
            if joins:
                if existing is not None and existing.classic is None:
                    check_released(existing, member_id, request.instance_id)
                return self.joining_static(existing, member_id)
            member = check_instance(existing, member_id, request.instance_id)
        check_epoch(member, request.member_epoch, owned)
        return member

    def join_group(self, member_id: str) -> ConsumerMember:
        """The existing member that joins again, or a new one."""
        return self.group.members.get(member_id) or ConsumerMember(member_id)

    def joining_static(self, existing: ConsumerMember | None, member_id: str) -> ConsumerMember:
        """The member of a new instance id; or the one that replaces an instance's member, with its assignment (CGH-11)."""
        if existing is None:
            return self.join_group(member_id)
        member = replace(existing, id=member_id, epoch=JOINING, previous_epoch=JOINING)
        self.members.pop(existing.id, None)
        if self.steps is not None:
            self.trace_step(BEYOND)
        self.records += [
            *records.member_tombstones(self.group.id, existing.id),
            records.member_record(self.group.id, member),
            records.target_record(self.group.id, member_id, target_of(self.group, member)),
            records.current_record(self.group.id, member),
        ]
        return member

    # ---- the assignment

    def raise_group_epoch(self, subscription_changed: bool) -> int:
        """The group epoch after this heartbeat, raised where the subscription or the topics' metadata changed (CGH-15)."""
        group = self.group
        if not subscription_changed and not group.needs_metadata_check:
            return group.epoch
        subscribed = {topic for member in self.members.values() for topic in group.topics_of(member)}
        metadata_hash = self.hashes.of(subscribed)
        epoch = group.epoch
        if subscription_changed or metadata_hash != group.metadata_hash:
            epoch += 1
            self.records.append(records.group_epoch_record(group.id, epoch, metadata_hash))
            if self.steps is not None:
                self._trace_raised(epoch)
        group.checked_at_epoch = epoch
        if group.has_partition_metadata:
            self.records.append(records.partition_metadata_tombstone(group.id))
        return epoch

    def _trace_raised(self, epoch: int) -> None:
        assert self.before is not None
        if self.before.id in self.group.members:
            self.trace_step("RaiseGroupEpoch", groupEpoch=epoch)
        else:
            self.trace_step("JoinGroup", member=self.before.id, groupEpoch=epoch)

    def update_target(self, member: ConsumerMember, epoch: int) -> tuple[int, Assignment]:
        """The assignment epoch, and the member's target in it. A new target assignment is computed where that epoch is below the
        group epoch and the assignment interval is over (KIP-1263)."""
        group = self.group
        may = may_assign(group.assigned_at, self.settings.assignment_interval_ms, self.now)
        if group.assignment_epoch >= epoch or not may:
            return group.assignment_epoch, target_of(group, member)
        preferred = group.preferred_assignor(self.members.values())
        assignor = (
            preferred if preferred in ASSIGNORS else self.settings.assignors[0]
        )  # a record may name an unknown one
        targets = make_targets(group, self.members, self.topics, ASSIGNORS[assignor])
        self.records += target_records(group, targets, epoch, self.now)
        if self.steps is not None:
            self.trace_step("UpdateTarget", groupEpoch=epoch, target=targets_of(targets))
        return epoch, targets[member.id]

    def move(
        self,
        member: ConsumerMember,
        epoch: int,
        target: Assignment,
        owned: Assignment | None,
        subscription_changed: bool,
    ) -> ConsumerMember:
        """Bring the member closer to its target. Errors: as `decide`."""
        if not subscription_changed and member.is_reconciled_to(epoch):
            return member
        subscribed = ids_of(self.topics, self.group.topics_of(member))
        towards = Target(epoch, target, subscribed.__contains__, self.group.is_free)
        after = reconcile(member, towards, owned, subscription_changed)
        self.has_moved = after != member
        if self.has_moved:
            self.records.append(records.current_record(self.group.id, after))
            self.members[after.id] = after
        return after


def owned_of(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    """The owned partitions in a request; None where the field is null."""
    if request.topic_partitions is None:
        return None
    return frozenset((topic.topic_id, each) for topic in request.topic_partitions for each in topic.partitions)


def _as_said(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str
) -> ConsumerMember:
    """The member with the heartbeat's fields; null, or -1 as rebalance timeout, means unchanged."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=_said(request.instance_id, member.instance_id),
        rack_id=_said(request.rack_id, member.rack_id),
        rebalance_timeout_ms=timeout_ms if timeout_ms != NO_TIMEOUT else member.rebalance_timeout_ms,
        assignor=_said(request.server_assignor, member.assignor),
        topics=frozenset(names) if names is not None else member.topics,
        regex=_said(request.subscribed_topic_regex, member.regex),
        client_id=client_id,
        client_host=client_host,
        classic=None,
    )


def _said(said: str | None, known: str | None) -> str | None:
    return said if said is not None else known


def response_to(
    request: ConsumerGroupHeartbeatRequest,
    before: ConsumerMember | None,
    after: ConsumerMember,
    heartbeat_interval_ms: int,
) -> ConsumerGroupHeartbeatResponse:
    """The response. It carries the assignment only if that changed, or if the request joins or has all fields (CGH-06)."""
    is_full = (
        request.rebalance_timeout_ms != NO_TIMEOUT
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    is_reported = request.member_epoch == JOINING or is_full or before is None or before.assigned != after.assigned
    return ConsumerGroupHeartbeatResponse(
        member_id=after.id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms,
        assignment=_assignment(after) if is_reported else None,
    )


def _assignment(member: ConsumerMember) -> ConsumerGroupHeartbeatResponse.Assignment:
    return ConsumerGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic, partitions=partitions)
            for topic, partitions in by_topic(member.assigned).items()
        ]
    )
