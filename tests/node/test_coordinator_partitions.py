"""The number of partitions by which a broker divides groups and transactional ids: that of the time when it had caught up.

Seen of Apache Kafka 4.3.1: committed offsets are still found after `__consumer_offsets` got more partitions, and no more once the
broker was restarted; FindCoordinator for a key whose partition the topic does not have is COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import Any

import pytest

from linearizability.client.requests import commit_request
from reference.node.effects import Respond
from reference.node.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from reference.node.node import Node
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.list_transactions import ListTransactionsRequest
from reference.protocol.messages.offset_fetch import OffsetFetchRequest
from reference.protocol.schema import Message
from reference.storage.simulated_disk import SimulatedDisk
from tests.node.test_metadata_snapshots import FOLDER, NOW, create, delete, start
from tests.node.three_nodes import frame_of

CLIENT = 1
MOVED = "g1"
"""A group whose partition of three is another than its partition of one."""
COUNTS = {f"{prefix}.num.partitions": "1" for prefix in ("offsets.topic", "transaction.state.log")}


def call(node: Node, body: Message, version: int) -> Any:
    node.take_effects()
    node.connected(CLIENT, "127.0.0.1", "PLAINTEXT")
    node.receive(CLIENT, encode_request(body.KEY, version, 1, "test", body)[4:], NOW)
    answers = [each for each in node.take_effects() if isinstance(each, Respond) and each.connection == CLIENT]
    node.disconnected(CLIENT)
    return decode_response(body.KEY, version, frame_of(answers[-1]))[1]


def grow(node: Node, topic: str, count: int) -> None:
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    answer = call(node, CreatePartitionsRequest(topics=[wanted], timeout_ms=1), 3)
    assert answer.results[0].error_code == ErrorCode.NONE


def committed(node: Node, group: str) -> int:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    return call(node, OffsetFetchRequest(group_id=group, topics=[topic]), 7).topics[0].partitions[0].committed_offset


def coordinator(node: Node, key: str, kind: int) -> tuple[int, int]:
    found = call(node, FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), 6).coordinators[0]
    return found.error_code, found.node_id


def started(**properties: str) -> tuple[SimulatedDisk, Node]:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW, **(COUNTS | properties))
    create(node, "t", NOW)
    return disk, node


def test_no_group_moves_before_the_broker_is_restarted() -> None:
    assert partition_for(MOVED, 3) != 0
    disk, node = started()
    create(node, OFFSETS_TOPIC, NOW)
    answer = call(node, commit_request(MOVED, {("t", 0): 5}), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    grow(node, OFFSETS_TOPIC, 3)
    assert committed(node, MOVED) == 5
    node.shut_down(NOW)
    assert committed(start(disk, NOW + 1, **COUNTS), MOVED) == -1


@pytest.mark.parametrize(("kind", "topic"), [(0, OFFSETS_TOPIC), (1, TRANSACTIONS_TOPIC)])
def test_a_key_whose_partition_the_topic_does_not_have_has_no_coordinator(kind: int, topic: str) -> None:
    _, node = started(**dict.fromkeys(COUNTS, "3"))
    create(node, topic, NOW)  # without auto-creation, with one partition
    keys = {partition_for(key, 3): key for key in ("g0", "g1", "g2", "g3")}
    assert coordinator(node, keys[0], kind) == (ErrorCode.NONE, 1)
    assert coordinator(node, keys[1], kind) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    grow(node, topic, 2)
    assert coordinator(node, keys[1], kind) == (ErrorCode.NONE, 1)
    assert coordinator(node, keys[2], kind) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def test_the_first_question_creates_the_topic_and_is_answered_as_before_it() -> None:
    _, node = started(**{"offsets.topic.replication.factor": "1"})
    assert coordinator(node, MOVED, 0) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert coordinator(node, MOVED, 0) == (ErrorCode.NONE, 1)


def test_a_topic_that_is_created_again_keeps_the_number_of_before() -> None:
    _, node = started()
    create(node, OFFSETS_TOPIC, NOW)
    delete(node, OFFSETS_TOPIC, NOW)
    create(node, OFFSETS_TOPIC, NOW)
    grow(node, OFFSETS_TOPIC, 3)
    call(node, commit_request(MOVED, {("t", 0): 5}), 8)
    assert [len(shard.groups) for _, shard in sorted(node.groups.coordination.loaded())] == [1, 0, 0]


def test_transactions_are_not_loaded_while_the_number_is_another() -> None:
    """As in Kafka 4.3.1, where only a restart helps: ListTransactions is refused meanwhile, what was loaded before is served."""
    disk, node = started()
    create(node, TRANSACTIONS_TOPIC, NOW)
    grow(node, TRANSACTIONS_TOPIC, 3)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert call(node, ListTransactionsRequest(), 2).error_code == loading
    asked = InitProducerIdRequest(transactional_id="x0", transaction_timeout_ms=60_000)
    assert call(node, asked, 5).error_code == ErrorCode.NONE
    assert not node.transactions.coordination.has_to_load  # or the node would never rest
    node.shut_down(NOW)
    node = start(disk, NOW + 1, **COUNTS)
    assert call(node, ListTransactionsRequest(), 2).error_code == ErrorCode.NONE
    delete(node, TRANSACTIONS_TOPIC, NOW)
    create(node, TRANSACTIONS_TOPIC, NOW)  # with one partition
    assert call(node, ListTransactionsRequest(), 2).error_code == call(node, asked, 5).error_code == loading
