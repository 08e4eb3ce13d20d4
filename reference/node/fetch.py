"""Fetch: records from an offset on, now or when there are enough. (FET-*, FSS-*, EPO-*)"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reference.node.context import Context
from reference.node.effects import ConnectionId
from reference.node.fetch_sessions import FetchContext, FetchSessions, Wanted
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.primitives import TimestampMs, TopicName
from reference.protocol.records.errors import RecordsError
from reference.replication.partition import Partition, Read
from reference.storage.errors import LogError
from reference.storage.log import LogSlice

ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED) = (0, 1)
FIRST_VERSION_FROM_ANY_REPLICA = 11
FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_TOPIC_IDS = 13
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
PartitionData = FetchResponse.PartitionData


@dataclass(frozen=True, slots=True)
class Fetching:
    """What fetches are served with."""

    context: Context
    sessions: FetchSessions
    max_bytes: int
    """Of one response (fetch.max.bytes)."""
    may_propose: Callable[[Partition], None]
    """Takes a partition whose ISR a follower's fetch may have enlarged."""


def fetch(fetching: Fetching, request: Request, body: FetchRequest, now: TimestampMs) -> FetchResponse | None:
    """Serve a consumer's fetch (FET-01 to FET-21), or a follower's (REP-*).

    It is answered at once when a partition cannot be read, when none is known, when `min_bytes` are there, when it asks
    for what lies behind all that it may see, or when it does not want to wait; else it is parked until an append wakes
    it or its time is over.
    """
    if body.isolation_level not in ISOLATION_LEVELS:
        return _of_no_isolation(body, request.version)
    context = fetching.sessions.context(body, request.version, now)
    if context.error is not ErrorCode.NONE:
        return FetchResponse(error_code=context.error)
    serving = Serving(fetching, request, body, context)
    results, size, urgent = serving.read(now, is_first=True)
    if urgent or size >= body.min_bytes or body.max_wait_ms <= 0:
        return fetching.sessions.finish(context, request.version, results, now)
    release(results)
    fetching.context.purgatories.fetches.park(serving, serving.keys(), now + body.max_wait_ms)
    return None


