"""What a node says of groups' offsets before it keeps any."""

from __future__ import annotations

from reference.node.group_offsets import offset_commit, txn_offset_commit
from reference.node.requests import Client, Request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from reference.storage.disk import SimulatedDisk
from tests.node.test_metadata_snapshots import FOLDER, NOW, create, start

CLIENT = Client(1, "127.0.0.1", "PLAINTEXT")


def test_without_an_offsets_topic_only_a_transactions_offsets_have_no_coordinator_at_all() -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW)
    create(node, "t", NOW)
    place = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    body = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[place])]
    )
    answer = offset_commit(node.groups, Request(CLIENT, OffsetCommitRequest.KEY, 8, 1, None), body, NOW)
    assert isinstance(answer, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    in_transaction = TxnOffsetCommitRequest(
        transactional_id="id", group_id="g", producer_id=1, producer_epoch=0,
        topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
    )  # fmt: skip
    answer = txn_offset_commit(
        node.groups, node.verification, Request(CLIENT, TxnOffsetCommitRequest.KEY, 3, 1, None), in_transaction, NOW
    )
    assert isinstance(answer, TxnOffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
