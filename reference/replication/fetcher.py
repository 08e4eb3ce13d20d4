"""A follower's requests to one leader: which to send next, and how to apply the response.

A node has one fetcher for each broker that leads a partition it follows. A fetcher has no clock and no connection, and at most
one request in flight. Its driver calls:
- `follow(partition)` when a replica becomes a follower of this leader, or this leader begins a new leader epoch; `leave` when
  the replica is removed (the fetcher itself drops a partition whose leader epoch is over);
- `next_request(now)`: it returns a FetchRequest, a ListOffsetsRequest after OFFSET_OUT_OF_RANGE, or None while one is in flight
  or nothing is due before `next_deadline()`;
- `answered(response, now)`, or `failed(now)` where no response will come; then `next_request` again at once.

The stage of each partition is a state machine in `reference.replication.followed`.

A failed append is retried after `backoff_ms`: the disk may have been full. Kafka takes the whole log directory offline instead.

Source: Kafka's `AbstractFetcherThread`, `RemoteLeaderEndPoint`; KIP-227, KIP-320, KIP-595, KIP-903.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, cast

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from reference.protocol.primitives import (
    AT_ONCE,
    BrokerEpoch,
    Buffer,
    NodeId,
    Offset,
    TimestampMs,
    TopicName,
)
from reference.protocol.records.errors import RecordsError
from reference.replication.fetch_session import FetchSession, Key, Wanted
from reference.replication.followed import PLACES, Followed, Stage
from reference.replication.partition import Partition
from reference.storage.errors import LogError, StorageError


class FetchSettings(NamedTuple):
    """The replica.fetch.* properties that a fetcher reads, with Kafka's defaults."""

    max_wait_ms: int = 500
    """replica.fetch.wait.max.ms"""
    min_bytes: int = 1
    """replica.fetch.min.bytes"""
    max_bytes: int = 10 * 1024 * 1024
    """replica.fetch.response.max.bytes"""
    partition_max_bytes: int = 1024 * 1024
    """replica.fetch.max.bytes"""
    backoff_ms: int = 1000
    """replica.fetch.backoff.ms"""

    @staticmethod
    def of(integer: Callable[[str], int]) -> FetchSettings:
        """The settings in a configuration; `integer` returns a property's value."""
        return FetchSettings(
            max_wait_ms=integer("replica.fetch.wait.max.ms"),
            min_bytes=integer("replica.fetch.min.bytes"),
            max_bytes=integer("replica.fetch.response.max.bytes"),
            partition_max_bytes=integer("replica.fetch.max.bytes"),
            backoff_ms=integer("replica.fetch.backoff.ms"),
        )


class Note(NamedTuple):
    """A line for the node's log, about a partition, or about the leader (None)."""

    partition: Partition | None
    text: str
    error: Exception | None = None
    """The error that the replica's log raised, or that the response's records contain."""


@dataclass(slots=True)
class Fetched:
    """The effects of a response."""

    moved: list[Partition] = field(default_factory=list[Partition])
    """Partitions whose log end offset, high watermark or log start offset moved: their delayed requests are to be tried again."""
    notes: list[Note] = field(default_factory=list[Note])


