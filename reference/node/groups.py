"""Groups on this node: requests of members, passed to the shard of the group. (COO-*, GRP-*)

The shard of a group's `__consumer_offsets` partition decides a request. This module passes it the requests, and sends its
responses when its earlier records are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from reference.controller.configs import Configuration
from reference.controller.group_configs import (
    ASSIGNMENT_INTERVAL,
    GROUP_RESOURCE,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
)
from reference.coordinator.classic_groups import check_group_id, check_join, check_sync
from reference.coordinator.classic_member import Client
from reference.coordinator.classic_rebalances import join_refused
from reference.coordinator.group import Token
from reference.coordinator.group_settings import ConsumerGroupSettings, GroupSettings
from reference.coordinator.group_shard import GroupShard
from reference.coordinator.target_assignment import ASSIGNORS
from reference.node.context import Context
from reference.node.coordination import Coordination
from reference.node.internal_topics import OFFSETS_TOPIC
from reference.node.known_topics import KnownTopics, TopicChanges
from reference.node.refusals import FIRST_JOIN_WITHOUT_PROTOCOL
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from reference.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from reference.protocol.messages.offset_commit import OffsetCommitResponse
from reference.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from reference.protocol.primitives import AT_ONCE, NEVER, Chance, GroupId, LeaderEpoch, TimestampMs
from reference.protocol.schema import Message
from reference.replication.partition import Partition
from reference.replication.replica import Trace

MINUTE_MS = 60_000

Fail = Callable[[ErrorCode], None]
"""Sets the error of a response or of one part of it."""


class Groups:
    """The group shards of this node."""

    def __init__(self, context: Context, chance: Chance, trace: Trace | None = None) -> None:
        self.context = context
        self._chance = chance
        self._trace = trace
        self.settings = settings_of(context.configuration)
        self.consumer_settings = consumer_settings_of(context.configuration)
        self.coordination: Coordination[GroupShard] = Coordination(
            context, OFFSETS_TOPIC, self._new_shard, context.configuration.integer("offsets.commit.timeout.ms")
        )
        self._said: list[tuple[int, Token, Message]] = []
        self._deadlines: dict[int, TimestampMs] = {}
        """The time of each shard's next work, except for shards in `touched`."""

    def _new_shard(self, index: int, epoch: LeaderEpoch) -> GroupShard:
        return GroupShard(
            self.settings,
            self._chance,
            KnownTopics(self.context.image),
            write=lambda records, now: self.coordination.write(index, records, now),
            say=lambda token, response: self._said.append((index, token, response)),
            consumer_settings=self.consumer_settings_of,
            trace=self.coordination.tracing(index, epoch, self._trace),
        )

    def consumer_settings_of(self, group: GroupId) -> ConsumerGroupSettings:
        """The settings of a consumer group: the broker's, with the group's own overrides."""
        configuration = self.context.configuration
        if (GROUP_RESOURCE, group) not in configuration.image.configs:
            # Of these broker settings only this one is dynamic.
            interval_ms = configuration.integer("group.consumer.assignment.interval.ms")
            if interval_ms != self.consumer_settings.assignment_interval_ms:
                self.consumer_settings = replace(self.consumer_settings, assignment_interval_ms=interval_ms)
            return self.consumer_settings
        return replace(
            self.consumer_settings,
            session_timeout_ms=configuration.group_integer(group, SESSION_TIMEOUT),
            heartbeat_interval_ms=configuration.group_integer(group, HEARTBEAT_INTERVAL),
            assignment_interval_ms=configuration.group_integer(group, ASSIGNMENT_INTERVAL),
        )

    # ---- the node's doings

    def on_role(self, partition: Partition, now: TimestampMs) -> None:
        """Begin a replica's new leader epoch, as leader or follower (COO-05)."""
        self.coordination.on_role(partition, now)
        self.send_said(now)

    def on_given_up(self, partition: Partition, now: TimestampMs) -> None:
        """Drop the shard of a replica that was removed from this node."""
        self.coordination.on_given_up(partition, now)
        self.send_said(now)

    def tick(self, now: TimestampMs) -> None:
        """Continue loading, and let each shard do its work that is due."""
        self.coordination.load(now)
        self._look_again()
        for index in [index for index, deadline in self._deadlines.items() if deadline <= now]:
            self.coordination.touched.add(index)
            shard = self.coordination.loaded_shard(index)
            if shard is not None:
                shard.tick(now)
        self.send_said(now)

    def next_deadline(self) -> TimestampMs:
        if self.coordination.has_to_load:
            return AT_ONCE
        if self.coordination.touched:
            self._look_again()
        return min(self._deadlines.values(), default=NEVER)

    def _look_again(self) -> None:
        """Read the deadlines of touched shards only: there are many shards, and this is called after every request."""
        while self.coordination.touched:
            index = self.coordination.touched.pop()
            shard = self.coordination.loaded_shard(index)
            deadline = shard.next_deadline() if shard is not None else None
            if deadline is None:
                self._deadlines.pop(index, None)
            else:
                self._deadlines[index] = deadline

    def topics_changed(self, changes: TopicChanges, now: TimestampMs) -> None:
        """Pass changed topics to all shards (OFF-16, CGH-15)."""
        if not changes.names:
            return
        for index, shard in self.coordination.loaded():
            self.coordination.touched.add(index)
            shard.topics_changed(changes.names, are_new=changes.are_new)
            if changes.deleted:
                shard.topics_deleted(changes.deleted, now)

    # ---- answers

    def send_said(self, now: TimestampMs) -> None:
        """Send the responses that shards have produced since the last call."""
        said, self._said = self._said, []
        for index, token, response in said:
            assert isinstance(token, Request)
            self.answer(index, token, response, now)

    def answer(self, index: int, request: Request, response: Message, now: TimestampMs) -> None:
        """Send a response when all earlier records of the shard are committed; a refusal at once."""
        if isinstance(response, JoinGroupResponse):
            none = "" if request.version < FIRST_JOIN_WITHOUT_PROTOCOL else None
            response.protocol_name = response.protocol_name or none
        if not is_refused(response):
            try:
                self.coordination.answer(index, request, response, now, partial(refuse, response))
            except KafkaError as error:
                refuse(response, error.code)
            else:
                return
        self.context.responder.respond(request, response)

    def answer_together(
        self, request: Request, response: Message, parts: Iterable[tuple[int, Fail]], now: TimestampMs
    ) -> None:
        """Send a response when the earlier records of several shards are committed; each part fails by itself."""
        waiting = [*parts]
        left = len(waiting) + 1

        def one_is_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.context.responder.respond(request, response)

        def outcome(fail: Fail, error: ErrorCode, then: TimestampMs) -> None:
            if error is not ErrorCode.NONE:
                fail(coordinator_error(error))
            one_is_done()

        for index, fail in waiting:
            try:
                self.coordination.when_committed(index, now, partial(outcome, fail))
            except KafkaError as error:
                outcome(fail, error.code, now)
        one_is_done()

    def shard_of_member(self, group: GroupId) -> tuple[int, GroupShard]:
        """The shard of a group that can have members. Errors: KafkaError INVALID_GROUP_ID, and as `Coordination.shard_of`."""
        check_group_id(group)
        return self.coordination.shard_of(group)


