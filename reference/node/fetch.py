"""Fetch: records from an offset on, at once or when there are enough. (FET-*, FSS-*, EPO-*)"""

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
SESSION_SHARDS = 8
"""Kafka's cache of sessions has so many parts (BrokerServer.NumFetchSessionCacheShards), and each as many slots: with fewer than
8 in all there are no sessions. Here one part has all slots."""
PartitionData = FetchResponse.PartitionData


@dataclass(frozen=True, slots=True)
class Fetching:
    """The parts of the node that fetches need."""

    context: Context
    sessions: FetchSessions
    max_bytes: int
    """The most bytes of one response (fetch.max.bytes)."""
    may_propose: Callable[[Partition], None]
    """Takes a partition for which a follower's fetch may have led to a proposal."""
    quotas: Quotas
    selects_by_rack: bool = False
    """Whether consumers are sent to a replica in their own rack (replica.selector.class)."""


def fetching_of(context: Context, chance: Chance, may_propose: Callable[[Partition], None], quotas: Quotas) -> Fetching:
    """The parts of a node's fetch handler; the purgatories report changed partitions to the sessions."""
    integer = context.configuration.integer
    slots = integer("max.incremental.fetch.session.cache.slots")
    sessions = FetchSessions(slots - slots % SESSION_SHARDS, chance)
    context.purgatories.news = sessions.news
    selects_by_rack = context.configuration.broker("replica.selector.class") == RACK_AWARE
    return Fetching(context, sessions, integer("fetch.max.bytes"), may_propose, quotas, selects_by_rack)


def fetch(fetching: Fetching, request: Request, body: FetchRequest, now: TimestampMs) -> FetchResponse | None:
    """Serve a consumer's fetch (FET-01 to FET-21), or a follower's (REP-*).

    A delayed follower's fetch is not completed by a new high watermark: the follower learns it with the next records, or when
    max_wait_ms passes, as in Kafka 4.3.1 (also if its fetch has the high_watermark field, which only the metadata quorum
    uses). A fetch is answered at once if a partition cannot be read, if no partition is known, if `min_bytes` are available,
    if a consumer fetches from beyond the end that it may see, or if max_wait_ms is 0. Otherwise it is delayed until an append
    completes it or max_wait_ms passes.
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
    """The follower's broker id and epoch; the id is negative for a consumer."""
    state = body.replica_state
    is_said_there = request.version >= FIRST_VERSION_WITH_REPLICA_STATE
    return state.replica_id if is_said_there else body.replica_id, state.replica_epoch


def _of_no_isolation(body: FetchRequest, version: int) -> FetchResponse:
    """The response to an unknown isolation level: Kafka has no specific error for it (FET-19)."""
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
    """The preferred read replica of a consumer."""
    is_urgent: bool = False
    """Whether the response must be sent at once."""
    waits: bool = True
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.read.records)

    def release(self) -> None:
        """Release the file that unsent records pin."""
        if isinstance(self.read.records, LogSlice):
            self.read.records.release()


REFUSED = Read(NO_OFFSET, NO_OFFSET, NO_OFFSET)
"""The read of a partition with an error; it has no offsets, as in Kafka (FET-02)."""
NOT_READ = _Look(Read(NO_OFFSET, NO_OFFSET, NO_OFFSET))
"""The look of a settled partition."""