class Fetcher:
    """The partitions that this node fetches from one leader."""

    def __init__(
        self, leader: NodeId, node: NodeId, broker_epoch: BrokerEpoch, settings: FetchSettings | None = None
    ) -> None:
        """`broker_epoch` is this node's own: the leader refuses a fetch of an earlier incarnation (KIP-903)."""
        self.leader = leader
        self.node = node
        self.broker_epoch = broker_epoch
        self.settings = settings or FetchSettings()
        self.session = FetchSession()
        self._followed: dict[Key, Followed] = {}
        self._changed: dict[Key, None] = {}
        """Partitions whose fields in the next request may differ from those that the fetch session holds."""
        self._waiting: list[tuple[TimestampMs, int, Followed]] = []
        """A heap of the partitions that back off, by the time at which their back-off ends."""
        self._numbers = count()
        self._asked: list[Followed] = []
        """The partitions in the request in flight; after a failed FetchRequest, all partitions that are followed."""
        self._out: type[FetchResponse] | type[ListOffsetsResponse] | None = None
        self._ready_at = AT_ONCE
        """The time from which a leader that did not answer may be asked again."""
        self._last: FetchRequest | None = None
        """The full request that is in flight or got no answer; it is sent again unchanged unless something has changed."""
        self._begins_again = False
        """The next fetch begins a new session, as the follower did not apply all of a response. Within a session the leader does
        not send an unchanged high watermark or log start offset again."""

    # ---- what is followed

    def follow(self, partition: Partition) -> bool:
        """Fetch a partition from now on. False where it is already fetched, or has failed, in this leader epoch."""
        known = self._followed.get((partition.topic_id, partition.index))
        if known is not None and known.partition is partition and known.leader_epoch == partition.state.leader_epoch:
            return False
        if known is not None and known.partition is not partition:
            self._begins_again = True
        found = Followed(partition, partition.state.leader_epoch)
        self._ready_at = AT_ONCE
        self._followed[found.key] = found
        self._changed[found.key] = None
        return True

    def leave(self, partition: Partition) -> None:
        """Stop fetching a partition."""
        key = partition.topic_id, partition.index
        if self._followed.pop(key, None) is not None:
            self._changed[key] = None

    def look_again(self, partition: Partition) -> None:
        """Ask for the partition again from its log's new end: something other than a response changed the log."""
        if (key := (partition.topic_id, partition.index)) in self._followed:
            self._changed[key] = None

    @property
    def followed(self) -> list[Partition]:
        """All followed partitions, including those that have failed."""
        return [each.partition for each in self._followed.values()]

    def has_failed(self, partition: Partition) -> bool:
        """Whether a partition is not fetched until its next leader epoch."""
        known = self._followed.get((partition.topic_id, partition.index))
        return known is not None and known.stage is Stage.FAILED

    @property
    def waits(self) -> bool:
        """Whether a request is in flight."""
        return self._out is not None

    @property
    def is_idle(self) -> bool:
        """Whether no partition is followed, no request is in flight and the session is empty: the fetcher can be removed."""
        return not self._followed and self._out is None and not self.session.partitions

    # ---- asking

    def next_request(self, now: TimestampMs) -> FetchRequest | ListOffsetsRequest | None:
        """The next request, which is then in flight; None while one is in flight already, or while nothing is due."""
        if self._out is not None or now < self._ready_at:
            return None
        while self._waiting and self._waiting[0][0] <= now:
            each = heapq.heappop(self._waiting)[2]
            each.waits = False
            self._changed[each.key] = None
        if self._last is not None and not self._changed:
            self._out = FetchResponse
            return self._addressed(self._last)
        self._last = None
        due = self._take_due(now)
        return self._bounds_request(due) or self._fetch_request(due)

    def _take_due(self, now: TimestampMs) -> dict[Key, Followed | None]:
        """The partitions to look at for the next request: all of them for a full request, else those that changed.

        The value is None where the partition must not be in the session: it is not followed, has failed, or backs off.
        """
        if not self._changed:
            return {}
        looked_at = self._changed
        if self.session.is_full or self._begins_again:
            looked_at = dict.fromkeys([*self._followed, *looked_at])
        self._changed = {}
        due: dict[Key, Followed | None] = {}
        for key in looked_at:
            each = self._followed.get(key)
            if each is not None and not each.is_followed_from(self.leader):
                each = self._followed.pop(key)
                due[key] = None
            elif each is None or each.stage is Stage.FAILED:
                due[key] = None
            elif each.ready_at > now:
                due[key] = None
                self._wait(each)
            else:
                due[key] = each
            if each is not None and due[key] is None:
                each.asked = None
        return due

    def _wait(self, followed: Followed) -> None:
        if not followed.waits:
            followed.waits = True
            heapq.heappush(self._waiting, (followed.ready_at, next(self._numbers), followed))

    def _bounds_request(self, looked_at: Mapping[Key, Followed | None]) -> ListOffsetsRequest | None:
        due = [each for each in looked_at.values() if each is not None and each.stage in PLACES]
        if not due:
            return None
        self._changed = dict.fromkeys(looked_at)  # the other partitions are fetched after this response
        self._out, self._asked = ListOffsetsResponse, due
        topics: dict[TopicName, ListOffsetsRequest.ListOffsetsTopic] = {}
        for each in due:
            each.asked = self._wanted(each)
            name = each.partition.topic
            topic = topics.setdefault(name, ListOffsetsRequest.ListOffsetsTopic(name=name))
            topic.partitions.append(
                ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=each.partition.index,
                    current_leader_epoch=each.leader_epoch,
                    timestamp=PLACES[each.stage],
                )
            )
        return ListOffsetsRequest(replica_id=self.node, topics=[*topics.values()])

    def _fetch_request(self, looked_at: Mapping[Key, Followed | None]) -> FetchRequest | None:
        due = [each for each in looked_at.values() if each is not None]
        if not due and (self.session.is_full or not self.session.partitions):
            self.session.partitions = {}
            return None
        if self._begins_again:
            self.session.begin_again()
            self._begins_again = False
        self._out, self._asked = FetchResponse, due
        for each in due:
            each.asked = self._wanted(each)
        request = self.session.request(
            {each.key: each.asked for each in due if each.asked is not None},
            self.settings.partition_max_bytes,
            [key for key, each in looked_at.items() if each is None],
        )
        request.max_wait_ms = self.settings.max_wait_ms
        request.min_bytes = self.settings.min_bytes
        request.max_bytes = self.settings.max_bytes
        self._last = request if self.session.is_full else None
        return self._addressed(request)

    def _addressed(self, request: FetchRequest) -> FetchRequest:
        request.replica_state = FetchRequest.ReplicaState(replica_id=self.node, replica_epoch=self.broker_epoch)
        return request

    def _wanted(self, followed: Followed) -> Wanted:
        partition = followed.partition
        log = partition.log
        return Wanted(
            log.log_end_offset,
            followed.leader_epoch,
            partition.last_fetched_epoch,
            log.log_start_offset,
        )

    def next_deadline(self) -> TimestampMs | None:
        """When a request is next due; None while one is in flight, or where none will be."""
        if self._out is not None:
            return None
        if any(key not in self._changed for key in self.session.partitions):
            return self._ready_at
        changed = [self._followed[key] for key in self._changed if key in self._followed]
        times = [each.ready_at for each in changed if each.stage is not Stage.FAILED]
        first = min([*times, *(each[0] for each in self._waiting[:1])], default=None)
        return None if first is None else max(first, self._ready_at)

    # ---- responses

    def answered(self, response: FetchResponse | ListOffsetsResponse, now: TimestampMs) -> Fetched:
        """Apply the response. It is ignored where no request is in flight; one of the wrong type fails the request."""
        if self._out is None:
            return Fetched()
        if not isinstance(response, self._out):
            return self._fail(f"answered with {type(response).__name__}", now)
        self._out = None
        fetched = Fetched()
        if isinstance(response, FetchResponse):
            self._take_fetch_response(response, fetched, now)
        else:
            self._take_bounds(response, fetched, now)
        return fetched

    def failed(self, now: TimestampMs) -> Fetched:
        """Give up the request in flight: no response to it will come."""
        return self._fail("did not answer", now) if self._out is not None else Fetched()

    def _fail(self, text: str, now: TimestampMs) -> Fetched:
        if self._out is FetchResponse:
            # The leader may have handled the request: its session epoch is then one ahead, and it would refuse the next one.
            self.session.begin_again()
            self._ready_at = now + self.settings.backoff_ms
            if self._last is None:
                self._changed.update(dict.fromkeys(self._followed))
        else:
            self._back_off_all(now)
        self._out = None
        return Fetched(notes=[Note(None, f"broker {self.leader} {text}")])

    def _back_off_all(self, now: TimestampMs) -> None:
        for each in self._asked:
            if each.asked is not None:
                each.asked = None
                each.ready_at = now + self.settings.backoff_ms
                self._changed[each.key] = None

    def _take_fetch_response(self, response: FetchResponse, fetched: Fetched, now: TimestampMs) -> None:
        self._last = None
        was_full = self.session.is_full
        wrong = self.session.answered(response)
        if self.session.is_full:
            self._changed.update(dict.fromkeys(self._followed))
        if wrong is not None:
            fetched.notes.append(Note(None, f"broker {self.leader}: {wrong}"))
            if was_full:
                # A lost session is replaced at once. Where a full request was refused, the next one waits.
                self._back_off_all(now)
            return
        for topic in response.responses:
            for data in topic.partitions:
                key = topic.topic_id, data.partition_index
                self._changed[key] = None
                followed = self._current(key)
                if followed is not None:
                    self._take_data(followed, data, fetched, now)
                else:
                    self._begins_again = True

    def _current(self, key: Key) -> Followed | None:
        """The partition of a response, unless its leader or its log end offset has changed since the request."""
        followed = self._followed.get(key)
        if followed is None or followed.asked is None or not followed.is_followed_from(self.leader):
            return None
        # A truncation since the request moves the end: the response's records would leave a gap, or repeat existing ones.
        is_same = followed.asked.fetch_offset == followed.partition.log.log_end_offset
        return followed if is_same else None

    def _take_data(
        self, followed: Followed, data: FetchResponse.PartitionData, fetched: Fetched, now: TimestampMs
    ) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.go_to(Stage.ASKING_END)
        elif data.error_code != ErrorCode.NONE:
            self._take_error(followed, data.error_code, fetched, now)
        else:
            try:
                if data.diverging_epoch.epoch >= 0:
                    self._truncate(followed, data.diverging_epoch, fetched, now)
                else:
                    self._append(followed, data, fetched, now)
                followed.noted = ""
            except (RecordsError, LogError, KafkaError) as error:
                self._take_refusal(followed, error, fetched, now)

    def _append(
        self, followed: Followed, data: FetchResponse.PartitionData, fetched: Fetched, now: TimestampMs
    ) -> None:
        partition = followed.partition
        before = partition.log.log_end_offset
        records = cast("Buffer", data.records or b"")  # decoded from a frame: never a slice of a file
        grew = moved = False
        try:
            following = partition.require_follower_of(self.leader)
            moved = following.append_fetched(before, records, data.high_watermark, data.log_start_offset, now)
        finally:
            grew = partition.log.log_end_offset != before
            if grew or moved:
                fetched.moved.append(partition)
        if grew and len(self._followed) > 1:
            # A partition that received records goes last in the next full request, so that none starves.
            self._followed[followed.key] = self._followed.pop(followed.key)
        if len(records) and not grew:
            followed.ready_at = now + self.settings.backoff_ms
            fetched.notes.append(
                Note(
                    partition,
                    f"{len(records)} bytes at {before} hold no whole batch of this leader epoch or an earlier one",
                )
            )

    def _truncate(
        self, followed: Followed, diverging: FetchResponse.EpochEndOffset, fetched: Fetched, now: TimestampMs
    ) -> None:
        partition = followed.partition
        before, high_watermark = (partition.log.log_end_offset, partition.last_fetched_epoch), partition.high_watermark
        end = partition.require_follower_of(self.leader).truncate(diverging.epoch, diverging.end_offset)
        # The response's high watermark is not usable before the logs agree: a new session reports it again. Kafka waits for it
        # to move.
        self._begins_again = True
        fetched.moved.append(partition)
        if (end, partition.last_fetched_epoch) == before:
            # Nothing was truncated: the same request would receive the same response.
            followed.ready_at = now + self.settings.backoff_ms
        committed = " below its high watermark" if end < high_watermark else ""
        text = f"cut from {before[0]} to {end}{committed}: epoch {diverging.epoch} ended at {diverging.end_offset} on the leader"
        fetched.notes.append(Note(partition, text))

    def _take_error(self, followed: Followed, code: int, fetched: Fetched, now: TimestampMs) -> None:
        """FENCED_LEADER_EPOCH ends fetching in this leader epoch. Other errors pass with time or with newer metadata."""
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            followed.go_to(Stage.FAILED)
        else:
            followed.go_to(Stage.FETCHING)
            followed.ready_at = now + self.settings.backoff_ms
        self._note_failure(followed, f"broker {self.leader} answered with error {code}", fetched)

    def _take_refusal(
        self, followed: Followed, error: RecordsError | LogError | KafkaError, fetched: Fetched, now: TimestampMs
    ) -> None:
        """Retry where records were corrupt, or the disk failed. A log that refused the records would refuse them again."""
        if isinstance(error, LogError) and not isinstance(error, StorageError):
            followed.go_to(Stage.FAILED)
        else:
            followed.ready_at = now + self.settings.backoff_ms
        self._note_failure(followed, str(error), fetched, error)

    def _note_failure(self, followed: Followed, text: str, fetched: Fetched, error: Exception | None = None) -> None:
        if followed.noted != text:
            followed.noted = text
            fetched.notes.append(Note(followed.partition, text, error))

    # ---- the leader's bounds

    def _take_bounds(self, response: ListOffsetsResponse, fetched: Fetched, now: TimestampMs) -> None:
        by_name = {each.partition.key: each.key for each in self._asked}
        for topic in response.topics:
            for data in topic.partitions:
                key = by_name.get((topic.name, data.partition_index))
                followed = self._current(key) if key is not None else None
                if followed is not None:
                    self._take_bound(followed, data, fetched, now)
                    followed.asked = None
        # The response may leave partitions out: they are asked for again after a back-off.
        self._back_off_all(now)

    def _take_bound(
        self,
        followed: Followed,
        data: ListOffsetsResponse.ListOffsetsPartitionResponse,
        fetched: Fetched,
        now: TimestampMs,
    ) -> None:
        if data.error_code != ErrorCode.NONE or data.offset < 0:
            self._take_error(followed, data.error_code, fetched, now)
            return
        try:
            if followed.stage is Stage.ASKING_END:
                self._take_leader_end(followed, data.offset, fetched)
            else:
                self._take_leader_start(followed, data.offset, fetched, now)
        except (LogError, KafkaError) as error:
            self._take_refusal(followed, error, fetched, now)

    def _take_leader_end(self, followed: Followed, end: Offset, fetched: Fetched) -> None:
        if followed.partition.require_follower_of(self.leader).truncate_to_leader_end(end):
            followed.go_to(Stage.FETCHING)
            fetched.moved.append(followed.partition)
            fetched.notes.append(Note(followed.partition, f"cut to the leader's end {end}"))
        else:
            followed.go_to(Stage.ASKING_START)

    def _take_leader_start(self, followed: Followed, start: Offset, fetched: Fetched, now: TimestampMs) -> None:
        followed.go_to(Stage.FETCHING)
        if followed.partition.require_follower_of(self.leader).start_over_at(start, now):
            fetched.moved.append(followed.partition)
            fetched.notes.append(Note(followed.partition, f"begun again at the leader's start {start}"))
        else:
            followed.ready_at = now + self.settings.backoff_ms
