"""A consumer of a group in the new protocol (KIP-848): one kind of heartbeat, by which it joins, reports what it owns, is given
what it is to own, and leaves; reading and committing are a group member's as ever (`grouping`).

It brings its own id. What an answer takes from it, it stops reading at once and says so with the next heartbeat; one that
commits first, as Java's consumer does, holds it until what it has read of it is processed and committed. A coordinator that
does not know the member, or its epoch, makes it give up everything and begin again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from linearizability.client.group_member import JOINING, LEAVING, assigned_partitions, owned_partitions
from linearizability.simulation.client import Key
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.consuming import Place
from linearizability.simulation.grouping import OFFSET_COMMIT, VERSIONS, Position, SimulatedMember
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import Line
from linearizability.simulation.schedule import Member
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

CONSUMER_GROUP_HEARTBEAT = 68

BEGIN_AGAIN = frozenset(
    {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION}
)  # fmt: skip
"""Errors after which a member owns nothing and joins again."""


class ReconcilingMember(SimulatedMember):
    """A member of a consumer group."""

    versions = VERSIONS | {OFFSET_COMMIT: 9, CONSUMER_GROUP_HEARTBEAT: 1}

    def __init__(self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, plan: Member) -> None:
        super().__init__(cluster, number, recorder, plan)
        self._ids = 0
        self._said: frozenset[Key] | None = None
        """The owned partitions of the last heartbeat; None where it may not have arrived."""
        self._wanted: frozenset[Key] | None = None
        """What we are to own once the rest is given up; None where we own what we are to."""

    def _next_step(self) -> Callable[[], None]:
        """As a classic member, but a revocation comes first: a member that owns less than it last reported sends that in a
        heartbeat, and one that still has to revoke partitions reads on only afterwards."""
        step = super()._next_step()
        if self._wanted is not None and step in (self._read_on, self._idle):
            return self._give_up_the_rest
        may_beat = self._me.generation >= 0 and not self._is_retiring and self._coordinator >= 0
        return self._beat if may_beat and self._said is not None and self._said - self.places.keys() else step

    # ---- membership

    def _join(self) -> None:
        if not self._me.id:
            self._ids += 1
            self._me.id = f"{self.name}-{self._ids}"
        self._said = None
        self._say(JOINING)

    def _beat(self) -> None:
        self._say(self._me.generation)

    def _say(self, epoch: int) -> None:
        is_full = epoch == JOINING or self._said is None
        owned = frozenset(self.places)
        body = ConsumerGroupHeartbeatRequest(
            group_id=self.member.group,
            member_id=self._me.id,
            member_epoch=epoch,
            rebalance_timeout_ms=self.member.rebalance_timeout_ms if is_full else -1,
            subscribed_topic_names=[topic.name for topic in self.cluster.schedule.topics] if is_full else None,
            topic_partitions=self._as_ids(owned) if is_full or owned != self._said else None,
        )
        if self.line_to(self._coordinator) is not None:
            self._said = owned
        self._ask_coordinator(CONSUMER_GROUP_HEARTBEAT, body, self._heartbeat_answered)

    def _as_ids(self, keys: frozenset[Key]) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        return owned_partitions(((self.topic_ids[name], index) for name, index in sorted(keys)), apart=True)

    def _heartbeat_answered(self, body: ConsumerGroupHeartbeatResponse) -> None:
        if not self._judge("ConsumerGroupHeartbeat", body.error_code):
            self._said = None
            return
        self._received_us = self.world.now_us
        has_moved, self._me.generation, self._is_synced = (
            body.member_epoch != self._me.generation,
            body.member_epoch,
            True,
        )
        if body.assignment is not None:
            names = {id: name for name, id in self.topic_ids.items()}
            self._wanted = frozenset((names[id], index) for id, index in assigned_partitions(body))
        if self._wanted is not None and not (self.member.commits_first and self.places.keys() - self._wanted):
            has_moved = self._own(self._wanted) or has_moved
        if has_moved:
            self._note_assignment(generation=self._me.generation, member=self._known_as)

    def _own(self, keys: frozenset[Key]) -> bool:
        """Take over an assignment. Returns whether it differs from the last one."""
        self._wanted = None
        if keys == self.places.keys():
            return False
        self.places = {key: self.places.get(key) or Place() for key in sorted(keys)}
        self._processed = {key: place for key, place in self._processed.items() if key in keys}
        self._committed = {key: place for key, place in self._committed.items() if key in keys}
        self.is_settled = False
        self.world.counts["assignments"] += 1
        return True

    def _give_up_the_rest(self) -> None:
        """All that was read is processed and committed."""
        assert self._wanted is not None
        self.world.counts["partitions committed and given up"] += len(self.places.keys() - self._wanted)
        self._own(self._wanted)
        self._note_assignment(generation=self._me.generation, member=self._known_as)
        self._go_on()

    def _give_up_partitions(self) -> None:
        self._wanted = None
        super()._give_up_partitions()

    def _resume(self, offsets: Mapping[Key, Position]) -> None:
        self._resume_new(offsets)

    def _judge(self, api: str, code: int) -> bool:
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            self.count(api, code)
            self._said, self._received_us = None, 0
            return False
        if code in BEGIN_AGAIN:
            self.count(api, code)
            self._give_up_partitions()
            return False
        return super()._judge(api, code)

    def on_lost(self, line: Line) -> None:
        super().on_lost(line)
        self._said = None

    # ---- leaving

    def _leave(self) -> None:
        body = ConsumerGroupHeartbeatRequest(group_id=self.member.group, member_id=self._me.id, member_epoch=LEAVING)
        self._ask_coordinator(CONSUMER_GROUP_HEARTBEAT, body, self._gone)

    def _gone(self, body: ConsumerGroupHeartbeatResponse) -> None:
        code = body.error_code
        if code in BEGIN_AGAIN or self._judge("ConsumerGroupHeartbeat", code):
            self._has_left()