FIRST_JOIN_WITH_REBALANCE_TIMEOUT = 1
"""The first version of JoinGroup with a rebalance timeout; before, the session timeout is used."""


def join_group(groups: Groups, request: Request, body: JoinGroupRequest, now: TimestampMs) -> Message | None:
    # decode
    if request.version < FIRST_JOIN_WITH_REBALANCE_TIMEOUT:
        body.rebalance_timeout_ms = body.session_timeout_ms
    named = body.member_id
    try:
        # validate
        check_join(body, groups.settings)
        named = ""  # Kafka returns the member id only if the request itself is invalid
        _, shard = groups.coordination.shard_of(body.group_id)
    except KafkaError as error:
        refused = join_refused(named, error.code)
        refused.protocol_name = None if request.version >= FIRST_JOIN_WITHOUT_PROTOCOL else ""
        return refused
    # fence, apply; the shard keeps the request until its rebalance is over
    shard.join(body, request.version, client_of(request), request, now)
    return groups.send_said(now)


def sync_group(groups: Groups, request: Request, body: SyncGroupRequest, now: TimestampMs) -> Message | None:
    try:
        # validate
        check_sync(body, request.version)
        _, shard = groups.coordination.shard_of(body.group_id)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)
    # fence, apply
    shard.sync(body, request, now)
    return groups.send_said(now)


