"""A node keeps its metadata log short by snapshots, and starts from them."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

from reference.controller.carried import UnknownRecord
from reference.controller.image import Endpoint
from reference.controller.metadata_records import encode_metadata_record
from reference.node.identity import Identity
from reference.node.node import Node
from reference.node.release import versions_of
from reference.protocol.frames import encode_request
from reference.protocol.messages.abort_transaction_record import AbortTransactionRecord
from reference.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from reference.protocol.messages.begin_transaction_record import BeginTransactionRecord
from reference.protocol.messages.client_quota_record import ClientQuotaRecord
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.end_transaction_record import EndTransactionRecord
from reference.protocol.messages.register_controller_record import RegisterControllerRecord
from reference.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from reference.protocol.primitives import NodeId, TimestampMs
from reference.protocol.schema import Message
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.simulated_disk import SimulatedDisk

FOLDER = Path("/data")
PROPERTIES = {"metadata.log.max.record.bytes.between.snapshots": "3000", "log.index.size.max.bytes": "2048"}
NOW = TimestampMs(1_700_000_000_000)


def start(disk: SimulatedDisk, now: TimestampMs, **properties: str) -> Node:
    identity = Identity(
        NodeId(1), "simulated-cluster-id00", uuid.UUID(int=now), (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    )
    directory = LogDirectory(disk, FOLDER, id=uuid.UUID(int=4711))
    return Node(identity, PROPERTIES | properties, LogManager([directory]), random.Random(now), now)


def ask(node: Node, body: Message, now: TimestampMs) -> None:
    """Send a client's request to a node; ignore the response."""
    client = 4711
    node.connected(client, "127.0.0.1", "PLAINTEXT")
    node.receive(client, encode_request(body.KEY, versions_of(body.KEY)[1], 1, "test", body)[4:], now)
    node.disconnected(client)


def create(node: Node, name: str, now: TimestampMs) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    ask(node, CreateTopicsRequest(topics=[topic]), now)


def delete(node: Node, name: str, now: TimestampMs) -> None:
    body = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=1)
    ask(node, body, now)


def snapshots(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.list_folder(FOLDER / "__cluster_metadata-0") if name.endswith(".checkpoint")]


def test_snapshots_are_written_and_hold_what_the_log_held() -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    disk.sync_folder(FOLDER.parent)
    node = start(disk, NOW)
    assert snapshots(disk) == []
    for number in range(60):
        create(node, f"topic-{number}", NOW + number)
        if number % 3:
            delete(node, f"topic-{number}", NOW + number)
    assert snapshots(disk)
    before = node.image
    assert len(before.topics) == 20
    disk.lose_power(random.Random(1))
    again = start(disk, NOW + 1000)
    assert {name: topic.id for name, topic in again.image.topics.items()} == {
        name: topic.id for name, topic in before.topics.items()
    }
    assert again.image.features == before.features
    assert again.has_caught_up and len(again.partitions) == 20


def records_for_others() -> list[Message]:
    acl = uuid.UUID(int=7)
    entity = [ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)]
    return [
        AccessControlEntryRecord(id=acl, resource_name="a", principal="User:x"),
        AccessControlEntryRecord(id=uuid.UUID(int=8), resource_name="b", principal="User:y"),
        ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1.0),
        ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=2.5),
        UserScramCredentialRecord(name="x", mechanism=1, iterations=4096),
        RegisterControllerRecord(controller_id=3000),
        UnknownRecord(value=b"\x01\xc8\x01\x00 of a later release"),
        RemoveAccessControlEntryRecord(id=acl),
        ClientQuotaRecord(entity=entity, key="consumer_byte_rate", value=3.0),
        ClientQuotaRecord(entity=entity, key="consumer_byte_rate", remove=True),
    ]


def test_what_this_node_does_not_act_upon_survives_its_snapshots() -> None:
    """A node of Apache Kafka in the cluster may have written it, and may have to learn it from a snapshot of ours."""
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    disk.sync_folder(FOLDER.parent)
    node = start(disk, NOW)
    node.quorum.append(records_for_others(), NOW)
    for number in range(60):
        create(node, f"topic-{number}", NOW + number)
    assert snapshots(disk)
    disk.lose_power(random.Random(1))
    again = start(disk, NOW + 1000).image
    kept = [*(acl.as_record(id) for id, acl in again.acls.by_id.items()), *again.carried.values()]
    _, second, _, quota, scram, controller, unknown, *_ = records_for_others()
    assert kept == [second, quota, scram, controller, unknown]
    assert isinstance(unknown, UnknownRecord) and encode_metadata_record(kept[-1]) == unknown.value


def test_an_open_transaction_of_the_metadata_is_no_part_of_the_image_and_is_aborted() -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    disk.sync_folder(FOLDER.parent)
    node = start(disk, NOW)
    ended, unended = (TopicRecord(name=name, topic_id=uuid.UUID(int=number)) for number, name in ((1, "a"), (2, "b")))
    node.quorum.append([BeginTransactionRecord(), ended, EndTransactionRecord()], NOW)
    node.quorum.append([BeginTransactionRecord(), unended], NOW)
    node.tick(TimestampMs(NOW + 1))
    assert (set(node.image.topics), node.image.open_transaction) == ({"a"}, node.quorum.log_end_offset - 2)
    disk.lose_power(random.Random(1))
    again = start(disk, NOW + 1000)
    create(again, "c", NOW + 1001)
    assert (set(again.image.topics), again.image.open_transaction) == ({"a", "c"}, None)
    records = [record for _, record in again.quorum.committed(again.quorum.records_log.log_start_offset)]
    assert any(isinstance(record, AbortTransactionRecord) for record in records)
