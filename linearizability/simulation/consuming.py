"""A consumer that reads from its position on, and checks every response."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from linearizability.client.errors import STALE
from linearizability.client.requests import FetchFrom, TopicPartition, fetch_request, list_offsets_request
from linearizability.history.operations import drain, list_offsets, poll
from linearizability.simulation.batches import batches_in, header_of, records_in
from linearizability.simulation.client import FETCH, LIST_OFFSETS, Key, SimulatedClient
from linearizability.simulation.client_promises import CommittedBefore
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS, REQUEST_TIMEOUT_MS, Line
from linearizability.simulation.producing import VALUE_HEAD
from linearizability.simulation.schedule import Consumer
from linearizability.simulation.world import MICROSECONDS_A_MS, Violation
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchResponse
from reference.protocol.messages.list_offsets import ListOffsetsResponse
from reference.protocol.primitives import Buffer
from reference.protocol.records.control import ControlType, control_type
from reference.protocol.records.errors import RecordsError

LATEST, EARLIEST = -1, -2
ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}
LIST_OFFSETS_VERSION = 7
FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_EPOCHS = 9
FIRST_VERSION_FROM_FOLLOWERS = 11
FIRST_VERSION_WITH_DIVERGENCE = 12


@dataclass(slots=True)
class Place:
    """The consumer's position in one partition, and the partition's ends."""

    position: int = -1
    last_epoch: int = -1
    """The leader epoch of the record before the position; -1 where it read none."""
    start: int = -1
    end: int = -1

    def is_known(self) -> bool:
        return self.position >= 0


@dataclass(slots=True)
class Session:
    """A fetch session at one node; epoch 0 requests a new one."""

    id: int = 0
    epoch: int = 0
    asked: dict[Key, tuple[int, int, int]] = field(default_factory=dict[Key, tuple[int, int, int]])


class _Aborted:
    """The filter of a consumer for the aborted batches of one response (KIP-98)."""

    def __init__(self, answer: FetchResponse.PartitionData) -> None:
        self._to_come = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
        self._producers: set[int] = set()

    def hides(self, batch: bytes) -> bool:
        """Whether the batch belongs to an aborted transaction. The producer's batches after the abort marker do not."""
        header = header_of(batch)
        while self._to_come and self._to_come[0][0] <= header.last_offset:
            self._producers.add(self._to_come.pop(0)[1])
        if header.is_control and any(control_type(record) == ControlType.ABORT for record in records_in(batch)):
            self._producers.discard(header.producer_id)
        return header.is_transactional and header.producer_id in self._producers


def name_of(key: Key) -> str:
    return f"{key[0]}-{key[1]}"


