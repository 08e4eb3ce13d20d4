"""Drawn steps of a partition, for ours and for Apache Kafka's `Partition`, and their differences.

Not drawn, because the two are known to differ there, and ours is the safer one:
- A proposal's outcome and the record of it come together. Until the record is replayed, ours counts a removed replica; Kafka does
  not, and a record that comes late makes it forget a later proposal that is in flight.
- A leader is elected again only after another one: Kafka keeps followers' progress otherwise, ours asks for one more fetch.
- The ISR shrinks by one member at a time: of several that lag, Kafka removes all at once.
- When a proposal is refused the high watermark advances: Kafka's does at the next fetch, append or record.
- The largest timestamp is not that of a deleted record; in Kafka it is while the record's segment is kept.
- A log that begins within a batch (DeleteRecords) has high watermark and last stable offset there; Kafka's can be the batch's begin,
  which is why a pair is no longer compared from then on (`is_comparable`).
- A follower forgets the epoch of a leadership without records, and Kafka's keeps it, so that consumers may name it.
- The aborted transactions of a fetch are compared as far as its records go: both name more, and not the same ones.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import (
    FIRST_EPOCH,
    FIRST_OFFSET,
    NO_EPOCH,
    NO_NODE,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    ProducerEpoch,
    ProducerId,
)
from reference.protocol.records.batch import BatchProducer, assign, build, read_batches
from reference.protocol.records.control import EndTransaction, build_end_transaction
from reference.protocol.records.record import Record
from reference.protocol.records.validate import Origin
from reference.replication.partition_state import Peer
from reference.replication.proposal import AcceptedIsr
from reference.replication.reading import FollowerFetch
from tests import kafka_classes
from tests.replication.paired_partition import ISOLATIONS, NODE, OTHERS, SOURCE, PairedPartition
from tests.replication.replicas import incarnation, state

STEPS = 150
AT_ONCE = 100
"""The number of partitions in one process of Kafka's."""

REFUSED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
SAYS_NOTHING = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR)
STALE = (
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_REQUEST,
)


