# pyright: reportPrivateUsage=false
"""A client that asks for offsets by time and by place, and now and then deletes records.

What it was answered is compared at the end with the records that are committed then: an offset below the high watermark holds the
same record for ever, and no record before it may be as young. That nothing was found is compared with what the same leader had
committed before it was asked.
"""

from __future__ import annotations

from typing import NamedTuple

from linearizability.client.errors import STALE
from linearizability.client.requests import delete_records_request, list_offsets_request
from linearizability.simulation.batches import batches_in, records_in
from linearizability.simulation.client import LIST_OFFSETS, Key, SimulatedClient
from linearizability.simulation.client_promises import CommittedBefore
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS
from linearizability.simulation.machine import EPOCH_MS
from linearizability.simulation.schedule import Seeker
from linearizability.simulation.world import MICROSECONDS_A_MS, Violation
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.delete_records import DeleteRecordsResponse
from reference.protocol.messages.list_offsets import ListOffsetsResponse
from reference.replication.partition import Partition

DELETE_RECORDS, DELETE_RECORDS_VERSION = 21, 2
LIST_OFFSETS_VERSION = 7
MAX_TIMESTAMP, LATEST = -3, -1
DELETE_TIMEOUT_MS = 1_000
MAY_FAIL = STALE | {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.OFFSET_OUT_OF_RANGE}
"""Of DeleteRecords: a follower may be down, and a new leader may have committed less."""


class Found(NamedTuple):
    """The response to one look-up."""

    key: Key
    asked: int
    """A timestamp, or MAX_TIMESTAMP."""
    offset: int
    timestamp: int
    committed: int
    """What the leader had committed before, as far as the client knew."""
    log_start: int = 0
    """Where the log of the node that answered began when the answer came."""


class Question(NamedTuple):
    """A question to a leader."""

    key: Key
    asked: int
    """A timestamp, MAX_TIMESTAMP or LATEST."""
    node: int
    committed: int
    """What this leader had committed before, as far as the client knew."""
    before: CommittedBefore
    """What was committed in truth."""