class SimulatedConsumer(SimulatedClient):
    """One consumer of all partitions. With `drains` it reads from start to end once: the final read of a history."""

    def __init__(
        self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, plan: Consumer, drains: bool = False
    ) -> None:
        super().__init__(cluster, number, recorder)
        self.plan = plan
        self.drains = drains
        self.places: dict[Key, Place] = {key: Place() for key in cluster.partitions()}
        self.consumed = 0
        self._operation: int | None = None
        """The history's operation without a response yet."""
        self._asking: Line | None = None
        """The connection with the pending request."""
        self._drain_operations: dict[Key, int] = {}
        self._sessions: dict[int, Session] = {}
        self._sources: dict[Key, int] = {}
        """Partition -> the follower to read from; other partitions are read from their leaders."""
        self._turn = 0

    def start(self) -> None:
        operation = self.recorder.invoke("assign", keys=[name_of(key) for key in self.places])
        self.recorder.ok(operation)
        if self.drains:
            self._drain_operations = {key: self.recorder.invoke("drain") for key in self.places}
        super().start()

    # ---- the connection

    def on_ready(self) -> None:
        self._sessions.pop(self.home.node, None)
        if self.home.in_flight == 0:
            self.ask_metadata()

    def on_leader_ready(self, line: Line) -> None:
        self._sessions.pop(line.node, None)
        self._go_on()

    def on_lost(self, line: Line) -> None:
        self._sessions.pop(line.node, None)
        if self._asking is line:
            self._asking = None
            if self._operation is not None:
                self._lose(self._operation)
                self._operation = None

    def _lose(self, operation: int) -> None:
        """Record that the operation failed: its response is lost, and the consumer got nothing."""
        self.recorder.fail(operation, "connection lost")

    def on_metadata(self) -> None:
        self._sources = {}
        if self.plan.from_followers and self.plan.version >= FIRST_VERSION_FROM_FOLLOWERS:
            for key, replicas in self.replicas.items():
                followers = [node for node in replicas if node != self.leaders.get(key)]
                if followers:
                    self._sources[key] = followers[self.chance.randrange(len(followers))]
        self._go_on()

    def _go_on(self) -> None:
        """Send the next request, one at a time: find a position, or fetch, from the leaders in turn."""
        if not self.is_ready or self.in_flight or self.finished:
            return
        if self.cluster.is_over and not self.drains:
            self.finish()
            return
        if self.drains and all(place.is_known() and place.position >= place.end for place in self.places.values()):
            self._drained()
            return
        self._read_on()

    def _read_on(self) -> None:
        found = self._next_leader()
        if found is None:
            self._later()
            return
        line, keys = found
        unknown = [key for key in keys if not self.places[key].is_known()]
        if unknown:
            self._ask_offsets(line, unknown, EARLIEST)
        else:
            self._fetch(line, keys)

    def _next_leader(self) -> tuple[Line, list[Key]] | None:
        """The next connected leader in turn, and the partitions to read from it."""
        led: dict[int, list[Key]] = {}
        for key, place in self.places.items():
            leader = (
                self._sources.get(key, self.leaders.get(key, -1)) if place.is_known() else self.leaders.get(key, -1)
            )
            if leader >= 0 and not (self.drains and place.is_known() and place.position >= place.end):
                led.setdefault(leader, []).append(key)
        self._turn += 1
        for step in range(len(led)):
            node = [*led][(self._turn + step) % len(led)]
            line = self.line_to(node)
            if line is not None:
                return line, led[node]
        return None

    def _later(self) -> None:
        self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self._retry)

    def _retry(self) -> None:
        if self.is_ready and not self.in_flight and not self.finished:
            self.ask_metadata()

    # ---- offsets

    def _ask_offsets(self, line: Line, keys: list[Key], timestamp: int, operation: int | None = None) -> None:
        """Request the starts, then the ends, in one operation: both are known before the first fetch."""
        isolation = ISOLATION_LEVELS[self.plan.isolation]
        asked = dict.fromkeys(keys, timestamp)
        body = list_offsets_request(asked, isolation=isolation, leader_epochs=self.leader_epochs, apart=False)
        operation = self.recorder.invoke("list_offsets") if operation is None else operation
        self._asking = line
        promises = self.cluster.promises
        before = {key: promises.committed_before(key) for key in keys if timestamp == LATEST and not isolation}
        context = line, keys, timestamp, operation, before
        self.ask(LIST_OFFSETS, LIST_OFFSETS_VERSION, body, self._on_offsets, context, line=line)

    def _on_offsets(
        self, body: ListOffsetsResponse, context: tuple[Line, list[Key], int, int, dict[Key, CommittedBefore]]
    ) -> None:
        line, keys, timestamp, operation, before = context
        self._asking = None
        stale = False
        for topic in body.topics:
            for each in topic.partitions:
                self.count("ListOffsets", each.error_code)
                key = topic.name, each.partition_index
                place = self.places[key]
                if each.error_code != ErrorCode.NONE:
                    stale = True
                elif timestamp == EARLIEST:
                    place.start = each.offset
                else:
                    place.end = each.offset
                    if key in before:
                        self.cluster.promises.on_end(key, each.offset, each.leader_epoch, before[key], self.name)
        if stale:
            self.recorder.fail(operation, "stale metadata")
            self._later()
        elif timestamp == EARLIEST:
            self._ask_offsets(line, keys, LATEST, operation)
        else:
            mops = [list_offsets(name_of(key), self.places[key].start, self.places[key].end) for key in keys]
            self.recorder.ok(operation, mops)
            self._place(keys)

    def _place(self, keys: list[Key]) -> None:
        """Set the position of these partitions, at the start or the end."""
        from_start = self.plan.start == "earliest" or self.drains
        operation = self.recorder.invoke(
            "seek", keys=[name_of(key) for key in keys], to="start" if from_start else "end"
        )
        for key in keys:
            place = self.places[key]
            place.position = place.start if from_start else place.end
            place.last_epoch = -1
        self.recorder.ok(operation)
        self._go_on()

    # ---- fetching

    def _fetch(self, line: Line, keys: list[Key]) -> None:
        plan = self.plan
        session = None
        if plan.sessions and plan.version >= FIRST_VERSION_WITH_SESSIONS:
            session = self._sessions.setdefault(line.node, Session())
        wanted = {
            key: (self.places[key].position, self.leader_epochs.get(key, -1), self.places[key].last_epoch)
            for key in keys
        }
        named = wanted
        if session is not None:
            if session.asked.keys() != wanted.keys():
                session.epoch = 0
            if session.epoch > 0:
                named = {key: value for key, value in wanted.items() if session.asked.get(key) != value}
            session.asked = wanted
        is_old = plan.version < FIRST_VERSION_WITH_DIVERGENCE
        begins: dict[TopicPartition, FetchFrom | int] = {
            key: FetchFrom(
                position,
                epoch if plan.version >= FIRST_VERSION_WITH_EPOCHS else -1,
                -1 if is_old or key in self._sources else last_epoch,
            )
            for key, (position, epoch, last_epoch) in named.items()
        }
        body = fetch_request(
            begins,
            max_wait_ms=0 if self.drains else plan.max_wait_ms,
            min_bytes=plan.min_bytes,
            max_bytes=1 << 20,
            partition_max_bytes=plan.max_bytes,
            isolation=ISOLATION_LEVELS[plan.isolation],
            session_id=session.id if session is not None else 0,
            session_epoch=session.epoch if session is not None else -1,
        )
        self._operation = self.recorder.invoke("poll", [poll()], **self._poll_fields())
        self._asking = line
        context = line.node, session
        self.ask(FETCH, plan.version, body, self._on_fetched, context, plan.max_wait_ms + REQUEST_TIMEOUT_MS, line)

    def _poll_fields(self) -> dict[str, Any]:
        """Further fields of a poll in the history."""
        return {}

    def _on_fetched(self, body: FetchResponse, context: tuple[int, Session | None]) -> None:
        node, session = context
        operation, self._operation, self._asking = self._operation, None, None
        assert operation is not None
        self.count("Fetch", body.error_code)
        if body.error_code != ErrorCode.NONE:
            self.recorder.fail(operation, "fetch session")
            self._sessions.pop(node, None)
            self._later()
            return
        if session is not None:
            session.id = body.session_id
            session.epoch = session.epoch + 1 if body.session_id else 0
        found: dict[str | int, list[list[int]]] = {}
        ends: dict[str | int, int] = {}
        stale = False
        seeks: list[Key] = []
        for topic in body.responses:
            for each in topic.partitions:
                key = (topic.topic, each.partition_index)
                self.count("Fetch partition", each.error_code)
                if each.error_code != ErrorCode.NONE and self._sources.pop(key, None) is not None:
                    stale = True  # A follower may lag; the leader knows.
                elif each.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.cluster.promises.on_out_of_range(key, self.name)
                    self.places[key].position = -1
                elif each.error_code in STALE:
                    stale = True
                elif each.error_code != ErrorCode.NONE:
                    raise Violation("groundless-refusal", f"{self.name}: fetch of {name_of(key)}: {each.error_code}")
                elif each.diverging_epoch.epoch >= 0 or each.diverging_epoch.end_offset >= 0:
                    self._diverged(key, each.diverging_epoch.end_offset)
                    seeks.append(key)
                else:
                    ends[name_of(key)] = each.high_watermark
                    records = [*self._records(key, each)]
                    if records:
                        found[name_of(key)] = records
        self.consumed += sum(map(len, found.values()))
        self.recorder.ok(operation, [poll(found, ends)])
        if seeks:
            seek = self.recorder.invoke("seek", keys=[name_of(key) for key in seeks], to="truncation")
            self.recorder.ok(seek)
        if stale:
            self._sessions.pop(node, None)
            self._later()
        elif self.plan.max_wait_ms == 0 and not found and not self.drains:
            self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self._go_on)
        else:
            self._go_on()

    def _diverged(self, key: Key, end_offset: int) -> None:
        """Go back to the offset of divergence, as the log was truncated below our position (KIP-320, KIP-595)."""
        self.world.counts["divergences reported"] += 1
        self.cluster.promises.on_truncation_reported(key, self.name)
        place = self.places[key]
        place.position = min(place.position, end_offset)
        place.last_epoch = -1

    def _records(self, key: Key, answer: FetchResponse.PartitionData) -> Iterator[list[int]]:
        """The records of one partition from our position on. Errors: Violation for a response that no broker may send."""
        place = self.places[key]
        aborted = _Aborted(answer) if self.plan.isolation == "read_committed" else None
        try:
            for batch in batches_in(cast(Buffer, answer.records or b"")):
                header = header_of(batch)
                if aborted is not None and header.next_offset > answer.last_stable_offset:
                    text = f"{name_of(key)}: offset {header.last_offset}, stable up to {answer.last_stable_offset}"
                    raise Violation("fetch-above-last-stable-offset", text)
                if header.next_offset > answer.high_watermark:
                    text = (
                        f"{name_of(key)}: offset {header.last_offset} with a high watermark of {answer.high_watermark}"
                    )
                    raise Violation("fetch-above-high-watermark", text)
                if header.next_offset <= place.position:
                    text = f"{name_of(key)}: a batch up to {header.last_offset} where {place.position} was asked for"
                    raise Violation("fetch-below-offset", text)
                is_hidden = aborted is not None and aborted.hides(batch)
                if is_hidden or header.is_control:
                    place.position, place.last_epoch = header.next_offset, header.leader_epoch
                    continue
                for record in records_in(batch):
                    if record.offset < place.position:
                        continue
                    if record.offset != place.position:
                        text = f"{name_of(key)}: offset {record.offset} follows {place.position - 1}"
                        raise Violation("offsets-not-dense", text)
                    place.position += 1
                    place.last_epoch = header.leader_epoch
                    assert record.value is not None
                    yield [record.offset, int.from_bytes(record.value[:VALUE_HEAD], "big"), header.leader_epoch]
            self.cluster.promises.on_consumed(key, place.position, self.name)
        except RecordsError as error:
            raise Violation("unreadable-records", f"{name_of(key)} at {place.position}: {error}") from error

    # ---- the final read

    def _drained(self) -> None:
        for key, place in self.places.items():
            mop = drain(name_of(key), place.start, place.end, place.position)
            self.recorder.ok(self._drain_operations[key], [mop])
        self.finish()