class DrawnSteps:
    """Random steps: decisions of the controller, and requests of clients and brokers. With `transacts` no log is cut, because
    a cut makes Kafka forget which markers are above the high watermark, and no log begins within a batch."""

    def __init__(self, pair: PairedPartition, chance: random.Random, *, transacts: bool) -> None:
        self.pair, self.chance, self.transacts = pair, chance, transacts
        self.truth = state(chance.choice([NODE, NODE, 2]))
        self.decided: dict[int, AcceptedIsr] = {}
        """Proposal id -> the outcome of an accepted proposal whose response is late."""
        self.producer = 0
        self.open: list[ProducerId] = []

    def run(self, count: int) -> None:
        self.pair.take_up(self.truth)
        for _ in range(count):
            self.pair.now += self.chance.choice([0, 1, 100, 100, 1_000, 6_000])
            self.step()

    def step(self) -> None:
        leads = self.pair.partition.leading is not None
        weighted = [
            (8, self.append if leads or self.chance.random() < 0.1 else self.take),
            (16 if leads else 1, self.follower_fetch),
            (4, self.consumer_fetch),
            (10 if self.pair.proposals else 0, self.answer),
            (3 if leads else 0.2, self.shrink),
            (2 if leads else 0.3, self.find),
            (2 if leads else 0.3, self.end_of_epoch),
            (1 if leads else 0.2, self.delete),
            (3 if leads else 0.3, self.acknowledge),
            (1, self.change_state),
            (0.7, self.change_broker),
            (0.3, lambda: self.pair.configure(self.chance.choice([1, 2, 2, 3]))),
            (0 if leads or self.transacts else 2, self.cut),
        ]
        self.chance.choices([each for _, each in weighted], [weight for weight, _ in weighted])[0]()

    # ---- metadata

    def change_state(self) -> None:
        old, chance = self.truth, self.chance
        new = replace(old, partition_epoch=old.partition_epoch + 1)
        drawn = chance.random()
        if drawn < 0.55:
            candidates = [each for each in old.isr if each != old.leader] or [NodeId(old.leader % 3 + 1)]
            leader: NodeId = chance.choice([*candidates, *([NODE] * 3 if NODE in candidates else []), NO_NODE])
            isr = old.isr if chance.random() < 0.6 else tuple(each for each in old.isr if each != old.leader)
            new = replace(new, leader=leader, leader_epoch=old.leader_epoch + chance.choice([1, 1, 2]))
            new = replace(new, isr=isr if leader in isr or (leader < 0 and isr) else (*isr, max(leader, NODE)))
            if chance.random() < 0.3:
                new = replace(new, isr=(max(leader, NODE),))
            if not {*new.isr} <= {*new.replicas}:
                new = replace(new, replicas=tuple(sorted({*new.replicas, *new.isr})))
        elif drawn < 0.75:
            leaves = [each for each in old.isr if each not in (old.leader, NODE)]
            if not leaves:
                return
            gone = chance.choice(leaves)
            new = replace(new, isr=tuple(each for each in old.isr if each != gone))
        elif 4 not in old.replicas:
            new = replace(new, replicas=(*old.replicas, 4), adding=(4,))
        else:
            removed = 4 if 4 not in old.isr and old.leader != 4 else 0
            new = replace(new, replicas=tuple(each for each in old.replicas if each != removed), adding=())
        self.truth = new
        if chance.random() < 0.9 or new.leader_epoch != old.leader_epoch:
            self.pair.take_up(new)

    def change_broker(self) -> None:
        node, chance = self.chance.choice(OTHERS), self.chance
        peer = self.pair.registry(node)
        if peer is None or chance.random() < 0.3:
            epoch = incarnation(node) if peer is None or peer.broker_epoch is None else peer.broker_epoch
            self.pair.register(node, Peer(BrokerEpoch(epoch + chance.choice([0, 10]))))
        elif chance.random() < 0.2:
            self.pair.register(node, None)
        else:
            self.pair.register(node, peer._replace(**{chance.choice(["is_fenced", "is_shutting_down"]): True}))

    def answer(self) -> None:
        pair, chance = self.pair, self.chance
        if not pair.proposals:
            return
        proposal, truth = pair.proposals[0], self.truth
        late = self.decided.pop(id(proposal), None)
        if late is not None:
            pair.answer(ErrorCode.NONE, late)
            return
        if (proposal.leader_epoch, proposal.partition_epoch) != (truth.leader_epoch, truth.partition_epoch):
            pair.answer(chance.choice([*STALE, *STALE, *SAYS_NOTHING]))
            return
        drawn = chance.random()
        if drawn < 0.15:
            pair.answer(chance.choice(SAYS_NOTHING))
        elif drawn < 0.3:
            pair.answer(chance.choice(REFUSED), is_compared=False)
            pair.take_up(truth)
        elif drawn < 0.35:
            stale = AcceptedIsr(
                LeaderEpoch(truth.leader_epoch - chance.choice([0, 1])),
                PartitionEpoch(truth.partition_epoch - 1),
                proposal.isr,
            )
            pair.answer(ErrorCode.NONE, stale)
        elif drawn < 0.45:
            pair.answer(chance.choice(STALE))
        else:
            self.truth = replace(truth, isr=proposal.isr, partition_epoch=truth.partition_epoch + 1)
            accepted = AcceptedIsr(truth.leader_epoch, self.truth.partition_epoch, proposal.isr)
            if chance.random() < 0.5:
                pair.answer(ErrorCode.NONE, accepted, is_compared=False)
                pair.take_up(self.truth)
            else:
                self.decided[id(proposal)] = accepted
                pair.take_up(self.truth)

    def shrink(self) -> None:
        if len(self.pair.lagging()) <= 1:
            self.pair.shrink()

    # ---- records

    def _records(self, base: Offset) -> list[Record]:
        chance = self.chance
        return [
            Record(base + at, self.pair.now + chance.choice([0, 0, 5, -5]), b"k", b"v")
            for at in range(chance.choice([1, 1, 2, 3]))
        ]

    def _data(self, base: Offset) -> tuple[bytearray, Origin]:
        """A batch without a producer, of a new transaction, or a marker that ends one."""
        if not self.transacts or self.chance.random() < 0.5:
            return build(self._records(base)), Origin.CLIENT
        if self.open and self.chance.random() < 0.6:
            ended = self.open.pop(self.chance.randrange(len(self.open)))
            end = EndTransaction(self.chance.random() < 0.5, FIRST_EPOCH)
            return build_end_transaction(end, ended, ProducerEpoch(0), self.pair.now), Origin.COORDINATOR
        self.producer += 1
        self.open.append(ProducerId(self.producer))
        producer = BatchProducer(self.open[-1], ProducerEpoch(0), 0, transactional=True)
        return build(self._records(base), producer=producer), Origin.CLIENT

    def append(self) -> None:
        data, origin = self._data(FIRST_OFFSET)
        self.pair.append(data, self.chance.choice([-1, -1, 1, 0]), origin)

    def take(self) -> None:
        partition, chance = self.pair.partition, self.chance
        if partition.state.leader < 0:
            return
        at, epoch = partition.log.log_end_offset, partition.log.leader_epoch
        bounds, sent = [*self._bases(), at], bytearray()
        for _ in range(chance.choice([0, 1, 1, 2])):
            data, _ = self._data(at)
            epoch = max(epoch, partition.leader_epoch - chance.choice([0, 0, 0, 1, 2])) + (chance.random() < 0.05)
            assign(data, at, LeaderEpoch(epoch))
            at = next(iter(read_batches(data))).header.last_offset + 1
            bounds.append(at)
            sent += data
        high_watermark = chance.choice([at, at + 3, chance.choice(bounds), partition.high_watermark])
        most = min(high_watermark, partition.log.log_end_offset)
        starts = [0, 0, partition.log.log_start_offset, self._place(0, most, [each for each in bounds if each <= most])]
        start = chance.choice([each for each in starts if each <= max(most, partition.log.log_start_offset)])
        self.pair.take(bytes(sent), high_watermark, start)

    def _place(self, least: int, most: int, bounds: Sequence[int]) -> int:
        """An offset; with transactions the base offset of a batch."""
        return self.chance.choice([0, *bounds]) if self.transacts else self.chance.randint(least, max(least, most))

    def _bases(self) -> list[Offset]:
        segments = self.pair.partition.log._segments
        return [batch.header.base_offset for segment in segments for batch in segment.batches()]

    def cut(self) -> None:
        log, chance = self.pair.partition.log, self.chance
        if chance.random() < 0.1:
            self.pair.start_over(log.log_end_offset + chance.choice([1, 5]))
            return
        ends = [each for each in self._bases()[-4:] if each >= log.log_start_offset]
        if ends:
            self.pair.truncate(chance.choice(ends))

    # ---- requests

    def _epoch(self) -> LeaderEpoch:
        epoch = self.pair.partition.leader_epoch
        return LeaderEpoch(self.chance.choice([epoch] * 14 + [-1, -1, epoch - 1, epoch + 1]))

    def _offset(self) -> int:
        log, chance = self.pair.partition.log, self.chance
        start, end = log.log_start_offset, log.log_end_offset
        return chance.choice(
            [
                *[end] * 6,
                self.pair.partition.high_watermark,
                *(chance.randint(start, end) for _ in range(3)),
                start - 1,
                end + 1,
            ]
        )

    def _last_epoch(self, offset: Offset) -> LeaderEpoch:
        log, chance = self.pair.partition.log, self.chance
        right = log.epoch_at(max(FIRST_OFFSET, offset - 1))
        if self.pair.partition.leading is None:
            return chance.choice([right, right, NO_EPOCH, self.pair.partition.leader_epoch + 1])
        return LeaderEpoch(chance.choice([right] * 16 + [-1, -1, right - 1, right + 1, chance.randint(0, 9)]))

    def follower_fetch(self) -> None:
        chance, offset = self.chance, Offset(max(0, self._offset()))
        follower = chance.choice([2, 2, 2, 3, 3, 3, 4, 4, 5])
        peer = self.pair.registry(follower)
        registered = peer.broker_epoch if peer is not None and peer.broker_epoch is not None else incarnation(follower)
        start = self.pair.partition.log.log_start_offset
        asked = FollowerFetch(
            NodeId(follower),
            BrokerEpoch(chance.choice([registered] * 12 + [-1, registered - 10, registered + 10])),
            offset,
            self._last_epoch(offset),
            self._epoch(),
            1 << 20,
            True,
            Offset(chance.choice([start, start, 0, chance.randint(0, start)])),
        )
        self.pair.follower_fetch(asked, counts=chance.random() < 0.9)

    def consumer_fetch(self) -> None:
        chance, offset = self.chance, Offset(max(0, self._offset()))
        last_epoch = chance.choice([NO_EPOCH, NO_EPOCH, self._last_epoch(offset)])
        self.pair.consumer_fetch(
            offset, self._epoch(), last_epoch, committed=chance.random() < 0.5, from_any=chance.random() < 0.7
        )

    def find(self) -> None:
        timestamp = self.chance.choice(
            [-1, -1, -2, -3, -4, self.pair.now, self.pair.now - self.chance.randrange(60_000)]
        )
        if timestamp == -3 and self._bases()[:1] < [self.pair.partition.log.log_start_offset]:
            return
        self.pair.find(timestamp, self.chance.choice([*ISOLATIONS]), self._epoch())

    def end_of_epoch(self) -> None:
        current = self.pair.partition.leader_epoch
        self.pair.end_of_epoch(self._epoch(), self.chance.choice([current, self.chance.randint(0, current + 1)]))

    def delete(self) -> None:
        log, chance = self.pair.partition.log, self.chance
        high_watermark = self.pair.partition.high_watermark
        place = self._place(0, log.log_end_offset + 1, self._bases())
        self.pair.delete(chance.choice([-1, -2, high_watermark, place]))

    def acknowledge(self) -> None:
        end = self.pair.partition.log.log_end_offset
        self.pair.acknowledge(self.chance.choice([end, self.chance.randint(0, end)]))


