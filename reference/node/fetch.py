"""Fetch: records from an offset on, now or when there are enough. (FET-*, FSS-*, EPO-*)"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from reference.node.context import Context
from reference.node.current_leaders import NOT_LEADING, name_leaders_of_fetch
from reference.node.fetch_sessions import FetchContext, FetchSessions, Settled, Wanted
from reference.node.preferred_replicas import RACK_AWARE, preferred_replica
from reference.node.quotas import Quotas
from reference.node.requests import Key, Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.primitives import NO_NODE, NO_OFFSET, BrokerEpoch, Chance, NodeId, TimestampMs, TopicName
from reference.protocol.records.errors import RecordsError
from reference.replication.partition import Partition, Read
from reference.replication.reading import FollowerFetch
from reference.storage.errors import LogError
from reference.storage.log import LogSlice

ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED) = (0, 1)
FIRST_VERSION_FROM_ANY_REPLICA = 11
FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_TOPIC_IDS = 13
RANK = attrgetter("rank")
FOUND_BEFORE_READING = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""With these errors Kafka's list of aborted transactions is empty, with others it is null."""
UNREADABLE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
PartitionData = FetchResponse.PartitionData


@dataclass(frozen=True, slots=True)
class Fetching:
    """The parts of the node that fetches need."""

    context: Context
    sessions: FetchSessions
    max_bytes: int
    """Of one response (fetch.max.bytes)."""
    may_propose: Callable[[Partition], None]
    """Takes a partition whose ISR a follower's fetch may have enlarged."""
    quotas: Quotas
    selects_by_rack: bool = False
    """Whether consumers are sent to a replica in their own rack (replica.selector.class)."""


def fetching_of(context: Context, chance: Chance, may_propose: Callable[[Partition], None], quotas: Quotas) -> Fetching:
    """What answers a node's fetches: its sessions learn from the purgatories which partitions have news."""
    integer = context.configuration.integer
    sessions = FetchSessions(integer("max.incremental.fetch.session.cache.slots"), chance)
    context.purgatories.news = sessions.news
    selects_by_rack = context.configuration.broker("replica.selector.class") == RACK_AWARE
    return Fetching(context, sessions, integer("fetch.max.bytes"), may_propose, quotas, selects_by_rack)


def fetch(fetching: Fetching, request: Request, body: FetchRequest, now: TimestampMs) -> FetchResponse | None:
    """Serve a consumer's fetch (FET-01 to FET-21), or a follower's (REP-*).

    A follower that waits is not answered because the high watermark has moved: it learns of that with the next records, or when
    its time is over, as from Kafka 4.3.1 (also where its fetch says what it has, a field that only the metadata's quorum uses).
    It is answered at once when a partition cannot be read, when none is known, when `min_bytes` are there, when it asks
    for what lies behind all that it may see, or when it does not want to wait; else it is parked until an append wakes
    it or its time is over.
    """
    # validate
    if body.isolation_level not in ISOLATION_LEVELS:
        return _of_no_isolation(body, request.version)
    # fence: the session's epoch here, leader epochs and a follower's incarnation in the partitions
    follower, epoch = _follower(request, body)
    peer = fetching.context.replicas.peer(follower) if follower >= 0 else None
    reader = follower, epoch, peer, request.version, body.isolation_level
    context = fetching.sessions.context(body, request.version, now, reader, follower >= 0)
    if context.error is not ErrorCode.NONE:
        return FetchResponse(error_code=context.error)
    # apply
    serving = Serving(fetching, request, body, context, follower, epoch)
    serving.read(now, is_first=True)
    # respond
    response = None
    if serving.is_ready or body.max_wait_ms <= 0:
        response = serving.finish(now)
    else:
        serving.release()
        serving.park(now)
    serving.complete_produces(now)
    return response


def _follower(request: Request, body: FetchRequest) -> tuple[NodeId, BrokerEpoch]:
    """Which broker follows, and in which incarnation; below 0 for a consumer."""
    state = body.replica_state
    is_said_there = request.version >= FIRST_VERSION_WITH_REPLICA_STATE
    return state.replica_id if is_said_there else body.replica_id, state.replica_epoch


