"""Drawn log directories: logs with epochs, transactions, deletions, cuts and compactions, and their files at two moments."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from linearizability.damage.folder import Folder
from reference.protocol.primitives import FIRST_EPOCH, NO_PRODUCER_ID, Offset, ProducerEpoch, ProducerId, TimestampMs
from reference.protocol.records.batch import BatchProducer, build, check_crc, read_batches, records_of
from reference.protocol.records.control import EndTransaction, build_end_transaction
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.record import Record
from reference.protocol.records.validate import Origin
from reference.storage.config import LogConfig
from reference.storage.errors import CorruptFile, LogError, StorageError
from reference.storage.log import Log
from reference.storage.log_directory import CHECKPOINT_INTERVAL_MS, LogDirectory
from reference.storage.producer_state import marker_of
from reference.storage.segment import StoredBatch
from reference.storage.segment_list import ProducerExpiry
from reference.storage.simulated_disk import SimulatedDisk
from tests.replication.replicas import replica
from tests.storage.logs import NOW

HOME = Path("/data")
NEVER_EXPIRE_MS = 1_000_000_000
SETTINGS = LogConfig(
    segment_bytes=700,
    segment_index_bytes=2048,
    index_interval_bytes=100,
    retention_ms=-1,
    min_cleanable_dirty_ratio=0.0,
)
COMPACTED = "compacted"
TOPICS = {"plain": UUID(int=101), "other": UUID(int=102), COMPACTED: UUID(int=103)}
PRODUCERS = tuple(map(ProducerId, (1, 2, 3)))
TRANSACTIONAL = PRODUCERS[:2]
STEP_MS = 1_000
TIMES = [NOW + STEP_MS * at for at in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597, 2584)]
"""The timestamps of look-ups."""


def config_of(topic: str) -> LogConfig:
    return replace(SETTINGS, cleanup_policy="compact") if topic == COMPACTED else SETTINGS


class Moment(NamedTuple):
    """A directory's files at one moment, and the contents of its logs then."""

    folder: Folder
    held: dict[str, dict[str, Any]]


class Started:
    """The logs of a directory, opened as a broker does when it starts."""

    def __init__(self, folder: Folder | SimulatedDisk, now: TimestampMs) -> None:
        """Errors: CorruptFile, StorageError if the start is refused."""
        self.disk = folder if isinstance(folder, SimulatedDisk) else disk_of(folder)
        self.said: list[str] = []
        self.directory = LogDirectory(self.disk, HOME, lambda level, text: self.said.append(f"{level}: {text}"))
        self.directory.producer_expiry = ProducerExpiry(lambda: NEVER_EXPIRE_MS)
        self.directory.has_topic = lambda id: id in TOPICS.values()
        self.directory.load(now)
        self.logs: dict[str, Log] = {}
        self.high_watermarks: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        for topic, id in TOPICS.items():
            try:
                log = self.directory.get_or_create(topic, 0, id, config_of(topic), now)
            except (CorruptFile, StorageError) as error:
                self.refused[topic] = str(error)
                continue
            partition = replica(1, log=log)
            if self.directory.had((topic, 0)):
                partition.restart(self.directory.high_watermark((topic, 0)))
            self.logs[topic], self.high_watermarks[topic] = log, partition.high_watermark


def disk_of(folder: Folder) -> SimulatedDisk:
    """A disk with these files."""
    disk = SimulatedDisk()
    disk.make_folder(HOME)
    for path, data in folder.items():
        disk.make_folder((HOME / path).parent)
        disk.open_file(HOME / path).append(data)
    return disk


def files_of(disk: SimulatedDisk, folder: Path = HOME) -> Folder:
    """All files of a disk, by their paths below the log directory."""
    found: Folder = {}
    for name in disk.list_folder(folder):
        if disk.is_folder(folder / name):
            found |= files_of(disk, folder / name)
        else:
            found[str((folder / name).relative_to(HOME))] = bytes(disk.read_file(folder / name))
    return found