def drawn(seed: int, steps: int) -> PairedPartition:
    chance = random.Random(seed)
    pair = PairedPartition(f"t{seed}", chance.choice([1, 2, 2, 3]))
    DrawnSteps(pair, chance, transacts=seed % 3 == 0).run(steps)
    return pair


def is_comparable(state: dict[str, Any]) -> bool:
    """Whether neither the high watermark nor the last stable offset is a log start offset within a batch."""
    bases = [int(each.split("-")[0]) for each in state["batches"]]
    is_whole = state["start"] in (*bases, state["end"])
    return is_whole or state["start"] not in (state["high watermark"], state["last stable"])


def differences(seeds: range, steps: int) -> Iterator[str]:
    """The first differing step of each pair of partitions that differs."""
    return kafka_classes.differences(SOURCE, seeds, lambda _, seed: drawn(seed, steps), first_difference, AT_ONCE)


def first_difference(pair: PairedPartition, kafkas: list[dict[str, Any]]) -> str | None:
    for number, (step, mine, theirs) in enumerate(zip(pair.steps, pair.ours, kafkas, strict=True)):
        if mine is None:
            continue
        if not is_comparable(mine):
            return None
        unlike = [
            f"{name}: {value} here, {theirs.get(name)} in Kafka"
            for name, value in mine.items()
            if value != theirs.get(name)
        ]
        if unlike:
            return f"step {number}, {step[:400]}: " + "; ".join(unlike)
    return None


if __name__ == "__main__":
    first_seed, last_seed = map(int, sys.argv[1:])
    for difference in differences(range(first_seed, last_seed), STEPS):
        print(difference)
