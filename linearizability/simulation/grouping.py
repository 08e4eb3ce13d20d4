"""A consumer of a group, in the classic protocol: joins, is given partitions, resumes where the group has committed, reads,
processes, commits. Now and then it dies, leaves, or stands still for longer than its session lasts, and comes back.

It is an eager one: who joins again gives up its partitions before (`cooperating` has the others). One request is under way
at a time. A step that fails in a way that passes is taken again; a coordinator that is none any more is looked for; who is
no member any more joins again. A static member (KIP-345) that stands still is sometimes replaced by its operator; the one
of two that the coordinator does not take for it any more ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from linearizability.client.errors import GROUP_RETRIABLE, JOIN_AGAIN, NO_COORDINATOR, STALE, error_name, error_of
from linearizability.client.group_member import (
    ClassicMember,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from linearizability.client.requests import GROUP, Committed, TopicPartition, commit_request, fetch_offsets_request
from linearizability.history.operations import commit, committed
from linearizability.simulation.client import Key
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.consuming import Place, SimulatedConsumer, name_of
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS, REQUEST_TIMEOUT_MS, Line
from linearizability.simulation.schedule import Consumer, Member
from linearizability.simulation.world import MICROSECONDS_A_MS
from linearizability.workload.assignment import ASSIGNORS, COOPERATIVE, subscription
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from reference.protocol.messages.heartbeat import HeartbeatResponse
from reference.protocol.messages.join_group import JoinGroupResponse
from reference.protocol.messages.leave_group import LeaveGroupResponse
from reference.protocol.messages.offset_commit import OffsetCommitResponse
from reference.protocol.messages.offset_fetch import OffsetFetchResponse
from reference.protocol.messages.sync_group import SyncGroupResponse

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 10, 11, 12, 13, 14
VERSIONS = {
    OFFSET_COMMIT: 8, OFFSET_FETCH: 8, FIND_COORDINATOR: 4, JOIN_GROUP: 9, HEARTBEAT: 4, LEAVE_GROUP: 5, SYNC_GROUP: 5,
}  # fmt: skip
HEARTBEATS_A_TIMEOUT = 4
"""A member with fewer heartbeats would learn of a rebalance when it is over, be left out, begin the next, and so on for ever."""
CATCH_UP_BYTES = 1 << 20

NOTHING_WAS_WRITTEN = JOIN_AGAIN | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID}
"""Errors of a commit that certainly has not taken effect and never will."""

MEMBER_FAULTS = ("stall", "death", "departure")
STATIC_MEMBER_FAULTS = ("stall", "stall", "death", "replacement")
"""A static member does not leave: it is expected back within its session."""

Position = tuple[int, int]
"""An offset and the leader epoch of the record before it (KIP-320)."""


def named(positions: Mapping[Key, Position]) -> dict[str | int, int]:
    """Return positions in the history's form."""
    return {name_of(key): offset for key, (offset, _) in positions.items()}


def to_commit(positions: Mapping[Key, Position]) -> dict[TopicPartition, Committed | int]:
    """Return positions in the form of committed offsets."""
    return {key: Committed(offset, leader_epoch=epoch) for key, (offset, epoch) in positions.items()}