class Serving:
    """One fetch request. While it is delayed, only a changed partition is read again. For the response all partitions are:
    those that the request names, and those that were not settled (see `fetch_sessions`)."""

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
        """The consumer's rack; empty if no replica is preferred, and in versions below 11."""
        most = fetching.quotas.most_fetched(request) if follower < 0 else None
        self._max_bytes = min(body.max_bytes, fetching.max_bytes, *(() if most is None else (most,)))
        self._moved: list[Partition] = []
        """The partitions that a follower's fetch has changed."""
        self._names_leaders = False
        """Whether a partition was refused because another broker leads it."""
        self._looks: dict[Wanted, _Look] = {}
        self._size: int = 0
        self._urgent: int = 0
        self._waiting = context.settled_count
        """Sums over the looks; `_waiting` includes the settled partitions."""
        self._settled: list[Settled] = []
        """The partitions of the last `read` that need not be read again."""
        self.places: dict[Key, list[Wanted]] = {}
        """The partitions to read, by the key whose changes complete this fetch."""
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

        The first partition with records returns at least one whole batch, whatever the limits (FET-08, KIP-74). Only the first
        read of a follower's fetch reports the follower's log end offset.
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
        """Whether to respond: a partition must not wait, none is known, or `min_bytes` are available."""
        return self._urgent > 0 or self._waiting == 0 or self._size >= min(self._body.min_bytes, self._max_bytes)

    def _count(self, look: _Look, sign: int) -> None:
        self._size += sign * look.size
        self._urgent += sign * look.is_urgent
        self._waiting += sign * look.waits

    def _look_again(self, wanted: Wanted, now: TimestampMs) -> None:
        """Read one partition alone, with at least the bytes that the response would have of it."""
        look = self._look(wanted, min(wanted.max_bytes, self._max_bytes), True, False, now)
        self._count(self._looks[wanted], -1)
        self._looks[wanted] = look
        self._count(look, 1)
        look.release()

    def _is_beyond(self, partition: Partition, wanted: Wanted, read: Read) -> bool:
        """Whether a consumer fetches from beyond the batch in which its visible part of the log ends.

        Such a fetch is answered at once, as by Kafka, in which it means that the leader lost records. Errors: LogError,
        RecordsError.
        """
        end = read.last_stable_offset if self._body.isolation_level == READ_COMMITTED else read.high_watermark
        return wanted.fetch_offset > end and partition.log.batch_start(wanted.fetch_offset) > end

    def _look(self, wanted: Wanted, max_bytes: int, minimum_one: bool, is_first: bool, now: TimestampMs) -> _Look:
        name, preferred, is_beyond = self._name_of(wanted), None, False
        try:
            known_as = wanted.known_as if name is None else name
            if not self._fetching.context.access.may_fetch(self._request, known_as, self._follower >= 0):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if name is None:
                raise KafkaError(self._error_of_unknown(known_as))
            wanted.known_as = name
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

    def _error_of_unknown(self, known_as: TopicName | None) -> ErrorCode:
        """The error for an unknown topic id. A fetch that goes on keeps the name that the id had: to Kafka the topic of that name
        is unknown then, or is another one (FetchSession.CachedPartition)."""
        if known_as is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if known_as in self._fetching.context.image.topics:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _preferred(self, partition: Partition, wanted: Wanted, now: TimestampMs) -> NodeId | None:
        brokers = self._fetching.context.image.brokers
        return preferred_replica(partition, self._rack, wanted.fetch_offset, brokers, now)

    def _is_settled(self, partition: Partition, wanted: Wanted, read: Read) -> bool:
        """Whether the partition need not be read before it changes: the client has all its records.

        A follower that is not in sync is read each time, because it may join the ISR without a change of the partition.
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
        """Read up to the log end offset. The leader records the follower's progress, and may commit or propose by it."""
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
        """The look of an error. It is answered at once, except that the others keep waiting if the partition is unknown
        (FET-21)."""
        self._names_leaders |= error.code in NOT_LEADING
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR or isinstance(error, RecordsError):
            self._fetching.context.log("error", f"{name}-{wanted.partition}: {error}")
        return _Look(REFUSED, error.code, is_urgent=error.code not in UNREADABLE, waits=False)

    def complete_produces(self, now: TimestampMs) -> None:
        """Complete the produce requests whose records this fetch has committed. A coordinator then appends its next record,
        which must find this fetch parked, and unsettle the partition in its session: so this comes last."""
        for partition in self._moved:
            self._fetching.context.purgatories.produces.wake(partition.key, now)

    # ---- while parked

    def try_complete(self, now: TimestampMs, key: Key) -> bool:
        if len(self._looks) > 1:  # a single partition is read for the response at once
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
        """Delay the fetch until a partition changes or max_wait_ms passes."""
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
        """The response of the last `read`. The session's next request does not read partitions that are settled now."""
        if self._follower < 0 and (throttled := self._throttled()) is not None:
            self.release()
            return throttled
        results = [_partition_data(wanted.partition, self._looks[wanted]) for wanted in self._context.wanted]
        response = self._fetching.sessions.finish(self._context, self._request.version, results, now)
        if response.error_code != ErrorCode.NONE:
            self.release()  # the session has a newer epoch: no record is sent, and nothing counts as sent
            return response
        self._fetching.sessions.settle(self._context, self._settled)
        if self._names_leaders:
            name_leaders_of_fetch(self._fetching.context.image, self._request, response, self._follower >= 0)
        return response

    def _throttled(self) -> FetchResponse | None:
        """The response to a consumer that exceeds its quota; None if it does not.

        Only bytes of records count; Kafka also counts the rest of the response.
        """
        throttle_ms = self._fetching.quotas.throttle_fetch(self._request, self._size)
        return self._fetching.sessions.throttled(self._context, throttle_ms) if throttle_ms else None

    def abandon(self) -> None:
        """Remove the fetch from its session; a delayed fetch has no other resources."""
        if self._context.session is not None:
            self._context.session.waiting.pop(self.connection, None)

    def release(self) -> None:
        """Release all records that were read and will not be sent."""
        for look in self._looks.values():
            look.release()


def _partition_data(partition: int, look: _Look) -> PartitionData:
    """One partition of the response."""
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
