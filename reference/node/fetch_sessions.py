"""Fetch sessions: a client names all its partitions once, and after that only changed ones (KIP-227).

A session is a list of partitions, each with the client's last request and the last response. Each request of a session
carries the next epoch; an incremental response leaves out the partitions with nothing new, and a partition that returned
records goes to the end of the list, so that none starves when a response has room for few (FSS-01 to FSS-10).

A partition is *settled* while reading it would add nothing to a response: the client has every record that it may read, and
received the current high watermark and log start offset. A request reads only partitions that are not settled, so that idle
ones cost nothing. A change of the partition (`FetchSessions.news`), a request that names it, or another `reader` of the session
unsettles it. In a follower's session every request counts as a fetch of the settled partitions, too; the leader records that
when it unsettles one, as of the session's last request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, Protocol

from reference.node.effects import ConnectionId
from reference.node.requests import Key
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.primitives import (
    NO_OFFSET,
    NO_UUID,
    Chance,
    LeaderEpoch,
    Offset,
    TimestampMs,
    TopicId,
    TopicName,
)
from reference.replication.progress import Progress

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

MAX_PARTITIONS_PER_SESSION = 100_000
"""The most partitions of one session."""

EVICTION_MS = 120_000
"""A session that has been idle, or has lasted, for longer than this may be evicted by a new one (see `Session.worth`)."""

PartitionKey = tuple[TopicName, TopicId, int]
"""Topic by name (before v13) or by id, and the partition's index."""


@dataclass(slots=True, eq=False)
class Wanted:
    """A client's fetch of one partition, and the last response to it."""

    topic: TopicName
    topic_id: TopicId
    partition: int
    fetch_offset: Offset
    max_bytes: int
    current_leader_epoch: LeaderEpoch
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset
    sent_high_watermark: Offset = NO_OFFSET
    sent_log_start_offset: Offset = NO_OFFSET
    rank: int = 0
    """Its place in the session: partitions are read in this order."""
    settled_as: Key | None = None
    """The node's key of this partition while it is settled (see `FetchSessions.news`); else None."""
    known_as: TopicName | None = None
    """The topic's name when the partition was read last; None where its id was never known."""
    key: PartitionKey = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.topic, self.topic_id, self.partition

    @classmethod
    def of(cls, topic: FetchRequest.FetchTopic, asked: FetchRequest.FetchPartition) -> Wanted:
        return cls(
            topic.topic,
            topic.topic_id or NO_UUID,
            asked.partition,
            asked.fetch_offset,
            asked.partition_max_bytes,
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
            asked.log_start_offset,
        )

    def ask(self, asked: FetchRequest.FetchPartition) -> None:
        """The client's next fetch of it."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start_offset = asked.log_start_offset


class Waiting(Protocol):
    """A fetch that waits, and has a session."""

    def admit(self, wanted: Wanted, key: Key) -> None:
        """Add a partition that was settled, and has changed, to the partitions that the fetch reads."""
        ...


@dataclass(slots=True, eq=False)
class Session:
    id: int
    uses_topic_ids: bool
    is_of_follower: bool
    created_ms: TimestampMs
    used_ms: TimestampMs
    epoch: int = 1
    partitions: dict[PartitionKey, Wanted] = field(default_factory=dict[PartitionKey, Wanted])
    unsettled: dict[Wanted, None] = field(default_factory=dict[Wanted, None])
    ranks: Iterator[int] = field(default_factory=count)
    reader: object = None
    """The fields of the request, besides its partitions, that affect a read; compared for equality only.

    Another reader unsettles all partitions of the session.
    """
    waiting: dict[ConnectionId, Waiting] = field(default_factory=dict[ConnectionId, Waiting])
    """The session's waiting fetches. One, unless a client abandoned a connection and sent its next request on another."""

    @property
    def worth(self) -> tuple[bool, int]:
        """A follower's session is worth more than a consumer's, and of two the one with more partitions."""
        return self.is_of_follower, len(self.partitions)

    def may_be_evicted_by(self, is_of_follower: bool, size: int) -> bool:
        """Whether a new session may take this one's slot before it is idle: one of greater worth, if this one has lasted for
        EVICTION_MS when it was last used; a follower's need not wait for that where this one is a consumer's."""
        has_lasted = self.used_ms - self.created_ms > EVICTION_MS
        is_open = has_lasted or (is_of_follower and not self.is_of_follower)
        return is_open and (is_of_follower, size) > self.worth

    def append(self, wanted: Wanted) -> None:
        """Put a partition at the end of the session's order; add it if it is new."""
        wanted.rank = next(self.ranks)
        self.partitions[wanted.key] = wanted


