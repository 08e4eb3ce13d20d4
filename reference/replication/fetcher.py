"""A follower's requests to one leader: which to send next, and how to apply the response.

One fetcher for each broker that leads something this node follows. It has one request out at a time, and no clock and no
connection of its own:
- `follow(partition)` whenever a replica has become follower of this leader, or of this leader in a new leader epoch; `leave` when
  the replica is removed (the fetcher drops one whose leader epoch is over by itself);
- `next_request(now)`: a FetchRequest, now and then a ListOffsetsRequest, or None while one is out or nothing is to be
  asked before `next_deadline()`;
- `answered(response, now)` or, without an answer, `failed(now)`; then at once `next_request` again.

Each partition is at one stage (`followed`).

An append that the disk refused is tried again after the pause that follows an error (`backoff_ms`): the disk may have been full.
Kafka takes the whole log directory offline instead.

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
    """The broker's settings that a fetcher follows, with Kafka's defaults."""

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
        """The settings that a configuration says; `integer` gives a property's value."""
        return FetchSettings(
            max_wait_ms=integer("replica.fetch.wait.max.ms"),
            min_bytes=integer("replica.fetch.min.bytes"),
            max_bytes=integer("replica.fetch.response.max.bytes"),
            partition_max_bytes=integer("replica.fetch.max.bytes"),
            backoff_ms=integer("replica.fetch.backoff.ms"),
        )


class Note(NamedTuple):
    """A line for the node's log, about a partition or (None) the leader."""

    partition: Partition | None
    text: str
    error: Exception | None = None
    """The error of the replica's own log, or of the records in the answer."""


@dataclass(slots=True)
class Fetched:
    """The effects of an answer."""

    moved: list[Partition] = field(default_factory=list[Partition])
    """Partitions whose log end, high watermark or log start moved: requests that wait for them are to be tried again."""
    notes: list[Note] = field(default_factory=list[Note])


