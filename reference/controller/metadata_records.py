"""The encoding of a metadata record in `__cluster_metadata`: a frame version, its type, its version, its fields.

Source: KIP-631; org.apache.kafka.server.common.serialization.AbstractApiMessageSerde.
"""

from __future__ import annotations

from bisect import bisect_right

from reference.controller.carried import ENDS, STATES, UnknownRecord
from reference.protocol.codec import CodecError, decode_from, encode
from reference.protocol.codec_writer import read_varint, write_varint
from reference.protocol.messages.abort_transaction_record import AbortTransactionRecord
from reference.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from reference.protocol.messages.begin_transaction_record import BeginTransactionRecord
from reference.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from reference.protocol.messages.clear_elr_record import ClearElrRecord
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.end_transaction_record import EndTransactionRecord
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.fence_broker_record import FenceBrokerRecord
from reference.protocol.messages.no_op_record import NoOpRecord
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.producer_ids_record import ProducerIdsRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from reference.protocol.messages.remove_topic_record import RemoveTopicRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.messages.unfence_broker_record import UnfenceBrokerRecord
from reference.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from reference.protocol.primitives import Buffer
from reference.protocol.schema import Message

FRAME_VERSION = 1

RECORDS: dict[int, type[Message]] = {
    table.KEY: table
    for table in (
        AbortTransactionRecord, AccessControlEntryRecord, BeginTransactionRecord,
        BrokerRegistrationChangeRecord, ClearElrRecord, ConfigRecord,
        EndTransactionRecord, FeatureLevelRecord, FenceBrokerRecord, NoOpRecord, PartitionChangeRecord,
        PartitionRecord, ProducerIdsRecord, RegisterBrokerRecord, RemoveAccessControlEntryRecord,
        RemoveTopicRecord, TopicRecord, UnfenceBrokerRecord,
        UnregisterBrokerRecord, *STATES, *ENDS,
    )
    if table is not UnknownRecord
}  # fmt: skip
"""The metadata records that this node can decode, by type."""


NEWEST_LEVEL = 30
"""4.3-IV0."""

FIRST_LEVELS: dict[type[Message], tuple[int, ...]] = {
    RegisterBrokerRecord: (0, 7, 8, 17, 30),
    BrokerRegistrationChangeRecord: (0, 7, 17, 30),
    PartitionRecord: (0, 17, 23),
    PartitionChangeRecord: (0, 17, 23),
}
"""The first level of metadata.version at which each version of a record is written. Source: MetadataVersion.java."""


def encode_metadata_record(record: Message, level: int = NEWEST_LEVEL) -> bytes:
    """The value of one metadata record, in the newest version that nodes at this metadata.version can decode."""
    if isinstance(record, UnknownRecord):
        return record.value
    version = record.VERSIONS.highest
    if level < NEWEST_LEVEL:
        version = bisect_right(FIRST_LEVELS.get(type(record), (0,)), level) - 1
    return write_varint(FRAME_VERSION) + write_varint(record.KEY) + write_varint(version) + encode(record, version)


def decode_metadata_record(value: Buffer) -> Message:
    """The record of a value; an `UnknownRecord` if this node does not know the type.

    Errors: CodecError if the bytes are no metadata record.
    """
    view = memoryview(value)
    try:
        frame, position = read_varint(view, 0)
        if frame != FRAME_VERSION:
            raise CodecError(f"a metadata record of frame version {frame}")
        kind, position = read_varint(view, position)
        version, position = read_varint(view, position)
    except IndexError as error:
        raise CodecError("a metadata record is cut off within its frame") from error
    table = RECORDS.get(kind)
    if table is None:
        return UnknownRecord(value=bytes(view))
    record, end = decode_from(table, version, view, position)
    if end != len(view):
        raise CodecError(f"{table.__name__} v{version}: {len(view) - end} bytes after the end")
    return record