class Settled(NamedTuple):
    """A partition to settle: its place in the session, the node's key of it and, in a follower's session, the progress that its
    leader has recorded of that follower (else None)."""

    wanted: Wanted
    key: Key
    progress: Progress | None


@dataclass(slots=True)
class FetchContext:
    """The state of one request: the partitions to read, in order, and the session, if there is one."""

    wanted: list[Wanted]
    session: Session | None = None
    session_id: int = INVALID_SESSION_ID
    error: ErrorCode = ErrorCode.NONE
    incremental: bool = False
    creates_session: bool = False
    epoch: int = 1
    """The session's epoch after this request."""
    reader: object = None
    is_of_follower: bool = False

    @property
    def has_session(self) -> bool:
        """Whether the request has a session, or `finish` may create one."""
        return self.session is not None or self.creates_session

    @property
    def is_superseded(self) -> bool:
        """Whether the session has gone on with the next epoch while this fetch waited."""
        return self.session is not None and self.session.epoch != self.epoch

    @property
    def settled_count(self) -> int:
        """How many partitions of the session are not read."""
        return len(self.session.partitions) - len(self.session.unsettled) if self.session is not None else 0


class FetchSessions:
    """The sessions of one node: a cache with a fixed number of slots."""

    def __init__(self, slots: int, chance: Chance) -> None:
        self.slots = slots
        self.chance = chance
        self.sessions: dict[int, Session] = {}
        self._settled: dict[Key, dict[Wanted, tuple[Session, Progress | None]]] = {}

    def context(
        self,
        request: FetchRequest,
        version: int,
        now: TimestampMs,
        reader: object = None,
        is_of_follower: bool = False,
    ) -> FetchContext:
        """Begin to serve a request: close the session that it names, or check and update it.

        `error` is set where the session's id, its epoch or its use of topic ids does not match.
        """
        if version < 7 or request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if (former := self.sessions.get(request.session_id)) is not None:
                self._close(former)
            creates_session = version >= 7 and request.session_epoch == INITIAL_EPOCH
            wanted = [Wanted.of(topic, each) for topic in request.topics for each in topic.partitions]
            return FetchContext(wanted, creates_session=creates_session, reader=reader, is_of_follower=is_of_follower)
        session = self.sessions.get(request.session_id)
        if session is None:
            return FetchContext([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchContext([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= 13):
            return FetchContext([], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.reader != reader:
            for each in session.partitions.values():
                self._unsettle(session, each)
            session.reader = reader
        return self._continue(session, request, now)

    def _continue(self, session: Session, request: FetchRequest, now: TimestampMs) -> FetchContext:
        for topic in request.topics:
            for each in topic.partitions:
                known = session.partitions.get((topic.topic, topic.topic_id or NO_UUID, each.partition))
                if known is not None:
                    self._unsettle(session, known)
                    known.ask(each)
                elif len(session.partitions) < MAX_PARTITIONS_PER_SESSION:
                    added = Wanted.of(topic, each)
                    session.append(added)
                    session.unsettled[added] = None
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                known = session.partitions.pop((topic.topic, topic.topic_id, partition), None)
                if known is not None:
                    self._unsettle(session, known)
                    del session.unsettled[known]
        session.used_ms = now
        if not session.partitions:
            del self.sessions[session.id]
            return FetchContext(_wanted_by(request))
        session.epoch = session.epoch % 0x7FFFFFFF + 1
        wanted = sorted(session.unsettled, key=lambda each: each.rank)
        return FetchContext(wanted, session, session.id, incremental=True, epoch=session.epoch)

    # ---- what need not be read

    def settle(self, context: FetchContext, settled: Iterable[Settled]) -> None:
        """Read these no more until there is news of them."""
        session = context.session
        if session is None or self.sessions.get(session.id) is not session:
            return
        for wanted, key, progress in settled:
            if wanted in session.unsettled:
                del session.unsettled[wanted]
                wanted.settled_as = key
                self._settled.setdefault(key, {})[wanted] = session, progress

    def news(self, key: Key) -> None:
        """To be called when a read of this partition may give another result than before.

        The partition is unsettled in every session, and offered to the fetches that wait there.
        """
        for wanted, (session, _) in [*self._settled.get(key, {}).items()]:
            self._unsettle(session, wanted)
            for waiting in session.waiting.values():
                waiting.admit(wanted, key)

    def _unsettle(self, session: Session, wanted: Wanted) -> None:
        """Make the partition readable again.

        In a follower's session the leader also records that the follower was caught up at the session's last request, which
        counts as a fetch of this partition, although it was not read.
        """
        if (key := wanted.settled_as) is None:
            return
        wanted.settled_as = None
        session.unsettled[wanted] = None
        _, progress = self._settled[key].pop(wanted)
        if not self._settled[key]:
            del self._settled[key]
        if progress is not None:
            progress.was_caught_up(session.used_ms)

    def _close(self, session: Session) -> None:
        for each in session.partitions.values():
            self._unsettle(session, each)
        del self.sessions[session.id]

    # ---- responses

    def finish(
        self, context: FetchContext, version: int, results: list[FetchResponse.PartitionData], now: TimestampMs
    ) -> FetchResponse:
        """Make the response of the partitions' results, which stand in the order of `context.wanted`.

        A fetch that waited while its session went on with the next epoch is refused, and the session stays as it is (FSS-13).
        """
        if context.is_superseded:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=context.session_id)
        if context.creates_session:
            self._create(context, version, now)
        response = FetchResponse(error_code=context.error, session_id=context.session_id)
        topics: list[FetchResponse.FetchableTopicResponse] = []
        for wanted, result in zip(context.wanted, results, strict=True):
            if context.incremental and not _is_news(wanted, result):
                continue
            if context.session is not None:
                _remember(context, wanted, result)
            if not topics or topics[-1].topic != wanted.topic or topics[-1].topic_id != wanted.topic_id:
                topics.append(FetchResponse.FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id))
            topics[-1].partitions.append(result)
        response.responses = topics
        return response

    def throttled(self, context: FetchContext, throttle_ms: int) -> FetchResponse:
        """The response without partitions to a client that has used up its quota; its session stays as it is."""
        error = ErrorCode.INVALID_FETCH_SESSION_EPOCH if context.is_superseded else ErrorCode.NONE
        return FetchResponse(error_code=error, throttle_time_ms=throttle_ms, session_id=context.session_id)

    def _create(self, context: FetchContext, version: int, now: TimestampMs) -> None:
        """Create the session in a free slot, or in that of one that it may evict; otherwise the fetch stays without one."""
        if len(self.sessions) >= self.slots:
            evicted = self._evictable(context, now)
            if evicted is None:
                return
            self._close(evicted)
        id = self.chance.randrange(1, 1 << 31)
        while id in self.sessions:
            id = id % 0x7FFFFFFF + 1
        session = self.sessions[id] = Session(
            id, version >= 13, context.is_of_follower, created_ms=now, used_ms=now, reader=context.reader
        )
        for wanted in context.wanted:
            session.append(wanted)
        session.unsettled = dict.fromkeys(session.partitions.values())
        context.session, context.session_id = session, id

    def _evictable(self, context: FetchContext, now: TimestampMs) -> Session | None:
        """The least recently used session if it has been idle for EVICTION_MS, else the one of the least worth that may go."""
        oldest = min(self.sessions.values(), key=lambda session: (session.used_ms, session.id), default=None)
        if oldest is not None and now - oldest.used_ms > EVICTION_MS:
            return oldest
        open_to_it = (
            each
            for each in self.sessions.values()
            if each.may_be_evicted_by(context.is_of_follower, len(context.wanted))
        )
        return min(open_to_it, key=lambda session: (session.worth, session.id), default=None)


def _wanted_by(request: FetchRequest) -> list[Wanted]:
    return [Wanted.of(topic, each) for topic in request.topics for each in topic.partitions]


def _is_news(wanted: Wanted, result: FetchResponse.PartitionData) -> bool:
    """Whether an incremental response has something to report about the partition (FSS-06)."""
    return (
        _has_records(result)
        or result.error_code != ErrorCode.NONE
        or result.high_watermark != wanted.sent_high_watermark
        or result.log_start_offset != wanted.sent_log_start_offset
        or result.preferred_read_replica != -1
        or result.diverging_epoch.epoch >= 0
    )


def _remember(context: FetchContext, wanted: Wanted, result: FetchResponse.PartitionData) -> None:
    """Remember what this response reports.

    After an error no high watermark counts as sent, so that the partition is reported once more when it recovers. In an
    incremental response a partition with records moves to the end of the session's order (FSS-10).
    """
    failed = result.error_code != ErrorCode.NONE
    wanted.sent_high_watermark = NO_OFFSET if failed else result.high_watermark
    wanted.sent_log_start_offset = result.log_start_offset
    assert context.session is not None
    if context.incremental and _has_records(result) and wanted.key in context.session.partitions:
        context.session.append(wanted)


def _has_records(result: FetchResponse.PartitionData) -> bool:
    return result.records is not None and len(result.records) > 0
