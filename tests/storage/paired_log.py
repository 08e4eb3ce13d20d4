"""The same steps for a log of ours and for one of Apache Kafka's: ours makes them at once, Kafka's in `java/Logs.java`."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import FIRST_EPOCH, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from reference.protocol.records.batch import BatchProducer, assign, build, records_of
from reference.protocol.records.control import EndTransaction, build_end_transaction
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.record import Record
from reference.protocol.records.validate import Origin
from reference.storage.cleanable import cleanable
from reference.storage.cleaning import Cleaning
from reference.storage.config import LogConfig
from reference.storage.errors import LogError
from reference.storage.log import Log
from reference.storage.segment import StoredBatch
from reference.storage.segment_list import ProducerExpiry
from reference.storage.simulated_disk import SimulatedDisk
from reference.storage.verification import Guard
from tests.storage.logs import NOW, open_log

MAP_BYTES = 1 << 20
SEGMENT_BYTES = 1 << 20
TOMBSTONES_STAY_MS = 20_000
NEVER_EXPIRE_MS = 1_000_000_000
"""Kafka also expires producers whenever it loads a snapshot, ours from time to time: with this value none expires."""
MAX_SEQUENCES = 1 << 31
REPEATED_OR_LOST = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name
"""Kafka's answer to a repeated batch that it does not remember."""


def text(data: Any) -> str:
    return "-" if data is None else bytes(data).hex()


def batch_row(batch: StoredBatch) -> str:
    """A batch as Logs.java writes it."""
    header = batch.header
    records = (f"{each.offset}:{each.timestamp}:{text(each.key)}:{text(each.value)}" for each in records_of(batch.data))
    fields = (
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        str(header.is_transactional).lower(),
        str(header.is_control).lower(),
        header.max_timestamp,
        -1 if header.delete_horizon is None else header.delete_horizon,
        ",".join(records),
    )
    return " ".join(map(str, fields))


@dataclass
class PairedLog:
    """A log of ours; `steps` are for Kafka's, `ours` has our results."""

    folder: Path
    chance: random.Random
    compacts: bool
    now: TimestampMs = NOW
    epoch: LeaderEpoch = FIRST_EPOCH
    high_watermark: int = 0
    clean_to: int = 0
    guards: list[Guard | None] = field(default_factory=list[Guard | None])
    steps: list[str] = field(default_factory=list[str])
    ours: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def __post_init__(self) -> None:
        self._disk = SimulatedDisk()
        self.log: Log = self._open(0, clean=False)

    def _note(self, op: str, answer: str, **arguments: Any) -> None:
        self.steps.append(json.dumps({"op": op, "now": self.now, **arguments}))
        self.ours.append({"answer": answer, **({} if op in ("close", "kill") else self._state())})

    def batches(self) -> list[StoredBatch]:
        return [batch for segment in self.log._segments for batch in segment.batches()]

    def _state(self) -> dict[str, Any]:
        log = self.log
        producers = sorted(log.active_producers(), key=lambda each: each.producer_id)
        return {
            "end": log.log_end_offset,
            "start": log.log_start_offset,
            "high watermark": self.high_watermark,
            "last stable": log.last_stable_offset(Offset(self.high_watermark)),
            "producers": [" ".join(map(str, each)) for each in producers],
            "aborted": [
                f"{each.producer_id} {each.first_offset} {each.last_offset} {each.last_stable_offset}"
                for each in log.aborted_transactions(log.log_start_offset, log.log_end_offset)
            ],
            "epochs": [f"{epoch} {start}" for epoch, start in log._epochs.entries],
            "batches": [batch_row(batch) for batch in self.batches()],
        }

    # ---- steps

    def _open(self, recovery_point: int, *, clean: bool) -> Log:
        policy = "compact" if self.compacts else "delete"
        config = LogConfig(
            cleanup_policy=policy,
            segment_bytes=SEGMENT_BYTES,
            delete_retention_ms=TOMBSTONES_STAY_MS,
            retention_ms=-1,
        )
        self.log = open_log(
            self._disk,
            config,
            self.now,
            recovery_point=recovery_point,
            clean=clean,
            checksums=None,
            producer_expiry=ProducerExpiry(lambda: NEVER_EXPIRE_MS),
        )
        settings = {
            "cleanup.policy": policy,
            "segment.bytes": SEGMENT_BYTES,
            "delete.retention.ms": TOMBSTONES_STAY_MS,
            "retention.ms": -1,
        }
        self.high_watermark = self.log.log_start_offset
        self._note(
            "open",
            "",
            folder=str(self.folder),
            config={name: str(value) for name, value in settings.items()},
            recovery=recovery_point,
            clean=clean,
            expiration=NEVER_EXPIRE_MS,
        )
        return self.log

    def reopen(self, *, clean: bool) -> None:
        """End the process, cleanly or by a kill, and start another."""
        recovery_point = self.chance.choice([0, self.log.recovery_point])
        if clean:
            self.log.close()
            recovery_point = self.log.log_end_offset
        self._note("close" if clean else "kill", "")
        self._open(recovery_point, clean=clean)

    def append(self, data: bytearray, origin: Origin, guard: int, version: int) -> None:
        sent = bytes(data).hex()
        verified = self.guards[guard] if guard >= 0 else None
        try:
            info = self.log.append_as_leader(data, self.epoch, self.now, origin, version, verified)
            answer = f"{info.first_offset}-{info.last_offset}"
        except (LogError, RecordsError) as error:
            answer = ErrorCode(error.code).name
        number = guard if verified is not None else -1
        self._note("append", answer, data=sent, epoch=self.epoch, origin=origin.name, guard=number, version=version)

    def append_fetched(self, data: bytearray) -> None:
        info = self.log.append_as_follower(bytes(data), self.now)
        self._note("append", f"{info.first_offset}-{info.last_offset}", data=bytes(data).hex(), epoch=self.epoch)

    def verify(self, producer: BatchProducer, *, adds: bool) -> int:
        """Begin a verification; return the number of its guard."""
        guard = None
        try:
            guard = self.log.begin_verification(producer.id, producer.epoch, producer.base_sequence, adds, self.now)
            answer = "asked" if guard is not None else "open"
        except LogError as error:
            answer = ErrorCode(error.code).name
        self.guards.append(guard)
        number = len(self.guards) - 1
        self._note(
            "verify",
            answer,
            producer=producer.id,
            epoch=producer.epoch,
            sequence=producer.base_sequence,
            adds=adds,
            guard=number,
        )
        return number

    def move_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        self._note("high watermark", "", offset=offset)

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(Offset(offset), self.now)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        self.clean_to = min(self.clean_to, self.log.log_end_offset)
        self._note("truncate", "", offset=offset)

    def roll(self) -> None:
        """Roll the log if the last segment is not empty, as Kafka does."""
        if self.log._active.file.size:
            self.log.roll(self.now)
            self._note("roll", "")

    def begin_epoch(self) -> None:
        self.epoch += 1
        self.log.assign_epoch_start(self.epoch, self.log.log_end_offset)
        self._note("epoch", "", epoch=self.epoch)

    def compact(self) -> None:
        log, begins = self.log, self.clean_to
        log.flush(self.now)
        stable = log.last_stable_offset(Offset(self.high_watermark))
        section = cleanable(
            log.closed_segments, log.config, log.active_base, log.log_start_offset, Offset(begins), stable, self.now
        )
        if section.end <= section.start:
            return
        cleaning = Cleaning(log, section, self.now, MAP_BYTES)
        for _ in cleaning.steps():
            pass
        assert cleaning.done is not None
        self.clean_to = cleaning.done.end
        self._note("clean", str(cleaning.done.end), dirty=begins, end=section.end)