class Writer:
    """Draws steps of a broker that leads or follows all the partitions."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now = NOW
        self.epoch = FIRST_EPOCH
        self._start(SimulatedDisk())

    def _start(self, disk: SimulatedDisk) -> None:
        self.started = Started(disk, self.now)
        self.high_watermarks = {topic: Offset(each) for topic, each in self.started.high_watermarks.items()}
        self.started.directory.cleaner.stable_end = lambda key: self.started.logs[key[0]].last_stable_offset(
            self.high_watermarks[key[0]]
        )

    def run(self, count: int) -> None:
        steps = [
            (14, self.append), (5, self.mark), (5, self.commit), (2, self.begin_epoch), (2, self.delete), (1.5, self.cut),
            (1.5, self.checkpoint), (1, self.compact), (1, self.flush), (0.3, lambda: self.restart(is_clean=True)),
            (0.3, lambda: self.restart(is_clean=False)),
        ]  # fmt: skip
        for _ in range(count):
            self.now += STEP_MS
            self.chance.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()

    def _topic(self) -> str:
        return self.chance.choice(list(TOPICS))

    def append(self) -> None:
        topic, count = self._topic(), self.chance.choice([1, 1, 2, 3])
        log = self.started.logs[topic]
        id = self.chance.choice([NO_PRODUCER_ID, *PRODUCERS])
        producer = (
            BatchProducer(id, ProducerEpoch(0), self._sequence(log, id), id in TRANSACTIONAL)
            if id >= 0
            else BatchProducer()
        )
        records = [
            Record(Offset(at), self.now + at, b"key %d" % self.chance.randrange(5), self.chance.randbytes(40))
            for at in range(count)
        ]
        log.append_as_leader(build(records, producer=producer), self.epoch, self.now)

    def _sequence(self, log: Log, id: int) -> int:
        """The sequence number of a producer's next batch."""
        return max((each.last_sequence + 1 for each in log.active_producers() if each.producer_id == id), default=0)

    def mark(self) -> None:
        topic = self._topic()
        log = self.started.logs[topic]
        for each in log.active_producers():
            if each.current_transaction_start_offset >= 0:
                end = EndTransaction(self.chance.random() < 0.5, FIRST_EPOCH)
                marker = build_end_transaction(end, each.producer_id, each.producer_epoch, self.now)
                log.append_as_leader(marker, self.epoch, self.now, Origin.COORDINATOR)
                return

    def bases(self, topic: str) -> list[int]:
        """The base offsets of the log's batches, and the log end offset."""
        log = self.started.logs[topic]
        found = [batch.header.base_offset for segment in log._segments for batch in segment.batches()]
        return [*(each for each in found if each >= log.log_start_offset), log.log_end_offset]

    def commit(self) -> None:
        topic = self._topic()
        ends = [each for each in self.bases(topic) if each >= self.high_watermarks[topic]]
        self.high_watermarks[topic] = Offset(self.chance.choice([ends[-1], self.chance.choice(ends)]))

    def begin_epoch(self) -> None:
        self.epoch += self.chance.choice([1, 1, 3])
        for log in self.started.logs.values():
            log.assign_epoch_start(self.epoch, log.log_end_offset)

    def delete(self) -> None:
        topic = self._topic()
        if topic != COMPACTED:
            log, limit = self.started.logs[topic], self.high_watermarks[topic]
            log.advance_log_start_offset(
                Offset(self.chance.choice([at for at in self.bases(topic) if at <= limit] or [0]))
            )
            log.delete_old_segments(self.now, limit)

    def cut(self) -> None:
        """Truncate as a follower whose log diverges above the high watermark."""
        topic = self._topic()
        log = self.started.logs[topic]
        at = self.chance.choice([each for each in self.bases(topic) if each >= self.high_watermarks[topic]])
        log.truncate_to(Offset(at), self.now)
        self.begin_epoch()

    def flush(self) -> None:
        self.started.logs[self._topic()].flush(self.now)

    def checkpoint(self) -> None:
        if self.chance.random() < 0.8:
            self.now += CHECKPOINT_INTERVAL_MS
            self.started.directory.tick(self.now)
        if self.chance.random() < 0.8:
            reached = {(topic, 0): each for topic, each in self.high_watermarks.items()}
            self.started.directory.checkpoint_high_watermarks(reached)

    def compact(self) -> None:
        log = self.started.logs[COMPACTED]
        log.roll(self.now)
        for _ in range(8):
            self.now += CHECKPOINT_INTERVAL_MS
            self.started.directory.cleaner.tick(self.now)

    def restart(self, *, is_clean: bool) -> None:
        if is_clean:
            self.end()
        self._start(self.started.disk)

    def end(self) -> None:
        """Shut down cleanly."""
        self.started.directory.shut_down({(topic, 0): each for topic, each in self.high_watermarks.items()}, self.now)

    def moment(self) -> Moment:
        return Moment(self.files, self.held())

    @property
    def files(self) -> Folder:
        return files_of(self.started.disk)

    def held(self) -> dict[str, dict[str, Any]]:
        return {topic: state(log, self.high_watermarks[topic]) for topic, log in self.started.logs.items()}