def _of_no_isolation(body: FetchRequest, version: int) -> FetchResponse:
    """What Kafka answers to an isolation level that is none: it has no error of its own for that (FET-19)."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    response = FetchResponse(error_code=code)
    for topic in body.topics if version < FIRST_VERSION_WITH_TOPIC_IDS else ():
        refused = [PartitionData(partition_index=each.partition, error_code=code) for each in topic.partitions]
        response.responses.append(FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=refused))
    return response


class Serving:
    """One fetch request, read as often as needed until it is answered."""

    __slots__ = ("_body", "_context", "_epoch", "_fetching", "_follower", "_request")

    def __init__(self, fetching: Fetching, request: Request, body: FetchRequest, context: FetchContext) -> None:
        self._fetching = fetching
        self._request = request
        self._body = body
        self._context = context
        state = body.replica_state
        self._follower = state.replica_id if request.version >= FIRST_VERSION_WITH_REPLICA_STATE else body.replica_id
        self._epoch = state.replica_epoch
        """Which broker follows, and in which life; below 0 for a consumer."""

    @property
    def connection(self) -> ConnectionId:
        return self._request.client.connection

    def keys(self) -> Iterable[tuple[TopicName, int]]:
        """The partitions whose appends wake this fetch."""
        return [(name, each.partition) for each in self._context.wanted if (name := self._name_of(each)) is not None]

    def _name_of(self, wanted: Wanted) -> TopicName | None:
        by_id = self._request.version >= FIRST_VERSION_WITH_TOPIC_IDS
        return self._fetching.context.image.topic_name(wanted.topic_id) if by_id else wanted.topic

    def read(self, now: TimestampMs, is_first: bool = False) -> tuple[list[PartitionData], int, bool]:
        """Read all partitions in order: the results, the bytes of their records, and whether to answer at once.

        The first partition that has records gives at least one whole batch, whatever the limits (FET-08, KIP-74). Only
        the first read of a follower's fetch is news of where it stands.
        """
        body = self._body
        left = min(body.max_bytes, self._fetching.max_bytes)
        committed = body.isolation_level == READ_COMMITTED
        size, urgent, waiting = 0, False, False
        results: list[PartitionData] = []
        for wanted in self._context.wanted:
            result = self._read_one(wanted, min(wanted.max_bytes, left), size == 0, committed, is_first, now)
            results.append(result)
            if result.error_code in UNKNOWN:
                pass  # the others go on waiting (FET-21)
            elif (
                result.error_code != ErrorCode.NONE
                or result.diverging_epoch.epoch >= 0
                or self._is_behind(wanted, result)
                or self._is_beyond(wanted, result)
            ):
                urgent = True
            else:
                waiting = True
            records = result.records
            if records is not None:
                size += len(records)
                left = max(0, left - len(records))
        return results, size, urgent or not waiting

    def _is_behind(self, wanted: Wanted, result: PartitionData) -> bool:
        """Whether a follower is to hear at once how far its leader has committed (KIP-1166)."""
        return self._follower >= 0 and wanted.high_watermark < result.high_watermark

    def _is_beyond(self, wanted: Wanted, result: PartitionData) -> bool:
        """Whether a consumer asks for what lies behind the batch at which the part that it may see ends.

        It is answered at once, as by Kafka, which takes it for one whose leader has lost records.
        """
        end = result.last_stable_offset if self._body.isolation_level == READ_COMMITTED else result.high_watermark
        if self._follower >= 0 or wanted.fetch_offset <= end:
            return False
        name = self._name_of(wanted)
        assert name is not None, "it has just been read"
        return (
            self._fetching.context.replicas.partition(name, wanted.partition).log.batch_start(wanted.fetch_offset) > end
        )

    def _read_one(
        self, wanted: Wanted, max_bytes: int, minimum_one: bool, committed: bool, is_first: bool, now: TimestampMs
    ) -> PartitionData:
        result = PartitionData(partition_index=wanted.partition, records=b"")
        name = self._name_of(wanted)
        try:
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            partition = self._fetching.context.replicas.partition(name, wanted.partition)
            if self._follower >= 0:
                read = self._read_as_follower(partition, wanted, max_bytes, minimum_one, is_first, now)
            else:
                read = partition.read(
                    wanted.fetch_offset,
                    max_bytes=max_bytes,
                    minimum_one=minimum_one,
                    committed=committed,
                    asked_epoch=wanted.current_leader_epoch,
                    last_epoch=wanted.last_fetched_epoch,
                    from_any_replica=self._request.version >= FIRST_VERSION_FROM_ANY_REPLICA,
                )
        except (KafkaError, LogError, RecordsError) as error:
            return self._refuse(name, result, error)
        result.high_watermark = read.high_watermark
        result.last_stable_offset = read.last_stable_offset
        result.log_start_offset = read.log_start_offset
        result.records = read.records
        result.aborted_transactions = None
        if read.aborted is not None:
            result.aborted_transactions = [
                FetchResponse.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in read.aborted
            ]
        if read.diverging is not None:
            epoch, end = read.diverging
            result.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
        return result

    def _read_as_follower(
        self, partition: Partition, wanted: Wanted, max_bytes: int, minimum_one: bool, is_first: bool, now: TimestampMs
    ) -> Read:
        """Records up to the log's end; the leader learns how far the follower is, and may commit or propose by it."""
        if not is_first:
            return partition.read_as_follower(
                self._follower, wanted.fetch_offset, wanted.last_fetched_epoch, wanted.current_leader_epoch, max_bytes,
                minimum_one,
            )  # fmt: skip
        before = partition.high_watermark, partition.pending, partition.low_watermark()
        read = partition.answer_fetch(
            self._follower, self._epoch, wanted.fetch_offset, wanted.last_fetched_epoch, wanted.current_leader_epoch, now,
            max_bytes, minimum_one, wanted.log_start_offset,
        )  # fmt: skip
        if (partition.high_watermark, partition.pending, partition.low_watermark()) != before:
            self._fetching.may_propose(partition)
            self._fetching.context.purgatories.wake(partition, now)
        return read

    def _refuse(
        self, name: TopicName | None, result: PartitionData, error: KafkaError | LogError | RecordsError
    ) -> PartitionData:
        """An error's result: where the log is, is not told, as Kafka does not (FET-02)."""
        result.error_code = error.code
        result.high_watermark = result.last_stable_offset = result.log_start_offset = -1
        result.aborted_transactions = None
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR or isinstance(error, RecordsError):
            self._fetching.context.log("error", f"{name}-{result.partition_index}: {error}")
        return result

    # ---- while parked

    def try_complete(self, now: TimestampMs) -> bool:
        results, size, urgent = self.read(now)
        if urgent or size >= self._body.min_bytes:
            self._respond(results, now)
            return True
        release(results)
        return False

    def expire(self, now: TimestampMs) -> None:
        results, _, _ = self.read(now)
        self._respond(results, now)

    def _respond(self, results: list[PartitionData], now: TimestampMs) -> None:
        response = self._fetching.sessions.finish(self._context, self._request.version, results, now)
        self._fetching.context.responder.respond(self._request, response)

    def abandon(self) -> None:
        """Nothing is held while a fetch waits."""


def release(results: Iterable[PartitionData]) -> None:
    """Let go of the files that results pin and that will not be sent."""
    for result in results:
        if isinstance(result.records, LogSlice):
            result.records.release()