FIRST_PRODUCER_EPOCH = ProducerEpoch(0)
IN_TRANSACTIONS, IDEMPOTENT = tuple(map(ProducerId, (1, 2, 3))), ProducerId(4)


@dataclass
class Session:
    """A producer's state, as if all its batches had been appended."""

    id: ProducerId
    epoch: ProducerEpoch = FIRST_PRODUCER_EPOCH
    sequence: int = 0


class DrawnSteps:
    """Random steps, most of them those of brokers and clients; a log leads or follows throughout."""

    def __init__(self, pair: PairedLog, chance: random.Random, *, follows: bool) -> None:
        self._pair, self._chance, self._follows = pair, chance, follows
        self._sessions = {id: Session(id) for id in (*IN_TRANSACTIONS, IDEMPOTENT)}
        self._coordinator_epoch = FIRST_EPOCH

    def run(self, count: int) -> None:
        self._pair.begin_epoch()
        for _ in range(count):
            self._pair.now += self._chance.choice([0, 1, 1000, 15_000])
            self._step()

    def _step(self) -> None:
        pair, chance = self._pair, self._chance
        end = pair.log.log_end_offset
        drawn = chance.random()
        if drawn < 0.40:
            self._data()
        elif drawn < 0.58:
            self._marker()
        elif drawn < 0.63 and not self._follows:
            pair.verify(self._any_producer(), adds=chance.random() < 0.5)
        elif drawn < 0.74:
            pair.move_high_watermark(chance.choice([end, chance.randint(pair.high_watermark, end)]))
        elif drawn < 0.83:
            pair.roll()
        elif drawn < 0.88 and pair.compacts:
            pair.compact()
        elif drawn < 0.92:
            self._truncate()
        elif drawn < 0.96:
            pair.begin_epoch()
        else:
            pair.reopen(clean=chance.random() < 0.5)

    def _any_producer(self) -> BatchProducer:
        """One in a transaction, which may be confused."""
        session = self._sessions[self._chance.choice(IN_TRANSACTIONS)]
        epoch = ProducerEpoch(max(0, session.epoch + self._chance.choice([0, 0, 0, 1, -1])))
        sequence = self._chance.choice([0, session.sequence, session.sequence, session.sequence + 3])
        return BatchProducer(session.id, epoch, sequence, transactional=True)

    def _records(self, base: int, count: int) -> list[Record]:
        chance = self._chance
        return [
            Record(
                Offset(base + at),
                self._pair.now + chance.choice([0, 0, 1, -5]),
                b"%d" % chance.randrange(6),
                None if chance.random() < 0.2 else b"v%d" % chance.randrange(1000),
            )
            for at in range(count)
        ]

    def _data(self) -> None:
        count = self._chance.choice([1, 1, 2, 3])
        producer = self._sender(count)
        if self._follows:
            base = self._pair.log.log_end_offset + self._chance.choice([0, 0, 0, 2, 7])  # compaction leaves gaps
            self._pair.append_fetched(
                build(self._records(base, count), producer=producer, leader_epoch=self._pair.epoch)
            )
        elif not self._send(producer, count):
            return
        if producer.id in self._sessions:
            session = self._sessions[producer.id]
            session.epoch, session.sequence = producer.epoch, (producer.base_sequence + count) % MAX_SEQUENCES

    def _sender(self, count: int) -> BatchProducer:
        chance = self._chance
        if chance.random() < 0.15:
            return BatchProducer()
        session = chance.choice([*self._sessions.values()])
        epoch = ProducerEpoch(max(0, session.epoch + chance.choice([0] * 10 + [1, 1, -1])))
        sequence = session.sequence if epoch == session.epoch else 0
        if chance.random() < 0.15:
            sequence = max(0, sequence + chance.choice([-count, -1, 1, MAX_SEQUENCES - 5, -5])) % MAX_SEQUENCES
        return BatchProducer(session.id, epoch, sequence, transactional=session.id in IN_TRANSACTIONS)

    def _send(self, producer: BatchProducer, count: int) -> bool:
        """True where a client's batch was appended."""
        pair, chance = self._pair, self._chance
        guard = chance.randrange(len(pair.guards)) if pair.guards and chance.random() < 0.2 else -1
        if producer.transactional and chance.random() < 0.8:
            guard = pair.verify(producer, adds=chance.random() < 0.6)
        is_coordinators = producer.transactional and chance.random() < 0.15
        if is_coordinators:
            producer = producer._replace(base_sequence=0)
        before = pair.log.log_end_offset
        origin = Origin.COORDINATOR if is_coordinators else Origin.CLIENT
        pair.append(build(self._records(0, count), producer=producer), origin, guard, -1)
        return pair.log.log_end_offset > before and not is_coordinators

    def _marker(self) -> None:
        pair, chance = self._pair, self._chance
        open_ids = [
            each.producer_id for each in pair.log.active_producers() if each.current_transaction_start_offset >= 0
        ]
        is_expected = open_ids and chance.random() < 0.8
        session = self._sessions[chance.choice(open_ids) if is_expected else chance.choice(IN_TRANSACTIONS)]
        self._coordinator_epoch = max(FIRST_EPOCH, self._coordinator_epoch + chance.choice([0] * 8 + [1, -1]))
        version = chance.choice([0, 0, 1, 2, 2])
        epoch = ProducerEpoch(max(0, session.epoch + (version == 2) + chance.choice([0] * 8 + [1, -1])))
        end = EndTransaction(chance.random() < 0.5, self._coordinator_epoch)
        marker = build_end_transaction(end, session.id, epoch, pair.now)
        if self._follows:
            assign(marker, Offset(pair.log.log_end_offset + chance.choice([0, 0, 3])), pair.epoch)
            pair.append_fetched(marker)
        else:
            pair.append(marker, Origin.COORDINATOR, -1, version)
        if epoch > session.epoch:
            session.epoch, session.sequence = epoch, 0

    def _truncate(self) -> None:
        """Truncate to a base offset: within a batch Kafka's log would end at the offset, ours at the batch's start."""
        begins = [batch.header.base_offset for batch in self._pair.batches()]
        behind = [base for base in begins if base >= self._pair.clean_to]
        if behind:
            self._pair.truncate(self._chance.choice(behind[-6:]))