def state(log: Log, high_watermark: int) -> dict[str, Any]:
    """The state of a log, in the form of Starts.java."""
    start = log.log_start_offset
    return {
        "start": start,
        "end": log.log_end_offset,
        "high watermark": high_watermark,
        "last stable": log.last_stable_offset(Offset(high_watermark)),
        "aborted": [
            f"{each.producer_id} {each.first_offset} {each.last_offset}"
            for each in log.aborted_transactions(start, log.log_end_offset)
        ],
        "batches": [
            f"{each.header.base_offset} {each.header.last_offset} {each.header.crc}" for each in batches_of(log)
        ],
    }


def batches_of(log: Log) -> list[StoredBatch]:
    return [batch for segment in log._segments for batch in segment.batches()]


def faults(log: Log) -> Iterator[str]:
    """The differences between look-ups in a log and its batches; none if a batch's checksum is wrong."""
    start, batches = log.log_start_offset, batches_of(log)
    if not all(map(_is_sound, batches)):
        return
    if any(each.header.last_offset >= other.header.base_offset for each, other in pairwise(batches)):
        yield "batches are not in order"
    if batches and batches[-1].header.last_offset >= log.log_end_offset:
        yield "the log ends before its last batch"
    held = [each for each in batches if each.header.last_offset >= start]
    is_rising = all(each.header.leader_epoch <= other.header.leader_epoch for each, other in pairwise(held))
    for each in held:
        at = max(each.header.base_offset, start)
        if (read := _read(log, at)) != (each.header.base_offset, each.header.crc):
            yield f"offset {at} is read as {read}"
        if is_rising and (epoch := log.epoch_at(at)) != each.header.leader_epoch:
            yield f"offset {at} has the epoch {epoch}"
    records = [record for each in held for record in records_of(each.data) if record.offset >= start]
    for time in TIMES:
        expected = next(((each.timestamp, each.offset) for each in records if each.timestamp >= time), None)
        found = log.offset_for_timestamp(time)
        if (None if found is None else found[:2]) != expected:
            yield f"timestamp {time} is found at {found}, not at {expected}"
    producers = {each.producer_id: each for each in log.active_producers()}
    for id, sequence in _last_sequences(held).items():
        if id not in producers or producers[ProducerId(id)].last_sequence < sequence:
            yield f"producer {id} is known as {producers.get(ProducerId(id))}, and its last sequence number is {sequence}"
    aborted = {each.last_offset for each in log.aborted_transactions(start, log.log_end_offset)}
    for offset, is_committed in _decisions(batches, start):
        if (offset in aborted) is is_committed:
            yield f"what the marker at {offset} decides is {'aborted' if is_committed else 'not aborted'}"


def _is_sound(batch: StoredBatch) -> bool:
    try:
        check_crc(batch.data, batch.header)
    except RecordsError:
        return False
    return True


def _last_sequences(batches: list[StoredBatch]) -> dict[int, int]:
    """Producer -> the last sequence number of its last batch of records."""
    headers = (each.header for each in batches)
    return {each.producer_id: each.last_sequence for each in headers if each.producer_id >= 0 and not each.is_control}


def _decisions(batches: list[StoredBatch], start: int) -> Iterator[tuple[int, bool]]:
    """For each transaction with records from `start` on, the offset of its marker, and whether it is committed."""
    open: set[int] = set()
    for each in batches:
        header = each.header
        if header.is_control:
            marker = marker_of(header, each.data)
            if marker is not None and header.producer_id in open:
                yield header.base_offset, marker.committed
            open.discard(header.producer_id)
        elif header.is_transactional and header.last_offset >= start:
            open.add(header.producer_id)


def _read(log: Log, offset: int) -> tuple[int, int] | str:
    try:
        data = log.read(Offset(offset), 1).records
        header = next(read_batches(data if isinstance(data, bytes) else data.read())).header
        return header.base_offset, header.crc
    except (LogError, RecordsError, StopIteration) as error:
        return type(error).__name__