def heartbeat(groups: Groups, request: Request, body: HeartbeatRequest, now: TimestampMs) -> Message | None:
    """Handle a heartbeat; while the group is loading the response is NONE, because the member has done nothing wrong."""
    try:
        index, shard = groups.shard_of_member(body.group_id)
    except KafkaError as error:
        is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
    groups.answer(index, request, shard.heartbeat(body, now), now)
    return None


def leave_group(groups: Groups, request: Request, body: LeaveGroupRequest, now: TimestampMs) -> Message | None:
    try:
        index, shard = groups.shard_of_member(body.group_id)
        left = shard.leave(body, request.version, now)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    groups.answer(index, request, left, now)
    return groups.send_said(now)


def client_of(request: Request) -> Client:
    return Client(request.client_id or "", f"/{request.client.host}")


def settings_of(configuration: Configuration) -> GroupSettings:
    """The broker's settings for groups."""
    integer = configuration.integer
    return GroupSettings(
        min_session_timeout_ms=integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=integer("group.initial.rebalance.delay.ms"),
        max_size=integer("group.max.size"),
        max_metadata_size=integer("offset.metadata.max.bytes"),
        offsets_retention_ms=integer("offsets.retention.minutes") * MINUTE_MS,
        offsets_retention_check_interval_ms=integer("offsets.retention.check.interval.ms"),
    )


def consumer_settings_of(configuration: Configuration) -> ConsumerGroupSettings:
    """The broker's settings for consumer groups, with the supported ones of group.consumer.assignors."""
    integer = configuration.integer
    named = configuration.broker("group.consumer.assignors")
    known = tuple(name for name in named if name in ASSIGNORS) if isinstance(named, tuple) else ()
    return ConsumerGroupSettings(
        assignors=known or tuple(ASSIGNORS),
        session_timeout_ms=integer("group.consumer.session.timeout.ms"),
        heartbeat_interval_ms=integer("group.consumer.heartbeat.interval.ms"),
        assignment_interval_ms=integer("group.consumer.assignment.interval.ms"),
        max_size=integer("group.consumer.max.size"),
        max_classic_size=integer("group.max.size"),
        migration_policy=str(configuration.broker("group.consumer.migration.policy")).lower(),
        regex_refresh_interval_ms=integer("group.consumer.regex.refresh.interval.ms"),
    )


# ---- how a response says that it is not true: at its top, or once for each thing that was asked for


def coordinator_error(code: ErrorCode) -> ErrorCode:
    """The error of a response whose records were not committed in time: the client may retry."""
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.REQUEST_TIMED_OUT else code


def is_refused(response: Message) -> bool:
    """Whether a response has an error at its top level."""
    return getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.NONE


def refuse(response: Message, code: ErrorCode) -> None:
    """Set the error of a response whose change was not made, or may not have been."""
    code = coordinator_error(code)
    for each in _errors_of(response):
        if each.error_code == ErrorCode.NONE:
            each.error_code = code
    if isinstance(response, SyncGroupResponse):
        response.protocol_type = response.protocol_name = None
        response.assignment = b""


def _errors_of(response: Message) -> Iterable[Any]:
    match response:
        case OffsetCommitResponse() | TxnOffsetCommitResponse():
            return [partition for topic in response.topics for partition in topic.partitions]
        case _:
            return [response]