def first_difference(mine: Mapping[str, Any], kafkas: Mapping[str, Any], *, was_loaded: bool) -> str | None:
    """The difference of two logs after a step; None if they agree.

    Kafka keeps epochs without records. Once it has loaded a snapshot of its producers, which it does at a start and at a cut, it
    knows their last batches only, and no longer which markers were above the high watermark.
    """
    for name, value in mine.items():
        theirs = kafkas[name]
        if name == "epochs":
            value, theirs = (_epochs_with_records(each) for each in (mine, kafkas))
        is_less_certain = was_loaded and name == "last stable" and mine[name] < kafkas[name]
        is_unknown = was_loaded and theirs == REPEATED_OR_LOST and mine["end"] == kafkas["end"]
        if value != theirs and not (is_less_certain or is_unknown):
            return f"{name}: {value} here, {theirs} in Kafka"
    return None


def _epochs_with_records(state: Mapping[str, Any]) -> dict[int, str]:
    """Epoch by the base offset of its first batch."""
    bases = [int(row.split()[1]) for row in state["batches"]]
    starts = [row.split() for row in state["epochs"]]
    first = [(min((base for base in bases if base >= int(start)), default=-1), epoch) for epoch, start in starts]
    return {base: epoch for base, epoch in first if base >= 0}
