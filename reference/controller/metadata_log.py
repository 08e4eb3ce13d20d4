"""The log of the cluster's metadata: records of `__cluster_metadata`, appended by the active controller, replayed by all.

With one voter what is flushed is committed. Records of one decision go into one batch, so that they become true together.
Source: KIP-500, KIP-595, KIP-631.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reference.controller.metadata_records import decode_metadata_record, encode_metadata_record
from reference.protocol.codec import encode
from reference.protocol.messages.leader_change_message import LeaderChangeMessage
from reference.protocol.primitives import Epoch, NodeId, Offset, TimestampMs
from reference.protocol.records.batch import build, read_batches, records_of
from reference.protocol.records.control import ControlType, control_key
from reference.protocol.records.record import Record
from reference.protocol.records.validate import Origin
from reference.protocol.schema import Message
from reference.storage.log import Log

MAX_RECORDS_IN_BATCH = 10_000
READ_BYTES = 1 << 20


class MetadataLog:
    """The one partition of `__cluster_metadata` on this node."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def begin_epoch(self, epoch: Epoch, leader: NodeId, voters: Sequence[NodeId], now: TimestampMs) -> None:
        """The first record of a leader's epoch says who leads (KIP-595)."""
        message = LeaderChangeMessage(
            leader_id=leader,
            voters=[LeaderChangeMessage.Voter(voter_id=voter) for voter in voters],
            granting_voters=[LeaderChangeMessage.Voter(voter_id=voter) for voter in voters],
        )
        self.log.assign_epoch_start(epoch, self.log.log_end_offset)
        record = Record(0, now, control_key(ControlType.LEADER_CHANGE), encode(message, 0))
        self.log.append_as_leader(build([record], control=True), epoch, now, Origin.RAFT_LEADER)
        self.log.flush()

    def append(self, records: Sequence[Message], epoch: Epoch, now: TimestampMs) -> Offset:
        """Append records durably; gives the offset of the first.

        Errors: StorageError, and nothing was appended; more than MAX_RECORDS_IN_BATCH are a mistake of ours.
        """
        assert 0 < len(records) <= MAX_RECORDS_IN_BATCH
        batch = build([Record(index, now, None, encode_metadata_record(each)) for index, each in enumerate(records)])
        info = self.log.append_as_leader(batch, epoch, now, Origin.RAFT_LEADER)
        self.log.flush()
        return info.first_offset

    def replay(self, start: Offset) -> Iterator[tuple[Offset, Message]]:
        """The records from an offset on, with their offsets; control records and unknown types are left out.

        Errors: CodecError, RecordsError when the log holds what is no metadata.
        """
        offset = start
        while offset < self.log.log_end_offset:
            found = self.log.read(offset, READ_BYTES).records
            data = found if isinstance(found, bytes) else found.read()
            if not isinstance(found, bytes):
                found.release()
            for batch in read_batches(data):
                if not batch.header.is_control:
                    for record in records_of(batch.data):
                        if record.offset >= offset and record.value is not None:
                            message = decode_metadata_record(record.value)
                            if message is not None:
                                yield record.offset, message
                offset = batch.header.next_offset
