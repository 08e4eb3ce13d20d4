"""The state of an idempotent or transactional producer: its identity, and each partition's next sequence number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from linearizability.client.requests import (
    Committed,
    TopicPartition,
    by_topic,
    produce_request,
    transactional_commit_request,
)
from reference.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.end_txn import EndTxnRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from reference.protocol.primitives import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Buffer, ProducerEpoch, ProducerId
from reference.protocol.records.batch import BatchProducer, build
from reference.protocol.records.record import Record

TRANSACTION_TIMEOUT_MS = 60_000

Identity = tuple[int, int]
"""Producer id and epoch, as a client sends them, also ones that no broker assigned."""
NO_PRODUCER: Identity = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(slots=True)
class ProducerSession:
    """A producer's session. A request can be made in another identity than the session's, as a zombie makes it."""

    transactional_id: str | None = None
    identity: Identity = NO_PRODUCER
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    sequences: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    """The sequence number of the next record."""

    @property
    def has_identity(self) -> bool:
        return self.identity != NO_PRODUCER

    def begin(self, identity: Identity = NO_PRODUCER) -> InitProducerIdRequest:
        """Ask for a producer id; with an identity, for its next epoch (KIP-360)."""
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=identity[0],
            producer_epoch=identity[1],
        )

    def become(self, producer_id: int, epoch: int) -> None:
        """Take an identity; in another one than before all sequences begin again."""
        if self.identity != (producer_id, epoch):
            self.identity, self.sequences = (producer_id, epoch), {}

    # ---- records

    def batch(self, partition: TopicPartition, records: Sequence[Record], **options: Any) -> bytearray:
        """The next records of a partition; it is the same batch until `appended` is called."""
        id, epoch = ProducerId(self.identity[0]), ProducerEpoch(self.identity[1])
        is_transactional = self.transactional_id is not None
        producer = BatchProducer(id, epoch, self.sequences.get(partition, 0), is_transactional)
        return build(records, producer=producer, **options)

    def produce(self, batches: Mapping[TopicPartition, Buffer | None], timeout_ms: int) -> ProduceRequest:
        """Produce with acks=all."""
        return produce_request(batches, timeout_ms=timeout_ms, transactional_id=self.transactional_id)

    def appended(self, partition: TopicPartition, count: int) -> None:
        """Advance a partition's sequence number by its acknowledged records."""
        self.sequences[partition] = self.sequences.get(partition, 0) + count

    # ---- transactions

    def add_partitions(
        self, partitions: Iterable[TopicPartition], identity: Identity | None = None
    ) -> AddPartitionsToTxnRequest:
        """AddPartitionsToTxn, below version 4."""
        producer_id, epoch = identity or self.identity
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic(name=name, partitions=indexes) for name, indexes in by_topic(partitions)],
        )

    def add_offsets(self, group: str, identity: Identity | None = None) -> AddOffsetsToTxnRequest:
        """AddOffsetsToTxn."""
        producer_id, epoch = identity or self.identity
        return AddOffsetsToTxnRequest(
            transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, group_id=group
        )

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, Committed | int],
        identity: Identity | None = None,
        **options: Any,
    ) -> TxnOffsetCommitRequest:
        """TxnOffsetCommit; the options are those of `transactional_commit_request`."""
        return transactional_commit_request(self._id, identity or self.identity, group, offsets, **options)

    def end(self, committed: bool, identity: Identity | None = None) -> EndTxnRequest:
        """EndTxn."""
        producer_id, epoch = identity or self.identity
        return EndTxnRequest(
            transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=committed
        )

    @property
    def _id(self) -> str:
        assert self.transactional_id is not None
        return self.transactional_id
