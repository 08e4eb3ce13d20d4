# pyright: reportPrivateUsage=false
"""A client that alone updates a compacted topic and reads it as a table: of each key the last value must be found.

One request is under way at a time, and a batch whose outcome is unknown is not sent again: a new producer id follows it. It may
be stored at any later time, so its updates may be found from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from linearizability.client.errors import STALE
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import FetchFrom, fetch_request, list_offsets_request, produce_request, produced
from linearizability.simulation.batches import batches_in, header_of, records_in
from linearizability.simulation.client import FETCH, INIT_PRODUCER_ID, LIST_OFFSETS, PRODUCE, Key, SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS, Line
from linearizability.simulation.schedule import Topic, Updater
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchResponse
from reference.protocol.messages.init_producer_id import InitProducerIdResponse
from reference.protocol.messages.list_offsets import ListOffsetsResponse
from reference.protocol.primitives import NO_PRODUCER_ID, Buffer, Offset, ProducerEpoch, TimestampMs
from reference.protocol.records.batch import BatchProducer, build
from reference.protocol.records.record import Record
from reference.replication.partition import Partition

INIT_VERSION, PRODUCE_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION = 4, 9, 12, 7
PRODUCE_TIMEOUT_MS = 1_000
EARLIEST = -2
FETCH_BYTES = 1_500
SETTLES_MS = 1_800
"""Between healing and the last reading, so that cleaners and retention have run over the last updates."""
NUMBER = b"n"
"""The header that says which update a record is: a tombstone has no value to say it."""
NUMBER_BYTES = 4
MOST_VALUE_BYTES = 90
DAY_MS = 86_400_000
RETENTION_LATE_MS = 1_000
"""Twice log.retention.check.interval.ms."""


class Update(NamedTuple):
    """A record that was sent."""

    number: int
    key: bytes
    is_tombstone: bool
    offset: int = -1
    """Its offset; -1 if unknown."""


class Table:
    """The values that may be found for each key."""

    def __init__(self, tombstones_expire: bool) -> None:
        """Where tombstones expire within a run, who reads or fetches for long may miss one, and have the value before it."""
        self._tombstones_expire = tombstones_expire
        self._latest: dict[bytes, Update] = {}
        """The last acknowledged one."""
        self._open: dict[bytes, list[Update]] = {}
        """Updates of unknown outcome by key."""

    def acknowledge(self, updates: Iterable[Update], base_offset: int) -> None:
        """Record that a batch is stored at `base_offset`."""
        for delta, update in enumerate(updates):
            self._latest[update.key] = update._replace(offset=base_offset + delta)

    def doubt(self, updates: Iterable[Update]) -> None:
        """Record that a batch may be stored now, later or never."""
        for update in updates:
            self._open.setdefault(update.key, []).append(update)

    def difference(self, found: Mapping[bytes, int], start: int) -> str:
        """What is wrong in a table, the number of each key's last record, that was read from this offset on; or nothing."""
        keys = sorted({*self._latest, *found})
        return next((text for key in keys if (text := self._lacks(key, found.get(key), start))), "")

    def _lacks(self, key: bytes, found: int | None, start: int) -> str:
        latest, doubtful = self._latest.get(key), self._open.get(key, [])
        possible = [*([latest] if latest is not None else []), *doubtful]
        if found in [each.number for each in possible]:
            return ""
        if self._tombstones_expire and any(each.is_tombstone for each in possible):
            return ""
        if found is None:
            is_there = latest is not None and latest.offset >= start
            return f"{key.decode()} is not found, and {_text(possible)}" if is_there else ""
        return f"{key.decode()} has update {found}, and {_text(possible)}"


def _text(possible: Sequence[Update]) -> str:
    return ", or ".join(
        f"update {each.number} {'deleted it' if each.is_tombstone else 'was written'} at {each.offset}"
        if each.offset >= 0
        else f"update {each.number} may have come"
        for each in possible
    )


class Reading(NamedTuple):
    """Progress of a reading of the topic."""

    start: int
    position: int
    found: dict[bytes, int]
    is_last: bool


def _read_into(found: dict[bytes, int], batch: bytes, position: int) -> None:
    for record in records_in(batch) if not header_of(batch).is_control else ():
        if record.offset >= position:
            found[bytes(record.key or b"")] = int.from_bytes(record.headers[0][1] or b"", "big")


