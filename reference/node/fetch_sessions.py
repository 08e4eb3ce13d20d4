"""Fetch sessions: a client names its partitions once and from then on only what changes (KIP-227).

A session is a list of partitions with what the client last asked and was last told of each. Each request of a session
carries the next epoch; an incremental response leaves out the partitions with nothing new, and a partition that returned
records goes to the end of the list, so that none starves when a response has room for few (FSS-01 to FSS-10).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.primitives import NO_UUID, Chance, Epoch, Offset, TimestampMs, TopicId, TopicName

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

MAX_PARTITIONS_PER_SESSION = 100_000
"""Limit on what one session may name."""

EVICTION_MS = 120_000
"""A session may be pushed out by a new one when it was not used for this long."""

PartitionKey = tuple[TopicName, TopicId, int]
"""Topic by name (before v13) or by id, and the partition's index."""


@dataclass(slots=True)
class Wanted:
    """What a client asks of one partition, and what it was told last."""

    topic: TopicName
    topic_id: TopicId
    partition: int
    fetch_offset: Offset
    max_bytes: int
    current_leader_epoch: Epoch
    last_fetched_epoch: Epoch
    log_start_offset: Offset
    high_watermark: Offset
    """What a follower has for its high watermark; consumers do not say one, and the default is beyond all."""
    sent_high_watermark: Offset = -1
    sent_log_start_offset: Offset = -1

    @property
    def key(self) -> PartitionKey:
        return self.topic, self.topic_id, self.partition


@dataclass(slots=True)
class Session:
    id: int
    uses_topic_ids: bool
    created_ms: TimestampMs
    used_ms: TimestampMs
    epoch: int = 1
    partitions: dict[PartitionKey, Wanted] = field(default_factory=dict[PartitionKey, Wanted])


@dataclass(slots=True)
class FetchContext:
    """One request's place: the partitions to serve, in order, and the session that they belong to."""

    wanted: list[Wanted]
    session: Session | None = None
    session_id: int = INVALID_SESSION_ID
    error: ErrorCode = ErrorCode.NONE
    incremental: bool = False
    creates_session: bool = False


class FetchSessions:
    """The sessions of one node: a cache with a fixed number of slots."""

    def __init__(self, slots: int, chance: Chance) -> None:
        self.slots = slots
        self.chance = chance
        self.sessions: dict[int, Session] = {}

    def context(self, request: FetchRequest, version: int, now: TimestampMs) -> FetchContext:
        """What a request asks for; `error` is set when its session is not what it says."""
        if version < 7 or request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self.sessions.pop(request.session_id, None)
            wanted = list(_wanted(request))
            return FetchContext(wanted, creates_session=version >= 7 and request.session_epoch == INITIAL_EPOCH)
        session = self.sessions.get(request.session_id)
        if session is None:
            return FetchContext([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchContext([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= 13):
            return FetchContext([], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue(session, request, now)

    def _continue(self, session: Session, request: FetchRequest, now: TimestampMs) -> FetchContext:
        for each in _wanted(request):
            known = session.partitions.get(each.key)
            if known is None:
                if len(session.partitions) < MAX_PARTITIONS_PER_SESSION:
                    session.partitions[each.key] = each
            else:
                known.fetch_offset = each.fetch_offset
                known.max_bytes = each.max_bytes
                known.current_leader_epoch = each.current_leader_epoch
                known.last_fetched_epoch = each.last_fetched_epoch
                known.log_start_offset = each.log_start_offset
                known.high_watermark = each.high_watermark
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                session.partitions.pop((topic.topic, topic.topic_id, partition), None)
        session.used_ms = now
        if not session.partitions:
            del self.sessions[session.id]
            return FetchContext([])
        session.epoch = session.epoch % 0x7FFFFFFF + 1
        return FetchContext([*session.partitions.values()], session, session.id, incremental=True)

    def finish(
        self, context: FetchContext, version: int, results: list[FetchResponse.PartitionData], now: TimestampMs
    ) -> FetchResponse:
        """Make the response of the partitions' results, which stand in the order of `context.wanted`."""
        if context.creates_session and context.wanted:
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

    def _create(self, context: FetchContext, version: int, now: TimestampMs) -> None:
        """Take a free slot, or one that was not used for long; without one the fetch stays sessionless."""
        if len(self.sessions) >= self.slots:
            oldest = min(self.sessions.values(), key=lambda session: session.used_ms, default=None)
            if oldest is None or now - oldest.used_ms <= EVICTION_MS:
                return
            del self.sessions[oldest.id]
        id = self.chance.randrange(1, 1 << 31)
        while id in self.sessions:
            id = id % 0x7FFFFFFF + 1
        session = self.sessions[id] = Session(id, version >= 13, now, now)
        session.partitions = {wanted.key: wanted for wanted in context.wanted}
        context.session, context.session_id = session, id


def _is_news(wanted: Wanted, result: FetchResponse.PartitionData) -> bool:
    """Whether an incremental response has something to tell of the partition (FSS-06), or of a high watermark that a
    follower does not have, whatever it was told (KIP-1166)."""
    return (
        _has_records(result)
        or result.error_code != ErrorCode.NONE
        or result.high_watermark != wanted.sent_high_watermark
        or result.high_watermark > wanted.high_watermark
        or result.log_start_offset != wanted.sent_log_start_offset
        or result.preferred_read_replica != -1
        or result.diverging_epoch.epoch >= 0
    )


def _remember(context: FetchContext, wanted: Wanted, result: FetchResponse.PartitionData) -> None:
    """Keep what is being told; an error or a divergence is told again until it is gone. Partitions with records go last
    (FSS-10)."""
    failed = result.error_code != ErrorCode.NONE or result.diverging_epoch.epoch >= 0
    wanted.sent_high_watermark = -1 if failed else result.high_watermark
    wanted.sent_log_start_offset = -1 if failed else result.log_start_offset
    assert context.session is not None
    partitions = context.session.partitions
    if context.incremental and _has_records(result) and wanted.key in partitions:
        partitions[wanted.key] = partitions.pop(wanted.key)


def _has_records(result: FetchResponse.PartitionData) -> bool:
    return result.records is not None and len(result.records) > 0


def _wanted(request: FetchRequest) -> Iterable[Wanted]:
    for topic in request.topics:
        for each in topic.partitions:
            yield Wanted(
                topic.topic,
                topic.topic_id or NO_UUID,
                each.partition,
                each.fetch_offset,
                each.partition_max_bytes,
                each.current_leader_epoch,
                each.last_fetched_epoch,
                each.log_start_offset,
                each.high_watermark,
            )
