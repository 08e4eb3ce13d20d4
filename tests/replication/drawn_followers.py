"""Drawn metadata and responses of leaders, for a broker of ours and for Apache Kafka's `ReplicaManager`, and their differences.

Not drawn, not compared, or removed in Followers.java, because the two are known to differ there:
- A follower forgets the epoch of a leadership without records, or of which all records are deleted; Kafka's keeps it.
- After a response without effect (a session error, an inexplicable out-of-range error, bytes without a whole batch), one of the
  two waits and the other fetches again at once: then time elapses in both.
- Of several batches before a corrupt one, ours appends those before it; Kafka's appends none.
- A replica that is moved away while the broker is down keeps its folder, and is used if it comes back; Kafka puts it aside.
- A log that was never appended to has no topic id in Kafka, and is put aside when its broker starts after a kill.
- A stale high watermark within a batch, or in a gap: Kafka moves it to where a batch begins.
- After a cut or a start Kafka does not know which markers are above the high watermark: the last stable offset may be higher.
- Producers of which no record is left may be known to one of the two only: after a cut an open transaction of deleted records
  holds the last stable offset at the log's start in Kafka, and is forgotten here.
- A clean start without the snapshots of producers, after which Kafka knows none.
- A checkpoint that cannot be read, after which Kafka takes the log directory offline.
- After a kill Kafka may know the starts of leader epochs from before records were deleted.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from reference.protocol.errors import ErrorCode
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.fetch import FetchResponse
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.remove_topic_record import RemoveTopicRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.primitives import FIRST_EPOCH, FIRST_OFFSET, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from reference.protocol.records.batch import BatchProducer, assign, build, read_batches
from reference.protocol.records.control import EndTransaction, build_end_transaction
from reference.protocol.records.record import Record
from reference.protocol.records.validate import Origin
from reference.protocol.schema import Message
from reference.replication.fetch_session import Wanted
from reference.storage.log import Log
from tests import kafka_classes
from tests.replication.paired_followers import NODE, SOURCE, Answer, PairedFollowers
from tests.replication.replicas import bytes_of, open_log

STEPS = 80
AT_ONCE = 50
TOPICS = ("t0", "t1", "t2")
METADATA_LEVEL = 30
PASSING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
)

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


@dataclass
class LeadersLog:
    """The log of another broker that leads a partition."""

    log: Log
    high_watermark: Offset
    open: list[ProducerId]
    """Producers with an open transaction in the log."""

    def bases(self) -> list[Offset]:
        """The base offsets of the log's batches, and the log end offset."""
        return [*bases_of(self.log), self.log.log_end_offset]


def bases_of(log: Log) -> list[Offset]:
    return [batch.header.base_offset for segment in log._segments for batch in segment.batches()]


