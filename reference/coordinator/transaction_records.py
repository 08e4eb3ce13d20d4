"""The records of a transaction coordinator in `__transaction_state`, in Kafka's formats.

A key is the 16-bit record type 0 and the transactional id. A value is a 16-bit version (1 since transaction.version 1)
and the whole state of the id; a null value removes the id. Source:
org.apache.kafka.coordinator.transaction.TransactionLog.
"""

from __future__ import annotations

from reference.coordinator.transaction_state import WRITTEN, State, TopicPartition, Transaction
from reference.protocol.codec import CodecError, decode, encode
from reference.protocol.messages.transaction_log_record import TransactionLogKey, TransactionLogValue
from reference.protocol.primitives import Buffer, TransactionalId

KeyValue = tuple[bytes, bytes | None]
"""One record of the log; a null value is a tombstone."""

HIGHEST_VALUE_VERSION = 1


def transaction_record(transaction: Transaction, version: int) -> KeyValue:
    """The record of a transactional id's state; `version` is the value's, 0 or 1."""
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state is State.EMPTY else _by_topic(transaction),
        transaction_last_update_timestamp_ms=transaction.updated_at,
        transaction_start_timestamp_ms=transaction.started_at,
    )
    if version >= 1:
        value.client_transaction_version = transaction.client_version
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
    return _key(transaction.id), version.to_bytes(2, "big") + encode(value, version)


def transaction_tombstone(id: TransactionalId) -> KeyValue:
    return _key(id), None


def _key(id: TransactionalId) -> bytes:
    return TransactionLogKey.KEY.to_bytes(2, "big") + encode(TransactionLogKey(transactional_id=id), 0)


def _by_topic(transaction: Transaction) -> list[TransactionLogValue.PartitionsSchema]:
    found: dict[str, list[int]] = {}
    for partition in sorted(transaction.partitions):
        found.setdefault(partition.topic, []).append(partition.partition)
    return [TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in found.items()]


def decode_key(key: Buffer) -> TransactionalId:
    """Errors: CodecError for a key of another record type."""
    if int.from_bytes(key[:2], "big") != TransactionLogKey.KEY or len(key) < 2:
        raise CodecError(f"a record of type {int.from_bytes(key[:2], 'big')} in the transaction log")
    return decode(TransactionLogKey, 0, key[2:]).transactional_id


def decode_value(id: TransactionalId, value: Buffer) -> Transaction:
    """Errors: CodecError for an unknown version, or for a state that is undefined or never written."""
    version = int.from_bytes(value[:2], "big")
    if len(value) < 2 or version > HIGHEST_VALUE_VERSION:
        raise CodecError(f"a transaction's state in version {version}")
    fields = decode(TransactionLogValue, version, value[2:])
    if fields.transaction_status not in WRITTEN:
        raise CodecError(f"a transaction in state {fields.transaction_status}")
    state = State(fields.transaction_status)
    return Transaction(
        id=id,
        producer_id=fields.producer_id,
        epoch=fields.producer_epoch,
        timeout_ms=fields.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(each.topic, index)
            for each in fields.transaction_partitions or ()
            for index in each.partition_ids
        ),
        started_at=fields.transaction_start_timestamp_ms,
        updated_at=fields.transaction_last_update_timestamp_ms,
        previous_producer_id=fields.previous_producer_id,
        next_producer_id=fields.next_producer_id,
        client_version=fields.client_transaction_version,
    )