class SimulatedUpdater(SimulatedClient):
    """Updates keys, and now and then reads all of them."""

    def __init__(
        self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, plan: Updater, topic: Topic
    ) -> None:
        super().__init__(cluster, number, recorder)
        self._plan = plan
        self.key: Key = plan.topic, 0
        self._topic = topic
        self._table = Table(int(topic.configs.get("delete.retention.ms", DAY_MS)) < DAY_MS)
        self._producer_id = NO_PRODUCER_ID
        self._sequence = 0
        self._numbers = 0
        self._sent: tuple[list[Update], Line] | None = None
        """The batch that is under way, and where."""
        self._end = 0
        """What is acknowledged ends there."""
        self._reading: Reading | None = None
        self._waits = False
        self._is_settled = False

    def topic_names(self) -> list[str]:
        """See `SimulatedClient`."""
        return [self._plan.topic]

    # ---- the connection

    def on_ready(self) -> None:
        if self.home.in_flight == 0:
            self.ask_metadata()

    def on_metadata(self) -> None:
        self._go_on()

    def on_leader_ready(self, line: Line) -> None:
        self._go_on()

    def on_lost(self, line: Line) -> None:
        if self._sent is not None and self._sent[1] is line:
            self._doubt()
        self._later(BACKOFF_MS)

    def _later(self, pause_ms: int) -> None:
        if not self._waits:
            self._waits = True
            self.world.after(pause_ms * MICROSECONDS_A_MS, self._wake)

    def _wake(self) -> None:
        self._waits = False
        self._go_on()

    def _go_on(self) -> None:
        """Take the next step: read on, begin to read, or write."""
        if self.finished or not self.is_ready or self.in_flight or self._waits:
            return
        line = self.line_to(self.leaders.get(self.key, -1))
        if line is None:
            self.refresh_soon()
            self._later(BACKOFF_MS)
        elif self._reading is not None:
            self._fetch(line, self._reading)
        elif self.cluster.is_over and not self._is_settled:
            self._is_settled = True
            heals_in_ms = max(0, self.cluster.heals_at_us - self.world.now_us) // MICROSECONDS_A_MS
            self._later(heals_in_ms + SETTLES_MS)
        elif self.cluster.is_over or self.chance.randrange(100) < self._plan.reads_percent:
            self._ask_start(line)
        elif self._producer_id < 0:
            self.ask(INIT_PRODUCER_ID, INIT_VERSION, ProducerSession().begin(), self._on_producer_id)
        else:
            self._write(line)

    def _stale(self) -> None:
        self.refresh_soon()
        self._later(BACKOFF_MS)

    # ---- writing

    def _on_producer_id(self, body: InitProducerIdResponse, _: Any) -> None:
        self.count("InitProducerId", body.error_code)
        if body.error_code != ErrorCode.NONE:
            self.hang_up("no producer id")
            return
        self.cluster.promises.claim_producer_id(body.producer_id, body.producer_epoch, self.name)
        self._producer_id, self._sequence = body.producer_id, 0
        self._go_on()

    def _write(self, line: Line) -> None:
        updates = [self._next_update() for _ in range(self.chance.randrange(1, self._plan.records + 1))]
        now = self.cluster.client_clock_ms()
        records = [_record(delta, update, now) for delta, update in enumerate(updates)]
        batch = build(records, producer=BatchProducer(self._producer_id, ProducerEpoch(0), self._sequence))
        self._sequence += len(updates)
        self._sent = updates, line
        body = produce_request({self.key: batch}, timeout_ms=PRODUCE_TIMEOUT_MS)
        self.ask(PRODUCE, PRODUCE_VERSION, body, self._on_produced, updates, PRODUCE_TIMEOUT_MS * 2, line)

    def _next_update(self) -> Update:
        self._numbers += 1
        key = b"key-%d" % self.chance.randrange(self._plan.keys)
        return Update(self._numbers, key, self.chance.randrange(100) < self._plan.deletes_percent)

    def _on_produced(self, body: Any, updates: list[Update]) -> None:
        answer = produced(body)
        self.count("Produce", answer.error_code)
        if answer.error_code == ErrorCode.NONE:
            self._sent = None
            self.world.counts["updates"] += len(updates)
            end = answer.base_offset + len(updates)
            self.cluster.promises.on_acknowledged(self.key, end, self.name, "all")
            self._end = max(end, self._end)
            self._table.acknowledge(updates, answer.base_offset)
            self._later(self._plan.pause_ms)
        else:
            self._doubt()
            self._stale()

    def _doubt(self) -> None:
        """What is under way may be stored now or later."""
        if self._sent is not None:
            self._table.doubt(self._sent[0])
        self._sent, self._producer_id = None, NO_PRODUCER_ID

    # ---- reading

    def _ask_start(self, line: Line) -> None:
        body = list_offsets_request({self.key: EARLIEST}, leader_epochs=self.leader_epochs)
        self.ask(LIST_OFFSETS, LIST_OFFSETS_VERSION, body, self._on_start, self.cluster.is_over, line=line)

    def _on_start(self, body: ListOffsetsResponse, is_last: bool) -> None:
        answer = body.topics[0].partitions[0]
        self.count("ListOffsets", answer.error_code)
        if answer.error_code != ErrorCode.NONE:
            self._stale()
            return
        self._reading = Reading(answer.offset, answer.offset, {}, is_last)
        self._go_on()

    def _fetch(self, line: Line, reading: Reading) -> None:
        begin = FetchFrom(reading.position, self.leader_epochs.get(self.key, -1))
        body = fetch_request({self.key: begin}, max_wait_ms=0, min_bytes=0, partition_max_bytes=FETCH_BYTES)
        self.ask(FETCH, FETCH_VERSION, body, self._on_fetched, reading, line=line)

    def _on_fetched(self, body: FetchResponse, reading: Reading) -> None:
        answer = body.responses[0].partitions[0]
        self.count("Fetch partition", answer.error_code)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.cluster.promises.on_out_of_range(self.key, self.name)
            self._reading = None
            self._stale()
        elif answer.error_code in STALE:
            self._stale()
        elif answer.error_code != ErrorCode.NONE:
            raise self.groundless("Fetch", answer.error_code)
        else:
            self._read_on(reading, answer)

    def _read_on(self, reading: Reading, answer: FetchResponse.PartitionData) -> None:
        position = reading.position
        for batch in batches_in(cast(Buffer, answer.records or b"")):
            _read_into(reading.found, batch, position)
            position = max(position, header_of(batch).next_offset)
        self._reading = reading._replace(position=position)
        if position > reading.position and position < answer.high_watermark:
            self._go_on()
            return
        if position < max(answer.high_watermark, self._committed_end):
            self._stale()  # A new leader learns late how far the log is committed.
            return
        self._reading = None
        self.world.counts["tables read"] += 1
        self._judge(reading.found, reading.start, f"as {self.name} reads it")
        if reading.is_last:
            self.finish()
        else:
            self._later(self._plan.pause_ms)

    @property
    def _committed_end(self) -> int:
        """Return the offset that a reader must reach if nothing may be lost."""
        return 0 if self.cluster.promises.may_have_lost(self.key) else self._end

    # ---- what is found

    def _judge(self, found: Mapping[bytes, int], start: int, where: str) -> None:
        """Errors: Violation."""
        difference = self._table.difference(found, start)
        if difference and not self.cluster.promises.may_have_lost(self.key):
            self.world.broken("last-value-lost", f"{self.key[0]}-{self.key[1]} {where} from {start} on: {difference}")

    def compare(self, partition: Partition, where: str) -> None:
        """Read a replica's log from its files; one that is in sync has all that was acknowledged. Errors: Violation."""
        log, found = partition.log, dict[bytes, int]()
        if log._cut is not None or log._swap is not None:
            return  # its files are between two states
        self._require_retention(partition, where)
        for segment in log._segments:
            for batch in batches_in(segment.file.read(0, segment.file.size)):
                _read_into(found, batch, log.log_start_offset)
        self._judge(found, log.log_start_offset, f"in the log of {where}")

    def _require_retention(self, partition: Partition, where: str) -> None:
        """A leader has no closed segment that is older than retention.ms, where no clock was moved. Errors: Violation."""
        retention_ms = self._topic.configs.get("retention.ms")
        moved = any(fault.kind == "clock-jump" for fault in self.cluster.schedule.faults)
        if retention_ms is None or moved or not partition.is_leader:
            return
        first, *others = partition.log._segments
        is_closed = bool(others) and others[0].base_offset <= partition.high_watermark
        age_ms = self.cluster.client_clock_ms() - first.largest_timestamp
        if is_closed and first.largest_timestamp >= 0 and age_ms > int(retention_ms) + RETENTION_LATE_MS:
            text = f"{partition.name} in the log of {where}: the first segment is {age_ms} ms old, and may be {retention_ms}"
            self.world.broken("retention-not-kept", text)


def _record(delta: int, update: Update, now: TimestampMs) -> Record:
    value = None if update.is_tombstone else b"v" * (update.number * 7 % MOST_VALUE_BYTES)
    return Record(Offset(delta), now, update.key, value, ((NUMBER, update.number.to_bytes(NUMBER_BYTES, "big")),))