def _of_no_isolation(body: FetchRequest, version: int) -> FetchResponse:
    """The error for an unknown isolation level: Kafka has none of its own for that (FET-19)."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    response = FetchResponse(error_code=code)
    for topic in body.topics if version < FIRST_VERSION_WITH_TOPIC_IDS else ():
        refused = [PartitionData(partition_index=each.partition, error_code=code) for each in topic.partitions]
        response.responses.append(FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=refused))
    return response


@dataclass(slots=True)
class _Look:
    """The last read of one partition, for deciding whether to respond, and for the response."""

    read: Read
    error: ErrorCode = ErrorCode.NONE
    preferred: NodeId = NO_NODE
    """The replica that a consumer is sent to."""
    is_urgent: bool = False
    """Whether the response must not wait."""
    waits: bool = True
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.read.records)

    def release(self) -> None:
        """Let go of the file that records pin which will not be sent."""
        if isinstance(self.read.records, LogSlice):
            self.read.records.release()


REFUSED = Read(NO_OFFSET, NO_OFFSET, NO_OFFSET)
"""Of an error: where the log is, is not reported, as Kafka does not (FET-02)."""
NOT_READ = _Look(Read(NO_OFFSET, NO_OFFSET, NO_OFFSET))
"""Of a settled partition."""


class Serving:
    """One fetch request. While it waits, only a partition that has news is read again, and all of them for the response:
    all that it names and all that were not settled (see `fetch_sessions`)."""

    __slots__ = (
        "_body",
        "_context",
        "_epoch",
        "_fetching",
        "_follower",
        "_looks",
        "_max_bytes",
        "_moved",
        "_names_leaders",
        "_rack",
        "_request",
        "_settled",
        "_size",
        "_urgent",
        "_waiting",
        "connection",
        "places",
    )  # fmt: skip

    def __init__(
        self,
        fetching: Fetching,
        request: Request,
        body: FetchRequest,
        context: FetchContext,
        follower: NodeId,
        epoch: BrokerEpoch,
    ) -> None:
        self._fetching = fetching
        self._request = request
        self.connection = request.client.connection
        self._body = body
        self._context = context
        self._follower = follower
        self._epoch = epoch
        self._rack = body.rack_id if fetching.selects_by_rack and follower < 0 else ""
        """Empty where no replica is preferred; versions below 11 have no rack."""
        most = fetching.quotas.most_fetched(request) if follower < 0 else None
        self._max_bytes = min(body.max_bytes, fetching.max_bytes, *(() if most is None else (most,)))
        self._moved: list[Partition] = []
        """The partitions in which a follower's fetch has committed something."""
        self._names_leaders = False
        """Whether a partition was refused because another broker leads it."""
        self._looks: dict[Wanted, _Look] = {}
        self._size: int = 0
        self._urgent: int = 0
        self._waiting = context.settled_count
        """Sums over the looks, and the settled partitions, which wait."""
        self._settled: list[Settled] = []
        """Which of the partitions of the last `read` need not be read again."""
        self.places: dict[Key, list[Wanted]] = {}
        """The partitions that are read, by whose news wake this fetch."""
        for wanted in context.wanted:
            if (name := self._name_of(wanted)) is not None:
                self.places.setdefault((name, wanted.partition), []).append(wanted)

    @property
    def awaits_commits(self) -> bool:
        return self._follower < 0

    def _name_of(self, wanted: Wanted) -> TopicName | None:
        by_id = self._request.version >= FIRST_VERSION_WITH_TOPIC_IDS
        return self._fetching.context.image.topic_name(wanted.topic_id) if by_id else wanted.topic

    def read(self, now: TimestampMs, is_first: bool = False) -> None:
        """Read all partitions in order.

        The first partition that has records gives at least one whole batch, whatever the limits (FET-08, KIP-74). Only
        the first read of a follower's fetch is news of its log end offset.
        """
        left = self._max_bytes
        for look in self._looks.values():
            self._waiting -= look.waits
        self._looks, self._settled = {}, []
        self._size = self._urgent = 0
        for wanted in self._context.wanted:
            self._looks[wanted] = look = self._look(wanted, min(wanted.max_bytes, left), self._size == 0, is_first, now)
            self._size += look.size
            self._urgent += look.is_urgent
            self._waiting += look.waits
            left = max(0, left - look.size)

    @property
    def is_ready(self) -> bool:
        """Whether to answer: a partition cannot wait, or none is known, or `min_bytes` are there."""
        return self._urgent > 0 or self._waiting == 0 or self._size >= min(self._body.min_bytes, self._max_bytes)

    def _count(self, look: _Look, sign: int) -> None:
        self._size += sign * look.size
        self._urgent += sign * look.is_urgent
        self._waiting += sign * look.waits

    def _look_again(self, wanted: Wanted, now: TimestampMs) -> None:
        """Read one partition as if it were alone: no less than the response would have of it."""
        look = self._look(wanted, min(wanted.max_bytes, self._max_bytes), True, False, now)
        self._count(self._looks[wanted], -1)
        self._looks[wanted] = look
        self._count(look, 1)
        look.release()

    def _is_beyond(self, partition: Partition, wanted: Wanted, read: Read) -> bool:
        """Whether a consumer asks for what lies behind the batch at which the part that it may see ends.

        It is answered at once, as by Kafka, which takes it for one whose leader has lost records. Errors: LogError, RecordsError.
        """
        end = read.last_stable_offset if self._body.isolation_level == READ_COMMITTED else read.high_watermark
        return wanted.fetch_offset > end and partition.log.batch_start(wanted.fetch_offset) > end

    def _look(self, wanted: Wanted, max_bytes: int, minimum_one: bool, is_first: bool, now: TimestampMs) -> _Look:
        name, preferred, is_beyond = self._name_of(wanted), None, False
        try:
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            if not self._fetching.context.access.may_fetch(self._request, name, self._follower >= 0):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            partition = self._fetching.context.replicas.partition(name, wanted.partition)
            if self._follower >= 0:
                read = self._read_as_follower(partition, wanted, max_bytes, minimum_one, is_first, now)
            else:
                if self._rack and (preferred := self._preferred(partition, wanted, now)) is not None:
                    max_bytes, minimum_one = 0, False
                read = partition.read(
                    wanted.fetch_offset,
                    max_bytes=max_bytes,
                    minimum_one=minimum_one,
                    committed=self._body.isolation_level == READ_COMMITTED,
                    asked_epoch=wanted.current_leader_epoch,
                    last_epoch=wanted.last_fetched_epoch,
                    from_any_replica=self._request.version >= FIRST_VERSION_FROM_ANY_REPLICA,
                )
                is_beyond = self._is_beyond(partition, wanted, read)
        except (KafkaError, LogError, RecordsError) as error:
            return self._refuse(name, wanted, error)
        if preferred is not None:
            return _Look(read, preferred=preferred, is_urgent=True, waits=False)
        if read.diverging is not None:
            return _Look(read, is_urgent=True, waits=False)
        if self._context.has_session and self._is_settled(partition, wanted, read):
            progress = partition.leading.followers.get(self._follower) if partition.leading is not None else None
            self._settled.append(Settled(wanted, partition.key, progress))
        return _Look(read, is_urgent=is_beyond, waits=not is_beyond)

    def _preferred(self, partition: Partition, wanted: Wanted, now: TimestampMs) -> NodeId | None:
        brokers = self._fetching.context.image.brokers
        return preferred_replica(partition, self._rack, wanted.fetch_offset, brokers, now)

    def _is_settled(self, partition: Partition, wanted: Wanted, read: Read) -> bool:
        """Whether the partition need not be read before there is news of it: what it has, the client has.

        A follower that is not in sync is read each time, for it may join without news of the partition.
        """
        if self._follower < 0:
            is_committed = self._body.isolation_level == READ_COMMITTED
            return wanted.fetch_offset == (read.last_stable_offset if is_committed else read.high_watermark)
        return (
            wanted.fetch_offset == partition.log.log_end_offset
            and read.high_watermark == partition.high_watermark
            and self._follower in partition.state.isr
        )

    def _read_as_follower(
        self, partition: Partition, wanted: Wanted, max_bytes: int, minimum_one: bool, is_first: bool, now: TimestampMs
    ) -> Read:
        """Records up to the log's end; the leader learns how far the follower is, and may commit or propose by it."""
        asked = FollowerFetch(
            follower=self._follower,
            broker_epoch=self._epoch,
            offset=wanted.fetch_offset,
            last_fetched_epoch=wanted.last_fetched_epoch,
            asked_epoch=wanted.current_leader_epoch,
            max_bytes=max_bytes,
            minimum_one=minimum_one,
            log_start=wanted.log_start_offset,
        )
        leading = partition.require_leader(asked.asked_epoch)
        if not is_first:
            return leading.read_as_follower(asked)
        read = leading.answer_fetch(asked, now)
        if read.moved:
            self._fetching.may_propose(partition)
            self._fetching.context.purgatories.wake_fetches(partition.key, now, has_records=False)
            self._moved.append(partition)
        return read

    def _refuse(self, name: TopicName | None, wanted: Wanted, error: KafkaError | LogError | RecordsError) -> _Look:
        """What cannot be read is answered at once; but of what is not there the others go on waiting (FET-21)."""
        self._names_leaders |= error.code in NOT_LEADING
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR or isinstance(error, RecordsError):
            self._fetching.context.log("error", f"{name}-{wanted.partition}: {error}")
        return _Look(REFUSED, error.code, is_urgent=error.code not in UNREADABLE, waits=False)

    def complete_produces(self, now: TimestampMs) -> None:
        """Complete what waited for what this fetch has committed. A coordinator then appends its next record, which must wake
        this fetch where it is parked, and unsettle the partition in its session: so this comes last."""
        for partition in self._moved:
            self._fetching.context.purgatories.produces.wake(partition.key, now)

    # ---- while parked

    def try_complete(self, now: TimestampMs, key: Key) -> bool:
        if len(self._looks) > 1:  # one partition alone is read for the response at once
            for place in self.places[key]:
                self._look_again(place, now)
            if not self.is_ready:
                return False
        self.read(now)
        if not self.is_ready:
            self.release()
            return False
        self._respond(now)
        return True

    def park(self, now: TimestampMs) -> None:
        """Wait for news."""
        self._fetching.context.purgatories.fetches.park(self, self.places, now + self._body.max_wait_ms)
        if self._context.session is not None:
            self._context.session.waiting[self.connection] = self

    def admit(self, wanted: Wanted, key: Key) -> None:
        insort(self._context.wanted, wanted, key=RANK)
        self._looks[wanted] = NOT_READ
        if key not in self.places:
            self._fetching.context.purgatories.fetches.watch(self.connection, key)
        self.places.setdefault(key, []).append(wanted)

    def expire(self, now: TimestampMs) -> None:
        self.read(now)
        self._respond(now)

    def _respond(self, now: TimestampMs) -> None:
        self.abandon()
        self._fetching.context.responder.respond(self._request, self.finish(now))

    def finish(self, now: TimestampMs) -> FetchResponse:
        """The response of the last `read`; the session's next request does not read the partitions of which there is nothing
        left to say."""
        if self._follower < 0 and (throttled := self._throttled()) is not None:
            self.release()
            return throttled
        results = [_partition_data(wanted.partition, self._looks[wanted]) for wanted in self._context.wanted]
        response = self._fetching.sessions.finish(self._context, self._request.version, results, now)
        if response.error_code != ErrorCode.NONE:
            self.release()  # the session has gone on: nothing of them is sent, and nothing counts as sent
            return response
        self._fetching.sessions.settle(self._context, self._settled)
        if self._names_leaders:
            name_leaders_of_fetch(self._fetching.context.image, self._request, response, self._follower >= 0)
        return response

    def _throttled(self) -> FetchResponse | None:
        """The response to a consumer that has used up its quota.

        Bytes of records count; Kafka counts what is around them, too.
        """
        throttle_ms = self._fetching.quotas.throttle_fetch(self._request, self._size)
        return self._fetching.sessions.throttled(self._context, throttle_ms) if throttle_ms else None

    def abandon(self) -> None:
        """Nothing is held while a fetch waits."""
        if self._context.session is not None:
            self._context.session.waiting.pop(self.connection, None)

    def release(self) -> None:
        """Nothing that was read will be sent."""
        for look in self._looks.values():
            look.release()


def _partition_data(partition: int, look: _Look) -> PartitionData:
    """What a response says of one partition."""
    read = look.read
    result = PartitionData(
        partition_index=partition,
        error_code=look.error,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=[] if look.error in FOUND_BEFORE_READING else None,
        preferred_read_replica=look.preferred,
        records=read.records,
    )
    if read.aborted is not None and look.preferred < 0:
        result.aborted_transactions = [
            FetchResponse.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in read.aborted
        ]
    if read.diverging is not None:
        epoch, end = read.diverging
        result.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
    return result