class DrawnSteps:
    """Random steps: decisions of the controller, and responses of leaders."""

    def __init__(self, pair: PairedFollowers, chance: random.Random, *, sessions: bool) -> None:
        self.pair, self.chance = pair, chance
        self.session = 7 if sessions else 0
        self.leading: dict[UUID, LeadersLog] = {}
        self.last_id = 100
        self.producer = 0
        self._may_wait = False
        self.open: list[ProducerId] = []

    def run(self, count: int) -> None:
        level = FeatureLevelRecord(name="metadata.version", feature_level=METADATA_LEVEL)
        self.pair.apply([level, *(self._broker(node) for node in (1, 2, 3, 4)), *self._new_topic(TOPICS[0])])
        for _ in range(count):
            self.pair.now += self.chance.choice([0, 1, 100])
            self.step()

    def step(self) -> None:
        weighted = [
            (16, self.round),
            (3, self.metadata),
            (4, self.append),
            (3, self.pair.elapse),
            (1, lambda: self.pair.roll(self.chance.choice(TOPICS))),
            (0.7, self.pair.retention),
            (0.7, self.delete),
            (1, lambda: self.pair.checkpoint(high_watermarks=self.chance.random() < 0.7)),
            (0.7, self.restart),
        ]
        self.chance.choices([each for _, each in weighted], [weight for weight, _ in weighted])[0]()

    def restart(self) -> None:
        clean = self.chance.random() < 0.5
        if not clean:
            self.pair.checkpoint(high_watermarks=self.chance.random() < 0.3)
        names = self.chance.sample(TOPICS, self.chance.choice([0, 1, 1, 2]))
        decisions = [record for name in names for record in self._decisions(name, stays=True)]
        self.pair.restart(clean=clean, meanwhile=decisions)

    # ---- metadata

    def _broker(self, node: int) -> RegisterBrokerRecord:
        end_point = RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9000 + node)
        return RegisterBrokerRecord(
            broker_id=node, incarnation_id=UUID(int=node), broker_epoch=100 + node, end_points=[end_point], fenced=False
        )

    def _new_topic(self, name: str) -> list[Message]:
        self.last_id += 1
        id, replicas = UUID(int=self.last_id), [1, 2, 3]
        leader = self.chance.choice([1, 2, 2, 3])
        partition = PartitionRecord(
            partition_id=0,
            topic_id=id,
            replicas=replicas,
            isr=replicas if self.chance.random() < 0.6 else [leader],
            leader=leader,
            leader_epoch=0,
            partition_epoch=0,
            directories=[UUID(int=0)] * len(replicas),
        )
        if leader != NODE:
            self.leading[id] = LeadersLog(open_log(), FIRST_OFFSET, [])
            self.leading[id].log.assign_epoch_start(FIRST_EPOCH, FIRST_OFFSET)
        return [TopicRecord(name=name, topic_id=id), partition]

    def metadata(self) -> None:
        names = self.chance.sample(TOPICS, self.chance.choice([1, 1, 2]))
        self.pair.apply([record for name in names for record in self._decisions(name)])

    def _decisions(self, name: str, *, stays: bool = False) -> list[Message]:
        """With `stays` the replica is not moved away."""
        topic = self.pair.image.topics.get(name)
        if topic is None:
            return self._new_topic(name)
        drawn = self.chance.random()
        if drawn < 0.1:
            return [RemoveTopicRecord(topic_id=topic.id)]
        if drawn < 0.2:
            return [RemoveTopicRecord(topic_id=topic.id), *self._new_topic(name)]
        partition, changes = topic.partitions[0], list[Message]()
        for _ in range(self.chance.choice([1, 1, 1, 1, 2])):
            changes.append(change := self._change(topic.id, partition, stays=stays))
            partition = partition.after(change)
        return changes

    def _change(self, id: UUID, now: Any, *, stays: bool) -> PartitionChangeRecord:
        chance, record = self.chance, PartitionChangeRecord(partition_id=0, topic_id=id)
        drawn = chance.random()
        if drawn < 0.65:
            members = [each for each in now.replicas if each != now.leader] or [*now.replicas]
            record.leader = chance.choice([*members, *members, *([NODE] if NODE in members else []), -1])
            if record.leader >= 0:
                isr = [each for each in now.isr if chance.random() < 0.6]
                record.isr = sorted({*isr, record.leader})
            if record.leader >= 0 and record.leader != NODE:
                self._elect(id, now)
        elif drawn < 0.85:
            isr = [each for each in now.replicas if each == now.leader or chance.random() < 0.5]
            record.isr = isr or [*now.isr]
        elif NODE in now.replicas and now.leader not in (NODE, -1) and not stays:
            record.replicas = [each for each in now.replicas if each != NODE]
            record.isr = [each for each in now.isr if each != NODE] or [now.leader]
            record.directories = [UUID(int=0)] * len(record.replicas)
        elif NODE not in now.replicas:
            replicas = [NODE, *now.replicas]
            record.replicas, record.directories = replicas, [UUID(int=0)] * len(replicas)
        return record

    def _elect(self, id: UUID, now: Any) -> None:
        """Let another broker lead; its log may lack the end of the former leader's, also committed records."""
        chance, former = self.chance, self.leading.get(id)
        ours = next((each for each in self.pair.replicas.partitions.values() if each.topic_id == id), None)
        if ours is not None and (now.leader == NODE or former is None):
            source, high_watermark = ours.log, ours.high_watermark
        elif former is not None:
            source, high_watermark = former.log, former.high_watermark
        else:
            source, high_watermark = open_log(), FIRST_OFFSET
        bounds = [*bases_of(source), source.log_end_offset]
        is_clean = chance.random() < 0.7
        end = chance.choice([each for each in bounds if each >= (high_watermark if is_clean else 0)] or bounds[-1:])
        log = open_log()
        start = source.log_start_offset
        for segment in source._segments:
            for batch in segment.batches():
                if batch.header.base_offset < end:
                    log.append_as_follower(bytes(batch.data), self.pair.now)
        log.advance_log_start_offset(min(start, log.log_end_offset))
        if log.log_end_offset < end <= start:
            log.truncate_fully_and_start_at(end, self.pair.now)
        epoch = now.leader_epoch + 1
        log.assign_epoch_start(epoch, log.log_end_offset)
        known = chance.choice([high_watermark, high_watermark, start])
        self.leading[id] = LeadersLog(log, max(log.log_start_offset, min(known, log.log_end_offset)), [])

    # ---- records

    def _records(self, base: Offset) -> list[Record]:
        return [
            Record(base + at, self.pair.now, b"k", b"%d" % self.chance.randrange(100))
            for at in range(self.chance.choice([1, 1, 2, 3]))
        ]

    def _data(self, open: list[ProducerId], base: Offset) -> tuple[bytearray, Origin]:
        """A batch without a producer, of a new transaction, or a marker that ends one."""
        if self.chance.random() < 0.5:
            return build(self._records(base)), Origin.CLIENT
        if open and self.chance.random() < 0.6:
            ended = open.pop(self.chance.randrange(len(open)))
            end = EndTransaction(self.chance.random() < 0.5, FIRST_EPOCH)
            return build_end_transaction(end, ended, ProducerEpoch(0), self.pair.now), Origin.COORDINATOR
        self.producer += 1
        open.append(ProducerId(self.producer))
        producer = BatchProducer(open[-1], ProducerEpoch(0), 0, transactional=True)
        return build(self._records(base), producer=producer), Origin.CLIENT

    def append(self) -> None:
        led = [topic for (topic, _), each in self.pair.replicas.partitions.items() if each.leading is not None]
        if led:
            data, origin = self._data(self.open, FIRST_OFFSET)
            self.pair.append(self.chance.choice(led), data, origin)

    def delete(self) -> None:
        for (topic, _), each in [*self.pair.replicas.partitions.items()]:
            if each.leading is not None:
                ends = [*bases_of(each.log), each.log.log_end_offset]
                deleted = [at for at in ends if at <= each.high_watermark]
                deleted += [Offset(-1)] if each.high_watermark in ends else []  # see above of a stale high watermark
                if deleted:
                    self.pair.delete(topic, self.chance.choice(deleted))

    # ---- the leaders' side

    def round(self) -> None:
        if self.pair.leaders:
            meanwhile = self._meanwhile if self.chance.random() < 0.15 else lambda: None
            self.pair.round(self.chance.choice(self.pair.leaders), self._answer, meanwhile)

    def _meanwhile(self) -> None:
        self.metadata()

    def _answer(self, wanted: dict[str, Wanted], is_full: bool) -> Answer:
        chance = self.chance
        self._may_wait = False
        if chance.random() < 0.04:
            return Answer(None, may_wait=True)
        if chance.random() < 0.03:
            return Answer(FetchResponse(error_code=chance.choice(SESSION_ERRORS)), may_wait=True)
        response, bounds = FetchResponse(session_id=self.session), dict[str, Any]()
        for name, each in wanted.items():
            id = self.pair.image.topics[name].id
            leader = self.leading.get(id)
            if leader is None:
                leader = self.leading[id] = LeadersLog(open_log(), FIRST_OFFSET, [])
            self._go_on(leader, each.leader_epoch)
            bounds[name], self._asked = self._bounds(leader), id
            if is_full or chance.random() < 0.8:
                data = self._partition(leader, each)
                response.responses.append(FetchResponse.FetchableTopicResponse(topic_id=id, partitions=[data]))
        return Answer(response, bounds, self._may_wait)

    def _go_on(self, leader: LeadersLog, epoch: LeaderEpoch) -> None:
        """The leader appends, commits and deletes."""
        chance, log = self.chance, leader.log
        for _ in range(chance.choice([0, 0, 1, 1, 2])):
            base = log.log_end_offset + chance.choice([0] * 9 + [2])
            data, _ = self._data(leader.open, base)
            assign(data, base, max(epoch, log.leader_epoch))
            log.append_as_follower(data, self.pair.now)
        bounds = [each for each in leader.bases() if each >= leader.high_watermark]
        leader.high_watermark = chance.choice([leader.high_watermark, log.log_end_offset, chance.choice(bounds)])
        if chance.random() < 0.1:
            starts = [each for each in leader.bases() if log.log_start_offset <= each <= leader.high_watermark]
            log.advance_log_start_offset(chance.choice(starts or [log.log_start_offset]))
            log.roll(self.pair.now)
            log.delete_old_segments(self.pair.now, leader.high_watermark)

    def _bounds(self, leader: LeadersLog) -> tuple[tuple[int, int], tuple[int, int]]:
        latest = (0, leader.log.log_end_offset)
        earliest = (0, leader.log.log_start_offset)
        error = (int(self.chance.choice(PASSING)), -1)
        drawn = self.chance.random()
        return (error if drawn < 0.1 else latest), (error if drawn > 0.9 else earliest)

    def _partition(self, leader: LeadersLog, wanted: Wanted) -> FetchResponse.PartitionData:
        data = self._read(leader, wanted)
        self._may_wait |= data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        return data

    def _read(self, leader: LeadersLog, wanted: Wanted) -> FetchResponse.PartitionData:
        chance, log = self.chance, leader.log
        data = FetchResponse.PartitionData(
            partition_index=0, records=b"", high_watermark=leader.high_watermark, log_start_offset=log.log_start_offset
        )
        drawn = chance.random()
        if drawn < 0.08:
            data.error_code, data.high_watermark, data.log_start_offset = chance.choice(PASSING), -1, -1
            return data
        if drawn < 0.11:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return data
        epoch, offset = wanted.last_fetched_epoch, wanted.fetch_offset
        if drawn < 0.14:
            self._diverge(data, wanted)
            return data
        if epoch >= 0:
            end = log.end_offset_for_epoch(epoch)
            if end.end_offset < 0:
                data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return data
            if self._is_within_batch(end.end_offset):
                data.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
                return data
            if end.leader_epoch < epoch or end.end_offset < offset:
                data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=end.leader_epoch, end_offset=end.end_offset)
                return data
        if not log.log_start_offset <= offset <= log.log_end_offset:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return data
        records = bytes_of(log.read(offset, chance.choice([1, 100, 1 << 20])).records)
        data.records = self._mangled(records) if drawn > 0.95 else records
        return data

    def _is_within_batch(self, end: int) -> bool:
        """Whether a cut there would divide a batch of ours: Kafka's log then ends at `end`, ours where the batch begins."""
        segments = self._ours().log._segments
        headers = [batch.header for segment in segments for batch in segment.batches()]
        return any(each.base_offset < end <= each.last_offset for each in headers)

    def _ours(self) -> Any:
        return next(each for each in self.pair.replicas.partitions.values() if each.topic_id == self._asked)

    def _diverge(self, data: FetchResponse.PartitionData, wanted: Wanted) -> None:
        """A diverging epoch, whose end is the base offset of a batch of ours, or beyond the log."""
        chance, ours = self.chance, self._ours()
        ends = [each for each in bases_of(ours.log) if each >= ours.log.log_start_offset]
        beyond = max(wanted.fetch_offset, ours.log.log_end_offset) + 3
        end = chance.choice([*ends[-4:], wanted.fetch_offset, beyond])
        data.diverging_epoch = FetchResponse.EpochEndOffset(
            epoch=chance.randint(0, wanted.leader_epoch), end_offset=end
        )
        self._may_wait = True

    def _mangled(self, records: bytes) -> bytes:
        """The batches corrupted, cut off, or with a newer leader epoch."""
        changed = bytearray(records)
        if not changed:
            return records
        self._may_wait = True
        drawn = self.chance.random()
        if drawn < 0.3:
            changed[len(next(iter(read_batches(changed))).data) - 1] ^= 1
        elif drawn < 0.6:
            del changed[-self.chance.randint(1, len(changed)) :]
        else:
            header = next(iter(read_batches(changed))).header
            assign(changed, header.base_offset, header.leader_epoch + 5)
        return bytes(changed)