class SimulatedMember(SimulatedConsumer):
    """A member of a group."""

    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    requires_stable = False
    """Whether it waits for offsets of which a transaction is undecided (KIP-447)."""
    versions = VERSIONS

    def __init__(self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, plan: Member) -> None:
        self._beat_ms = max(1, min(plan.session_timeout_ms, plan.rebalance_timeout_ms) // HEARTBEATS_A_TIMEOUT)
        reader = Consumer(max_wait_ms=self._beat_ms, max_bytes=plan.max_bytes, isolation=self.isolation)
        super().__init__(cluster, number, recorder, reader)
        self.member = plan
        self._me = ClassicMember(
            plan.group,
            instance_id=plan.instance or None,
            session_timeout_ms=plan.session_timeout_ms,
            rebalance_timeout_ms=plan.rebalance_timeout_ms,
        )
        self.is_settled = False
        """Whether it holds an assignment and knows where to resume."""
        self._shares: dict[str, list[Key]] = {}
        """The leader's assignment for each member of a generation."""
        self._owned: tuple[int, list[Key]] = (-1, [])
        """The last generation that assigned us partitions, and those partitions."""
        self.joined_us = 0
        """When we last joined a generation."""
        self._replacement: SimulatedMember | None = None
        """The member that replaced us while we were paused."""
        self._is_synced = False
        self._processed: dict[Key, Position] = {}
        self._committed: dict[Key, Position] = {}
        self._coordinator = -1
        self._received_us = self._asked_us = 0
        self._commit_asked = -1
        """The operation of the last commit."""
        self._is_pausing = False
        self._is_unaware = False
        """It stalled while it processed, and commits before it learns whether it is still a member."""
        self._is_leaving = False
        self._is_retiring = False
        self.places = {}

    def start(self) -> None:
        self._connect()
        if self.member.dies_after_ms:
            self.world.after(self.member.dies_after_ms * MICROSECONDS_A_MS, self._die_for_good)

    def hurry(self) -> None:
        """Read the rest in large pieces, once all is healed."""
        self.plan = self.plan.model_copy(update={"max_bytes": CATCH_UP_BYTES})

    def retire(self) -> None:
        """Fetch the committed offsets a last time, leave and stop."""
        self._is_retiring = True
        self.is_settled = False
        self._go_on()

    @property
    def member_id(self) -> str:
        """Empty before it has joined for the first time."""
        return self._me.id

    @property
    def generation(self) -> int:
        """The generation, or the member epoch; -1 outside of the group."""
        return self._me.generation

    @property
    def _known_as(self) -> str:
        """The member's name in the history: a static one stays who it is under another member id."""
        return self.member.instance or self._me.id

    @property
    def has_committed_all(self) -> bool:
        """Whether all records that were read are processed and committed."""
        return self._positions() == self._committed

    # ---- steps

    def _go_on(self) -> None:
        if self.is_ready and not self.in_flight and not self.finished and not self._is_pausing and self.leaders:
            self._next_step()()

    def _next_step(self) -> Callable[[], None]:
        """Take the next due step: join, fetch committed offsets, heartbeat, process, commit or read."""
        due = (
            (self._coordinator < 0, self._find),
            (self._is_leaving, self._leave),
            (self._is_retiring and not self.is_settled, self._ask_committed),
            (self._is_retiring, self._begin_to_leave),
            (self._me.generation < 0, self._join),
            (not self._is_synced, self._sync),
            (not self.is_settled, self._ask_committed),
            (self._is_unaware and self._processed != self._committed, self._commit),
            (self.world.now_us - self._received_us >= self._beat_ms * MICROSECONDS_A_MS, self._beat),
            (self._positions() != self._processed, self._process),
            (self._processed != self._committed, self._commit),
            (not self.places, self._idle),
        )
        return next((step for is_due, step in due if is_due), self._read_on)

    def _pause(self, pause_ms: int = BACKOFF_MS) -> None:
        self._is_pausing = True
        self.world.after(pause_ms * MICROSECONDS_A_MS, self._woken)

    def _woken(self) -> None:
        self._is_pausing = False
        self._go_on()

    def _idle(self) -> None:
        self._pause(self._beat_ms)

    def _positions(self) -> dict[Key, Position]:
        return {key: (place.position, place.last_epoch) for key, place in self.places.items() if place.is_known()}

    # ---- the coordinator

    def _ask_coordinator(self, key: int, body: Any, answered: Callable[..., None], patience_ms: int = 0) -> None:
        line = self.line_to(self._coordinator)
        if line is None:
            self._pause()
            return
        self._asking = line
        self.ask(key, self.versions[key], body, self._answered, answered, REQUEST_TIMEOUT_MS + patience_ms, line)

    def _answered(self, body: Any, answered: Callable[..., None]) -> None:
        self._asking = None
        answered(body)
        self._go_on()

    def _lose(self, operation: int) -> None:
        """A commit may have taken effect, or may yet."""
        if operation == self._commit_asked:
            self.recorder.info(operation, "connection lost")
        else:
            super()._lose(operation)

    def on_lost(self, line: Line) -> None:
        super().on_lost(line)
        if line.node == self._coordinator:
            self._coordinator = -1

    def _judge(self, api: str, code: int) -> bool:
        """Whether a step went well; what is to be done where it did not. Errors: Violation."""
        self.count(api, code)
        if code == ErrorCode.NONE:
            return True
        if code in NO_COORDINATOR:
            self._coordinator = -1
        if code in STALE:
            self.refresh_soon()
        if code in GROUP_RETRIABLE:
            self._pause()
        elif code in JOIN_AGAIN:
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._me.id = ""
            self._join_again(code)
        elif code == ErrorCode.FENCED_INSTANCE_ID and self.member.instance:
            self._die_for_good()
        else:
            raise self.groundless(api, code)
        return False

    def _find(self) -> None:
        body = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[self.member.group])
        self._asking = self.home
        self.ask(FIND_COORDINATOR, self.versions[FIND_COORDINATOR], body, self._answered, self._found)

    def _found(self, body: FindCoordinatorResponse) -> None:
        answer = body.coordinators[0]
        if self._judge("FindCoordinator", answer.error_code):
            self._coordinator = answer.node_id

    # ---- membership

    def _join_again(self, code: int) -> None:
        """We are to join again, for this reason; an eager member gives up what it has before."""
        self._give_up_partitions()

    def _join(self) -> None:
        topics = [topic.name for topic in self.cluster.schedule.topics if not topic.is_output]
        generation, owned = self._owned
        metadata = encode_subscription(topics, owned, generation=generation)
        self._me.protocols = dict.fromkeys(self.member.assignors, metadata)
        self._ask_coordinator(JOIN_GROUP, self._me.join(), self._joined, self.member.rebalance_timeout_ms)

    def _joined(self, body: JoinGroupResponse) -> None:
        self._me.joined(body)
        if self._judge("JoinGroup", body.error_code):
            self._received_us = self.joined_us = self.world.now_us
            self._replacement = None
            is_to_assign = body.leader == body.member_id and not body.skip_assignment
            counts = self.cluster.input_counts()
            self._shares = shares(str(body.protocol_name), body.members, counts) if is_to_assign else {}

    def _sync(self) -> None:
        body = self._me.sync({member: encode_assignment(keys) for member, keys in self._shares.items()})
        self._ask_coordinator(SYNC_GROUP, body, self._synced, self.member.rebalance_timeout_ms)

    def _synced(self, body: SyncGroupResponse) -> None:
        if self._judge("SyncGroup", body.error_code):
            self._is_synced = True
            self._received_us = self.world.now_us
            generation = self._me.generation
            self._take_over(decode_assignment(bytes(body.assignment)))
            self._owned = generation, [*self.places]
            self.world.counts["assignments"] += 1
            self.world.counts[f"assignments by {self._me.protocol}"] += 1

    def _take_over(self, given: Sequence[Key]) -> None:
        """Take over the assigned partitions."""
        self.places = {key: Place() for key in given}
        self._note_assignment(generation=self._me.generation, member=self._known_as)

    def _note_assignment(self, **fields: Any) -> None:
        keys = [name_of(key) for key in self.places]
        self.recorder.ok(self.recorder.invoke("assign", keys=keys, group=self.member.group, **fields))

    def _give_up_partitions(self) -> None:
        """What was read and not committed will be read again, by its next owner."""
        if self.places:
            self.places = {}
            self._note_assignment()
        self._me.generation = -1
        self._is_synced = self.is_settled = self._is_unaware = False
        self._processed, self._committed = {}, {}

    def _beat(self) -> None:
        self._ask_coordinator(HEARTBEAT, self._me.heartbeat(), self._beaten)

    def _beaten(self, body: HeartbeatResponse) -> None:
        if self._judge("Heartbeat", body.error_code):
            self._received_us = self.world.now_us
            self._is_unaware = False

    def _begin_to_leave(self) -> None:
        self._is_leaving = True
        self._give_up_partitions()
        self._go_on()

    def _leave(self) -> None:
        self._ask_coordinator(LEAVE_GROUP, self._me.leave(), self._left)

    def _left(self, body: LeaveGroupResponse) -> None:
        code = error_of(body)
        if code != ErrorCode.UNKNOWN_MEMBER_ID and not self._judge("LeaveGroup", code):
            return
        self._has_left()

    def _has_left(self) -> None:
        self._is_leaving, self._me.id = False, ""
        if self._is_retiring:
            self.finish()
        else:
            self._pause(self._some_time(self.member.session_timeout_ms))

    # ---- offsets

    def _ask_committed(self) -> None:
        """Fetch the committed offsets of our partitions, if we have any."""
        if not self.places:
            self.is_settled = True
            self._go_on()
            return
        body = fetch_offsets_request({self.member.group: self.places}, require_stable=self.requires_stable, apart=True)
        if self.line_to(self._coordinator) is not None:
            self._operation = self.recorder.invoke("committed", [committed(self.member.group)])
        self._ask_coordinator(OFFSET_FETCH, body, self._reported_committed)

    def _reported_committed(self, body: OffsetFetchResponse) -> None:
        operation, self._operation = self._operation, None
        assert operation is not None
        answer = body.groups[0]
        parts = {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}
        code = error_of(body)
        if not self._judge("OffsetFetch", code):
            self.recorder.fail(operation, error_name(code))
            return
        offsets = {key: (parts[key].committed_offset, parts[key].committed_leader_epoch) for key in self.places}
        self.recorder.ok(operation, [committed(self.member.group, named(offsets))])
        self.is_settled = True
        if not self._is_retiring:
            self._resume(offsets)

    def _resume(self, offsets: Mapping[Key, Position]) -> None:
        """Resume all our partitions at their committed offsets."""
        for key, place in self.places.items():
            place.position, place.last_epoch = offsets[key]
        self._processed = self._positions()
        self._committed = self._positions()

    def _resume_new(self, offsets: Mapping[Key, Position]) -> None:
        """Resume new partitions at their committed offsets; keep our positions in the others."""
        new = {key: place for key, place in self.places.items() if not place.is_known()}
        for key, place in new.items():
            place.position, place.last_epoch = offsets[key]
        resumed = {key: position for key, position in self._positions().items() if key in new}
        self._processed |= resumed
        self._committed |= resumed

    def _process(self) -> None:
        """Take time over what was read, and then it is processed; unless something happens to us."""
        if not self.cluster.is_over and self.chance.randrange(100) < self.member.faults_percent:
            self._suffer()
            return
        self._processed = self._positions()
        self._pause(1 if self.cluster.is_over else self._some_time(self.member.pause_ms))

    def _some_time(self, around_ms: int) -> int:
        return self.chance.randrange(around_ms // 2, around_ms * 2 + 1) if around_ms else 0

    def _suffer(self) -> None:
        fault = self.chance.choice(STATIC_MEMBER_FAULTS if self.member.instance else MEMBER_FAULTS)
        self.world.counts[f"member's {fault}"] += 1
        self.log_event(f"fault: {fault}")
        if fault == "departure":
            self._begin_to_leave()
            return
        self._pause(self._some_time(self.member.session_timeout_ms * (1 if self.member.instance else 2)))
        if fault == "death":
            self._die()
            return
        if fault == "replacement":
            replacement = self.cluster.start_planned(self.member)
            assert isinstance(replacement, SimulatedMember)
            self._replacement = replacement
        self._processed = self._positions()
        self._is_unaware = True

    def _die(self) -> None:
        self._me.id = ""
        self._owned = -1, []
        self._give_up_partitions()
        for line in self._lines.values():
            line.hang_up("the process died")

    def _die_for_good(self) -> None:
        if not self.finished:
            self.world.counts["members dead for good"] += 1
            self._die()
            self.finish()

    def _commit(self) -> None:
        new = {key: position for key, position in self._processed.items() if self._committed.get(key) != position}
        group = self.member.group
        body = commit_request(
            group,
            to_commit(new),
            generation=self._me.generation,
            member_id=self._me.id,
            instance_id=self._me.instance_id,
            apart=True,
        )
        if self.line_to(self._coordinator) is not None:
            mop = commit(group, named(new), self._me.generation, self._known_as)
            self._operation = self._commit_asked = self.recorder.invoke("commit", [mop])
            self._asked_us = self.world.now_us
        self._ask_coordinator(OFFSET_COMMIT, body, self._on_committed)

    def _on_committed(self, body: OffsetCommitResponse) -> None:
        operation, self._operation = self._operation, None
        assert operation is not None
        codes = {each.error_code for topic in body.topics for each in topic.partitions}
        code = next((code for code in sorted(codes) if code), 0)
        if code == ErrorCode.NONE:
            self.recorder.ok(operation)
            self._committed = dict(self._processed)
            # An answer that names no partition could have refused nothing.
            if codes and self._replacement is not None and 0 < self._replacement.joined_us < self._asked_us:
                self.cluster.promises.on_replaced_member_received(self.name, self._replacement.name)
        elif codes <= NOTHING_WAS_WRITTEN:
            self.recorder.fail(operation, error_name(code))
        else:
            self.recorder.info(operation, error_name(code))
        self._judge("OffsetCommit", code)


def shares(
    protocol: str, members: Sequence[JoinGroupResponse.JoinGroupResponseMember], partition_counts: Mapping[str, int]
) -> dict[str, list[Key]]:
    """Return the chosen assignor's partitions for each member, as a leader computes them."""
    subscribed = {each.member_id: _subscriber(each) for each in members}
    return (ASSIGNORS | COOPERATIVE)[protocol](subscription.Group(subscribed, partition_counts))


def _subscriber(said: JoinGroupResponse.JoinGroupResponseMember) -> subscription.Member:
    subscribed = decode_subscription(bytes(said.metadata))
    return subscription.Member(
        topics=frozenset(subscribed.topics),
        instance_id=said.group_instance_id,
        owned=frozenset((each.topic, index) for each in subscribed.owned_partitions for index in each.partitions),
        generation=subscribed.generation_id,
    )