class SimulatedSeeker(SimulatedClient):
    """Asks the partitions' leaders one question after the other."""

    def __init__(self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, plan: Seeker) -> None:
        super().__init__(cluster, number, recorder)
        self._plan = plan
        self._deletable = {topic.name for topic in cluster.schedule.topics if topic.deletes}
        self._ends: dict[tuple[Key, int], int] = {}
        """Of each partition and leader the highest offset that it was seen to have committed."""
        self._asked_epochs: dict[Key, int] = {}
        """Of each partition the newest leader epoch in which a leader was asked: a new one is asked for its end first, for it may
        not know yet what its predecessor has committed."""
        self._asks = False
        self.found: list[Found] = []
        self.deleted: dict[Key, int] = {}
        """Up to where it has asked to delete records. A restart may bring them back: the log's start is written down later."""

    def on_ready(self) -> None:
        if self.home.in_flight == 0:
            self.ask_metadata()

    def on_metadata(self) -> None:
        self._next()

    def _later(self, pause_ms: int) -> None:
        if not self._asks:
            self._asks = True
            self.world.after(pause_ms * MICROSECONDS_A_MS, self._wake)

    def _wake(self) -> None:
        self._asks = False
        self._next()

    def _next(self) -> None:
        if self.finished or not self.is_ready or self.in_flight or self._asks:
            return
        if self.cluster.is_over:
            self.finish()
            return
        keys = self.cluster.partitions()
        new = next((key for key in keys if self.leader_epochs.get(key, 0) > self._asked_epochs.get(key, 0)), None)
        key = new or keys[self.chance.randrange(len(keys))]
        line = self.line_to(self.leaders.get(key, -1))
        if line is None:
            self._later(BACKOFF_MS)
            self.refresh_soon()
            return
        self._asked_epochs[key] = self.leader_epochs.get(key, 0)
        end = self._ends.get((key, line.node), 0)
        if key[0] in self._deletable and end and self.chance.randrange(100) < self._plan.deletes_percent:
            self._delete(key, self.chance.randrange(end + 1))
            return
        newest = EPOCH_MS + self.world.now_ms
        asked = (LATEST, MAX_TIMESTAMP, newest - self.chance.randrange(self.world.now_ms + 1))[
            min(2, self.chance.randrange(6))
        ]
        if new is not None:
            asked = LATEST
        body = list_offsets_request({key: asked})
        question = Question(key, asked, line.node, end, self.cluster.promises.committed_before(key))
        self.ask(LIST_OFFSETS, LIST_OFFSETS_VERSION, body, self._answered, question, line=line)

    def _answered(self, body: ListOffsetsResponse, question: Question) -> None:
        key, asked, node, committed, before = question
        answer = body.topics[0].partitions[0]
        self.count("ListOffsets by time" if asked != LATEST else "ListOffsets", answer.error_code)
        if answer.error_code in STALE:
            self.refresh_soon()
        elif answer.error_code != ErrorCode.NONE:
            raise self.groundless("ListOffsets", answer.error_code)
        else:
            if asked == LATEST:
                self.cluster.promises.on_end(key, answer.offset, answer.leader_epoch, before, self.name)
            else:
                self.found.append(
                    Found(key, asked, answer.offset, answer.timestamp, committed, self._log_start(key, node))
                )
            end = answer.offset if asked == LATEST else answer.offset + 1
            self._ends[key, node] = max(end, self._ends.get((key, node), 0))
        self._later(self._plan.pause_ms)

    def _log_start(self, key: Key, number: int) -> int:
        node = self.cluster.machine(number).node
        partition = node.partitions.get(key) if node is not None else None
        return partition.log.log_start_offset if partition is not None else 0

    def _delete(self, key: Key, offset: int) -> None:
        body = delete_records_request({key: offset}, DELETE_TIMEOUT_MS)
        line = self.line_to(self.leaders[key])
        self.deleted[key] = max(offset, self.deleted.get(key, 0))
        self.ask(DELETE_RECORDS, DELETE_RECORDS_VERSION, body, self._deleted, (key, offset), line=line)

    def _deleted(self, body: DeleteRecordsResponse, question: tuple[Key, int]) -> None:
        key, offset = question
        answer = body.topics[0].partitions[0]
        self.count("DeleteRecords", answer.error_code)
        if answer.error_code == ErrorCode.NONE:
            if answer.low_watermark < offset:
                text = f"{self.name} deleted {key[0]}-{key[1]} up to {offset}, and its low watermark is {answer.low_watermark}"
                self.world.broken("records-not-deleted", text)
        elif answer.error_code not in MAY_FAIL:
            raise self.groundless("DeleteRecords", answer.error_code)
        else:
            self.refresh_soon()
        self._later(self._plan.pause_ms)

    # ---- at the end

    def compare(self, key: Key, partition: Partition, start: int) -> None:
        """Hold what was answered against what is committed at the end, from an offset on. Errors: Violation."""
        start = max(start, partition.log.log_start_offset)
        timestamps = _timestamps(partition, start)
        for found in self.found:
            if found.key == key:
                _require_right(found, start, timestamps, self.name)


def _timestamps(partition: Partition, start: int) -> dict[int, int]:
    """Return the committed records' timestamps by offset, in order."""
    return {
        record.offset: record.timestamp
        for segment in partition.log._segments
        for batch in batches_in(segment.file.read(0, segment.file.size))
        for record in records_in(batch)
        if start <= record.offset < partition.high_watermark
    }


def _require_right(found: Found, start: int, timestamps: dict[int, int], who: str) -> None:
    text = f"{who} asked {found.key[0]}-{found.key[1]} for {found.asked} and was answered {found.offset} ({found.timestamp})"
    asked = found.timestamp if found.asked == MAX_TIMESTAMP else found.asked
    if found.offset >= start and timestamps.get(found.offset) != found.timestamp:
        raise Violation("timestamp-wrong", f"{text}: that record has {timestamps.get(found.offset)}")
    if found.offset >= 0 and found.timestamp < asked:
        raise Violation("timestamp-wrong", f"{text}, which is older")
    if found.offset < 0 and found.asked == MAX_TIMESTAMP:
        return  # the youngest record was not committed
    # A follower learns of the log start with what it fetches, so the log of a later leader may begin earlier.
    timestamps = {offset: each for offset, each in timestamps.items() if offset >= found.log_start}
    bound = found.offset if found.offset >= 0 else found.committed
    earlier = next((offset for offset, each in timestamps.items() if each >= asked and offset < bound), None)
    if earlier is not None:
        raise Violation("timestamp-not-first", f"{text}: {earlier} has {timestamps[earlier]}")
    if found.asked == MAX_TIMESTAMP:
        younger = next((o for o, each in timestamps.items() if each > asked and o < found.committed), None)
        if younger is not None:
            raise Violation("timestamp-wrong", f"{text}: {younger} has {timestamps[younger]}")
