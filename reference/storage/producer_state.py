"""The state of a partition's idempotent and transactional producers (KIP-98), and its `.snapshot` files.

Of each producer: its epoch, its last five batches (to detect duplicates), and where its open transaction began. The state is a
function of the log. A snapshot is written when a segment rolls and at a clean shutdown, so that a start need not read the whole
log again. It holds only the last batch of each producer.

The last stable offset is where the oldest undecided transaction begins. A transaction counts as undecided until the high
watermark has passed its marker: until then a new leader may lack the marker, and the transaction is open there.
"""

from __future__ import annotations

import struct
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from reference.protocol.checksum import crc32c
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import (
    FIRST_OFFSET,
    NO_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TimestampMs,
)
from reference.protocol.records.batch import (
    CONTROL,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    add_to_sequence,
    records_of,
)
from reference.protocol.records.control import EndTransaction, read_end_transaction
from reference.protocol.records.validate import Origin
from reference.storage.disk import Disk
from reference.storage.errors import CorruptFile, RefusedByProducerState
from reference.storage.last_stable import NOTHING_OPEN, first_unstable_offset
from reference.storage.sequence_check import check_sequence
from reference.storage.transaction_index import AbortedTransaction
from reference.storage.verification import NOT_REQUIRED, Guard, Verification, Verifications

LAST_EPOCH = ProducerEpoch((1 << 15) - 1)
"""The greatest epoch of a producer: no marker has a greater one."""
CACHED_BATCHES = 5
"""How many batches of a producer are kept to detect duplicates; it may have as many in flight."""
SNAPSHOT_SUFFIX = ".snapshot"
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class CachedBatch(NamedTuple):
    """A recent batch, kept to detect its duplicates."""

    first_sequence: Sequence
    last_sequence: Sequence
    first_offset: Offset
    last_offset: Offset
    timestamp: TimestampMs


