"""Offset requests to a node before the offsets topic exists."""

from __future__ import annotations

import pytest

from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import commit_request
from reference.node.group_offsets import offset_commit, txn_offset_commit
from reference.node.groups import join_group
from reference.node.requests import Client, Request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from reference.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from reference.protocol.primitives import ProducerEpoch, ProducerId
from reference.protocol.records.batch import read_batches
from reference.storage.simulated_disk import SimulatedDisk
from reference.storage.verification import NOT_REQUIRED
from tests.node.test_metadata_snapshots import FOLDER, NOW, create, start

CLIENT = Client(1, "127.0.0.1", "PLAINTEXT")


def test_without_an_offsets_topic_only_a_transactions_offsets_have_no_coordinator_at_all() -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW)
    create(node, "t", NOW)
    body = commit_request("g", {("t", 0): 1})
    answer = offset_commit(node.groups, Request(CLIENT, OffsetCommitRequest.KEY, 8, 1, None), body, NOW)
    assert isinstance(answer, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    in_transaction = ProducerSession("id", (1, 0)).commit_offsets("g", {("t", 0): 1})
    answer = txn_offset_commit(
        node.groups, node.verification, Request(CLIENT, TxnOffsetCommitRequest.KEY, 3, 1, None), in_transaction, NOW
    )
    assert isinstance(answer, TxnOffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("session_timeout_ms", "code", "member"),
    [(10_000, ErrorCode.NOT_COORDINATOR, ""), (1, ErrorCode.INVALID_SESSION_TIMEOUT, "m")],
)
def test_a_member_id_is_repeated_where_the_request_itself_is_wrong(
    session_timeout_ms: int, code: ErrorCode, member: str
) -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW)
    body = JoinGroupRequest(group_id="g", member_id="m", session_timeout_ms=session_timeout_ms)
    answer = join_group(node.groups, Request(CLIENT, JoinGroupRequest.KEY, 9, 1, None), body, NOW)
    assert isinstance(answer, JoinGroupResponse)
    assert (answer.error_code, answer.member_id) == (code, member)


def test_a_transactions_offsets_are_written_with_the_sequence_number_that_kafkas_coordinator_writes() -> None:
    """Kafka's cleaner fails at a batch of a producer without one, and compacts the partition no more."""
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW)
    create(node, "t", NOW)
    create(node, "__consumer_offsets", NOW)
    records = [(b"key", b"value"), (b"other", b"value")]
    node.groups.coordination.write(0, records, NOW, producer=(ProducerId(7), ProducerEpoch(3)), guard=NOT_REQUIRED)
    log = node.replicas.partition("__consumer_offsets", 0).log
    found = log.read(log.log_start_offset, 1 << 20).records
    header = next(iter(read_batches(found if isinstance(found, bytes) else found.read()))).header
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 3, 0, 1)