class Fetcher:
    """The partitions that one leader is asked for."""

    def __init__(
        self, leader: NodeId, node: NodeId, broker_epoch: BrokerEpoch, settings: FetchSettings | None = None
    ) -> None:
        """`broker_epoch` is this node's own registration."""
        self.leader = leader
        self.node = node
        self.broker_epoch = broker_epoch
        self.settings = settings or FetchSettings()
        self.session = FetchSession()
        self._followed: dict[Key, Followed] = {}
        self._changed: dict[Key, None] = {}
        """Partitions whose part of the request may have changed; the fetch session keeps all others as they were."""
        self._waiting: list[tuple[TimestampMs, int, Followed]] = []
        """A heap of those that are to be looked at later."""
        self._numbers = count()
        self._asked: list[Followed] = []
        """Those that the outstanding request names; after a failure all that are followed."""
        self._out: type[FetchResponse] | type[ListOffsetsResponse] | None = None
        self._begins_again = False
        """The follower did not apply all of a response. Within the session the leader does not send a high watermark or log start
        again that has not changed, so a new session begins."""

    # ---- what is followed

    def follow(self, partition: Partition) -> bool:
        """Ask for a partition from now on; False where it is already asked for in this leader epoch (or has failed in it)."""
        known = self._followed.get((partition.topic_id, partition.index))
        if known is not None and known.partition is partition and known.leader_epoch == partition.state.leader_epoch:
            return False
        if known is not None and known.partition is not partition:
            self._begins_again = True
        found = Followed(partition, partition.state.leader_epoch)
        self._followed[found.key] = found
        self._changed[found.key] = None
        return True

    def leave(self, partition: Partition) -> None:
        """Ask for it no more."""
        key = partition.topic_id, partition.index
        if self._followed.pop(key, None) is not None:
            self._changed[key] = None

    def look_again(self, partition: Partition) -> None:
        """Its log has changed by something else than an answer."""
        if (key := (partition.topic_id, partition.index)) in self._followed:
            self._changed[key] = None

    @property
    def followed(self) -> list[Partition]:
        """All partitions that are asked for, failed ones among them."""
        return [each.partition for each in self._followed.values()]

    def has_failed(self, partition: Partition) -> bool:
        """Whether a partition waits for its next leader epoch."""
        known = self._followed.get((partition.topic_id, partition.index))
        return known is not None and known.stage is Stage.FAILED

    @property
    def waits(self) -> bool:
        """Whether a request is out."""
        return self._out is not None

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to follow, nothing out, and no session to close: the fetcher can go."""
        return not self._followed and self._out is None and not self.session.partitions

    # ---- asking

    def next_request(self, now: TimestampMs) -> FetchRequest | ListOffsetsRequest | None:
        """The next request, which is out from then on; None while one is, or while there is nothing to ask."""
        if self._out is not None:
            return None
        while self._waiting and self._waiting[0][0] <= now:
            each = heapq.heappop(self._waiting)[2]
            each.waits = False
            self._changed[each.key] = None
        due = self._take_due(now)
        return self._bounds_request(due) or self._fetch_request(due)

    def _take_due(self, now: TimestampMs) -> dict[Key, Followed | None]:
        """Those of which something is to be asked, of a full request all; None for those that are not followed (any more).

        Nothing that changed, nothing to ask: what is not in the session then waits for its time, or has failed.
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
        self._changed = dict.fromkeys(looked_at)  # what is not a bound is asked for afterwards
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
        request.replica_state = FetchRequest.ReplicaState(replica_id=self.node, replica_epoch=self.broker_epoch)
        request.max_wait_ms = self.settings.max_wait_ms
        request.min_bytes = self.settings.min_bytes
        request.max_bytes = self.settings.max_bytes
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
        """When `next_request` has something to ask; None while a request is out, or for never."""
        if self._out is not None:
            return None
        if any(key not in self._changed for key in self.session.partitions):
            return AT_ONCE
        changed = [self._followed[key] for key in self._changed if key in self._followed]
        times = [each.ready_at for each in changed if each.stage is not Stage.FAILED]
        return min([*times, *(each[0] for each in self._waiting[:1])], default=None)

    # ---- answers

    def answered(self, response: FetchResponse | ListOffsetsResponse, now: TimestampMs) -> Fetched:
        """Do as the leader says. An answer to no question changes nothing; one of the wrong kind is none."""
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
        """There will be no answer to the open request."""
        return self._fail("did not answer", now) if self._out is not None else Fetched()

    def _fail(self, text: str, now: TimestampMs) -> Fetched:
        # Whether the leader took the request is not known: its session may be one epoch ahead, and would refuse the
        # next one.
        if self._out is FetchResponse:
            self.session.begin_again()
            self._asked = [*self._followed.values()]
        self._out = None
        self._back_off_all(now)
        return Fetched(notes=[Note(None, f"broker {self.leader} {text}")])

    def _back_off_all(self, now: TimestampMs) -> None:
        for each in self._asked:
            if each.asked is not None:
                each.asked = None
                each.ready_at = now + self.settings.backoff_ms
                self._changed[each.key] = None

    def _take_fetch_response(self, response: FetchResponse, fetched: Fetched, now: TimestampMs) -> None:
        was_full = self.session.is_full
        wrong = self.session.answered(response)
        if self.session.is_full:
            self._changed.update(dict.fromkeys(self._followed))
        if wrong is not None:
            fetched.notes.append(Note(None, f"broker {self.leader}: {wrong}"))
            if was_full:
                # A lost session is begun again at once; one that cannot be begun must not be tried without a pause.
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
        """The partition of an answer, unless its leader or its log end offset has changed since the request."""
        followed = self._followed.get(key)
        if followed is None or followed.asked is None or not followed.is_followed_from(self.leader):
            return None
        # A truncation since the request moves the end: the answer's records would leave a gap, or repeat what is there.
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
            # Who got records stands last in the next full request, so that none starves.
            self._followed[followed.key] = self._followed.pop(followed.key)
        if len(records) and not grew:
            followed.ready_at = now + self.settings.backoff_ms
            fetched.notes.append(Note(partition, f"{len(records)} bytes at {before} hold no whole batch"))

    def _truncate(
        self, followed: Followed, diverging: FetchResponse.EpochEndOffset, fetched: Fetched, now: TimestampMs
    ) -> None:
        partition = followed.partition
        before, high_watermark = (partition.log.log_end_offset, partition.last_fetched_epoch), partition.high_watermark
        end = partition.require_follower_of(self.leader).truncate(diverging.epoch, diverging.end_offset)
        # The high watermark that came along cannot be believed before the logs agree (Kafka waits for it to move).
        self._begins_again = True
        fetched.moved.append(partition)
        if (end, partition.last_fetched_epoch) == before:
            # The same question would have the same answer.
            followed.ready_at = now + self.settings.backoff_ms
        committed = " below its high watermark" if end < high_watermark else ""
        text = f"cut from {before[0]} to {end}{committed}: epoch {diverging.epoch} ended at {diverging.end_offset} on the leader"
        fetched.notes.append(Note(partition, text))

    def _take_error(self, followed: Followed, code: int, fetched: Fetched, now: TimestampMs) -> None:
        """A fenced epoch is not asked for again; the others pass with time or with newer metadata."""
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            followed.go_to(Stage.FAILED)
        else:
            followed.go_to(Stage.FETCHING)
            followed.ready_at = now + self.settings.backoff_ms
        self._note_failure(followed, f"broker {self.leader} answered with error {code}", fetched)

    def _take_refusal(
        self, followed: Followed, error: RecordsError | LogError | KafkaError, fetched: Fetched, now: TimestampMs
    ) -> None:
        """Corrupt bytes may be whole next time, and a full disk may have room; a log that refuses will refuse again."""
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
        # A bound that was left out is asked for again, after a pause.
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