class Producer:
    """One producer id in one partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "transaction_start")

    def __init__(self, epoch: ProducerEpoch = NO_PRODUCER_EPOCH) -> None:
        self.epoch = epoch
        self.batches: list[CachedBatch] = []
        """The last CACHED_BATCHES. A deque would take 600 bytes: most of the memory of a producer that wrote one batch."""
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = NO_EPOCH
        self.transaction_start = NO_OFFSET
        """First offset of the open transaction; -1 when none is open."""

    @property
    def last_sequence(self) -> Sequence:
        """Sequence number of the last record of this epoch; -1 when none is remembered."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerState:
    """All producers of one partition, up to `end_offset` of its log."""

    def __init__(self, disk: Disk, folder: Path, end_offset: Offset = FIRST_OFFSET) -> None:
        self._disk = disk
        self._folder = folder
        self.producers: dict[ProducerId, Producer] = {}
        self.verifications = Verifications()
        self.end_offset = end_offset
        self._ongoing: OrderedDict[Offset, ProducerId] = OrderedDict()
        """Open transactions by first offset, oldest first."""
        self._undecided: deque[tuple[Offset, Offset]] = deque()
        """First offset and marker of ended transactions, in the order of their markers. Those with a marker below the high
        watermark are removed when the first unstable offset is asked for."""

    # ---- checks, before an append

    def find_duplicate(self, header: BatchHeader) -> CachedBatch | None:
        """The batch that this one repeats: same producer, epoch and sequence numbers, one of the last five."""
        producer = self.producers.get(header.producer_id)
        # Another epoch counts its sequence numbers from the start again: equal numbers are other records then.
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in producer.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def has_open_transaction(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Whether a producer has written in this epoch within a transaction that is not ended here."""
        producer = self.producers.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer.transaction_start >= 0

    def begin_verification(
        self, producer_id: ProducerId, epoch: ProducerEpoch, sequence: Sequence, adds_partition: bool, now: TimestampMs
    ) -> Guard | None:
        """The guard for a request to the coordinator; None where the transaction is open here already.

        Errors: RefusedByProducerState INVALID_PRODUCER_EPOCH.
        """
        producer = self.producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise RefusedByProducerState(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {producer_id} is fenced: {producer.epoch} was seen",
            )
        if self.has_open_transaction(producer_id, epoch):
            return None
        return self.verifications.begin(producer_id, epoch, sequence, adds_partition, now)

    def check_opening(self, header: BatchHeader, guard: Guard | None) -> None:
        """Check that a transactional batch that opens a transaction was verified (TXN-16). Errors: RefusedByProducerState."""
        if self.has_open_transaction(header.producer_id, header.producer_epoch):
            return
        asked = self.verifications.of(header.producer_id)
        # The guard itself, not an equal one: a marker ends the verification, and a batch that was verified before it is too
        # late (KIP-890).
        if guard is not NOT_REQUIRED and (asked is None or asked.guard is not guard):
            producer = self.producers.get(header.producer_id)
            if producer is not None and header.producer_epoch < producer.epoch:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
                raise RefusedByProducerState(code, _why(code, header, producer))
            raise RefusedByProducerState(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def _check_first_sequence(self, header: BatchHeader, asked: Verification) -> None:
        """Refuse a client's batch, transactional or not, that overtakes an earlier one under verification.

        Source: org.apache.kafka.storage.internals.log.ProducerAppendInfo, `checkSequence`.
        """
        is_unknown = header.producer_id not in self.producers
        if header.base_sequence > asked.lowest_sequence or (
            asked.adds_partition and is_unknown and header.base_sequence != 0
        ):
            raise RefusedByProducerState(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence number {header.base_sequence} of producer {header.producer_id} is not the transaction's first",
            )

    def check_data(self, header: BatchHeader, origin: Origin) -> None:
        """Check that a data batch may be appended. Errors: RefusedByProducerState."""
        producer = self.producers.get(header.producer_id)
        asked = self.verifications.of(header.producer_id) if origin is Origin.CLIENT else None
        if asked is not None and (producer is None or header.producer_epoch >= producer.epoch):
            self._check_first_sequence(header, asked)
        if producer is None:
            return
        code = ErrorCode.NONE
        if origin is Origin.CLIENT:
            code = check_sequence(producer.epoch, producer.last_sequence, header.producer_epoch, header.base_sequence)
        # A coordinator's own batches have no sequence numbers; only their epoch can be fenced.
        elif header.producer_epoch < producer.epoch:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        if code is not ErrorCode.NONE:
            raise RefusedByProducerState(code, _why(code, header, producer))
        if producer.transaction_start >= 0 and not header.attributes & TRANSACTIONAL:
            raise RefusedByProducerState(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} wrote outside of its open transaction",
            )

    def check_marker(self, header: BatchHeader, marker: EndTransaction, transaction_version: int) -> None:
        """Check that a marker may be appended; with `transaction_version` 2 each bumps the epoch (KIP-890).

        Errors: RefusedByProducerState.
        """
        producer = self.producers.get(header.producer_id)
        if producer is None:
            if header.producer_epoch < NO_PRODUCER_EPOCH:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
                raise RefusedByProducerState(code, f"a marker of epoch {header.producer_epoch}")
            return
        # The coordinator sends a marker again when the response was lost: a refused one it would send for ever. So would it the
        # marker of a transaction in the last epoch, which an older broker may have begun. Kafka 4.3.1 accepts it too.
        is_expected = producer.transaction_start < 0 or producer.epoch == LAST_EPOCH
        repeats = header.producer_epoch == producer.epoch and is_expected
        if header.producer_epoch < producer.epoch or (
            transaction_version >= 2 and header.producer_epoch == producer.epoch and not repeats
        ):
            code = ErrorCode.INVALID_PRODUCER_EPOCH
            raise RefusedByProducerState(code, _why(code, header, producer))
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise RefusedByProducerState(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker of coordinator epoch {marker.coordinator_epoch} after one of {producer.coordinator_epoch}",
            )

    # ---- effects of an append

    def aborted_by(self, header: BatchHeader, marker: EndTransaction, offset: Offset) -> AbortedTransaction | None:
        """The transaction that a marker at this offset aborts, if any. Call it before the marker is appended."""
        producer = self.producers.get(header.producer_id)
        if marker.committed or producer is None or producer.transaction_start < 0:
            return None
        start = producer.transaction_start
        # The entry has the last stable offset after this transaction is decided: its own start no longer counts.
        others = (other for other in self._ongoing if other != start)
        return AbortedTransaction(header.producer_id, start, offset, next(others, offset + 1))

    def append(
        self, header: BatchHeader, marker: EndTransaction | None, first_offset: Offset, max_timestamp: TimestampMs
    ) -> None:
        """Apply a batch that was written; `marker` is its marker, if it has one."""
        self.end_offset = first_offset + header.last_offset_delta + 1
        if header.producer_id <= NO_PRODUCER_ID:
            return
        if header.attributes & TRANSACTIONAL:
            self.verifications.appended(header.producer_id, header.producer_epoch, marker is not None)
        if marker is not None:
            self._append_marker(header, marker, first_offset, max_timestamp)
        elif not header.attributes & CONTROL:
            self._append_data(header, first_offset, max_timestamp)

    def _append_data(self, header: BatchHeader, first_offset: Offset, max_timestamp: TimestampMs) -> None:
        producer = self.producers.get(header.producer_id)
        if producer is None:
            producer = self.producers[header.producer_id] = Producer(header.producer_epoch)
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        last_offset = first_offset + header.last_offset_delta
        if len(producer.batches) == CACHED_BATCHES:
            del producer.batches[0]
        producer.batches.append(
            CachedBatch(header.base_sequence, header.last_sequence, first_offset, last_offset, max_timestamp)
        )
        producer.last_timestamp = max_timestamp
        if header.attributes & TRANSACTIONAL and producer.transaction_start < 0:
            producer.transaction_start = first_offset
            self._ongoing[first_offset] = header.producer_id

    def _append_marker(
        self, header: BatchHeader, marker: EndTransaction, offset: Offset, timestamp: TimestampMs
    ) -> None:
        producer = self.producers.setdefault(header.producer_id, Producer())
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = timestamp
        start, producer.transaction_start = producer.transaction_start, NO_OFFSET
        if start >= 0:
            self._ongoing.pop(start, None)
            # Not stable yet: until the marker is below the high watermark a next leader may not have it, and the
            # transaction is open there.
            self._undecided.append((start, offset))

    # ---- questions

    @property
    def has_transactions(self) -> bool:
        """Whether some transaction may be undecided."""
        return bool(self._ongoing or self._undecided)

    def first_unstable_offset(self, high_watermark: Offset) -> Offset:
        """The start of the oldest transaction that is open, or has its marker at or above the high watermark; else -1."""
        undecided = self._undecided
        while undecided and undecided[0][1] < high_watermark:
            undecided.popleft()
        oldest_undecided = min(undecided)[0] if undecided else NOTHING_OPEN
        return first_unstable_offset(next(iter(self._ongoing), NOTHING_OPEN), oldest_undecided)

    # ---- upkeep

    def expire(self, now: TimestampMs, expiration_ms: int) -> None:
        """Forget producers that wrote nothing for so long and have no open transaction (IDM-13)."""
        for producer_id, producer in list(self.producers.items()):
            # An open transaction keeps its producer: without it a marker would end nothing, and the last stable offset hang.
            if producer.transaction_start < 0 and now - producer.last_timestamp >= expiration_ms:
                del self.producers[producer_id]
        self.verifications.expire(now, expiration_ms)

    def clear(self, end_offset: Offset) -> None:
        """Forget everything; the log goes on from `end_offset`."""
        self.producers.clear()
        self._ongoing.clear()
        self._undecided.clear()
        self.end_offset = end_offset

    # ---- snapshots

    def snapshot_path(self, offset: Offset) -> Path:
        """The file that holds the state up to this offset."""
        return self._folder / f"{offset:020d}{SNAPSHOT_SUFFIX}"

    def snapshot_offsets(self) -> list[Offset]:
        """Offsets of the snapshots on disk, ascending."""
        return snapshots_of(self._disk.list_folder(self._folder))

    def take_snapshot(self) -> None:
        """Write the snapshot of `end_offset`, in place of an older one of that offset. Errors: OSError."""
        self._disk.write_file(self.snapshot_path(self.end_offset), _written_snapshot(self.producers.items()))

    def load(self, log_start: Offset, log_end: Offset) -> None:
        """Load the newest valid snapshot within the log; the caller replays the log from `end_offset` on.

        Snapshots do not contain undecided transactions: those with a marker below the snapshot's offset are kept.
        """
        undecided = list(self._undecided)
        self.clear(log_start)
        for offset in reversed(self.snapshot_offsets()):
            if not log_start <= offset <= log_end:
                continue
            try:
                loaded = dict(_read_snapshot(self._disk.read_file(self.snapshot_path(offset))))
            # A damaged snapshot costs a longer replay and nothing else: all that it says is in the log's batches.
            except CorruptFile:
                self.remove_snapshot(offset)
                continue
            self.producers = loaded
            started = sorted((p.transaction_start, i) for i, p in loaded.items() if p.transaction_start >= 0)
            self._ongoing = OrderedDict(started)
            self.end_offset = offset
            break
        self._undecided.extend((start, marker) for start, marker in undecided if marker < self.end_offset)

    def remove_snapshot(self, offset: Offset) -> None:
        """Remove one snapshot, if it is there."""
        self._disk.remove(self.snapshot_path(offset))


def snapshots_of(names: list[str]) -> list[Offset]:
    """Offsets of the snapshots among the files of a log's folder, ascending."""
    return [Offset(int(name[: -len(SNAPSHOT_SUFFIX)])) for name in names if name.endswith(SNAPSHOT_SUFFIX)]


def marker_of(header: BatchHeader, batch: memoryview) -> EndTransaction | None:
    """The marker of a producer's control batch; None where compaction has removed it. Errors: RecordsError."""
    if header.producer_id <= NO_PRODUCER_ID or not header.attributes & CONTROL:
        return None
    record = next(records_of(batch), None)
    return None if record is None else read_end_transaction(record)


def _why(code: ErrorCode, header: BatchHeader, producer: Producer) -> str:
    if code is ErrorCode.INVALID_PRODUCER_EPOCH:
        return f"epoch {header.producer_epoch} of producer {header.producer_id} is fenced: {producer.epoch} was seen"
    return (
        f"sequence number {header.base_sequence} (epoch {header.producer_epoch}) of producer {header.producer_id} does "
        f"not follow {producer.last_sequence} (epoch {producer.epoch})"
    )


def _written_snapshot(producers: Iterable[tuple[ProducerId, Producer]]) -> bytes:
    """Encode a snapshot: version 1, checksum of the rest, number of producers, the last batch of each."""
    entries: list[bytes] = []
    for producer_id, producer in producers:
        last = producer.batches[-1] if producer.batches else None
        entries.append(
            _SNAPSHOT_ENTRY.pack(
                producer_id,
                producer.epoch,
                last.last_sequence if last else NO_SEQUENCE,
                last.last_offset if last else -1,
                last.last_offset - last.first_offset if last else 0,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
        )
    body = struct.pack(">i", len(entries)) + b"".join(entries)
    return struct.pack(">hI", 1, crc32c(body)) + body


def _read_snapshot(data: bytes) -> Iterator[tuple[ProducerId, Producer]]:
    """Errors: CorruptFile."""
    if len(data) < _SNAPSHOT_HEADER.size:
        raise CorruptFile(f"a producer snapshot of {len(data)} bytes")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != 1 or crc != crc32c(memoryview(data)[6:]):
        raise CorruptFile("a producer snapshot of another version, or with a wrong checksum")
    if len(data) != _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size:
        raise CorruptFile(f"a producer snapshot of {len(data)} bytes for {count} producers")
    for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEADER.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, start = fields
        producer = Producer(epoch)
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_start = start
        if last_offset >= 0:
            first_sequence = add_to_sequence(last_sequence, -delta) if last_sequence >= 0 else NO_SEQUENCE
            batch = CachedBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
            producer.batches.append(batch)
        yield producer_id, producer