def drawn(folder: Path, seed: int, steps: int) -> PairedFollowers:
    chance = random.Random(seed)
    pair = PairedFollowers(str(folder / str(seed)))
    DrawnSteps(pair, chance, sessions=seed % 2 == 0).run(steps)
    return pair


def differences(seeds: range, steps: int) -> Iterator[str]:
    """The first differing step of each broker that differs."""
    return kafka_classes.differences(SOURCE, seeds, partial(drawn, steps=steps), first_difference, AT_ONCE)


def first_difference(pair: PairedFollowers, kafkas: list[dict[str, Any]]) -> str | None:
    ids: dict[str, set[str]] = {}
    for number, (step, mine, theirs) in enumerate(zip(pair.steps, pair.ours, kafkas, strict=True)):
        for topic, here in (mine or {}).items():
            if not isinstance(here, dict):
                continue
            there = theirs.get(topic)
            ids.setdefault(topic, set()).add(here["id"])
            if len(ids[topic]) > 1 and there is not None and here["high watermark"] < there["high watermark"]:
                # After a kill Kafka may take the stored one of the deleted topic; ours removes that before it makes the log.
                there["high watermark"] = here["high watermark"]
        unlike = [*_unlike(mine, theirs)] if mine is not None else []
        if unlike:
            return f"step {number}, {step[:200]}: " + "; ".join(unlike)
    return None


def _unlike(mine: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    for name in sorted({*mine, *theirs}):
        here, there = mine.get(name), theirs.get(name)
        if isinstance(here, dict) and isinstance(there, dict):
            yield from (f"{name} {each}" for each in _unlike(here, there))
        elif here != there and not _is_known(name, here, there, mine, theirs):
            yield f"{name}: {here} here, {there} in Kafka"


def _is_known(name: str, here: Any, there: Any, mine: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether two parts of a replica's state differ in a known way."""
    if name == "last stable":
        is_forgotten = there == mine["start"] and mine["producers"] != theirs["producers"]
        return here < there or is_forgotten
    if name == "high watermark":
        return _below(here, mine) == _below(there, mine)
    if name == "epochs":
        return _from(mine["start"], here) == _from(mine["start"], there)
    return name == "producers" and all(int(each.split()[-1]) < mine["start"] for each in {*here} ^ {*there})


def _from(start: int, epochs: list[str]) -> dict[int, str]:
    """Where the leader epochs begin, from the log's start on."""
    rows = [each.split() for each in epochs]
    return {max(int(begin), start): epoch for epoch, begin in rows}


def _below(offset: int, state: dict[str, Any]) -> list[str]:
    """The batches that end before an offset."""
    return [each for each in state["batches"] if int(each.split()[0].split("-")[1]) < offset]


if __name__ == "__main__":
    first_seed, last_seed = map(int, sys.argv[1:])
    for difference in differences(range(first_seed, last_seed), STEPS):
        print(difference)
