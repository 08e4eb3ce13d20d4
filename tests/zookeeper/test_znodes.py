"""The JSON of znodes: what Apache Kafka 3.9.2 writes is read, what is written here has its fields, and damage is named."""

import json
from dataclasses import replace
from uuid import UUID

import pytest

from reference.controller.image import Endpoint, PartitionImage
from reference.protocol.primitives import LeaderEpoch, NodeId, PartitionEpoch, ProducerId, TimestampMs
from reference.zookeeper import znodes
from tests.zookeeper.local import nodes

TOPIC_ID = UUID("d6c3f7f0-7a0b-4f3e-9a86-0c2d5d3a2b11")


def test_a_registration_is_read_back_with_its_endpoints_and_rack():
    endpoints = (Endpoint("PLAINTEXT", "a", 9092), Endpoint("SECURE", "::1", 9093, 1))
    data = znodes.encode_registration(znodes.Registration(endpoints, "r1"), TimestampMs(1_700))
    value = json.loads(data)
    assert value["version"] == 5 and value["timestamp"] == "1700" and value["port"] == 9092 and value["host"] == "a"
    assert value["listener_security_protocol_map"] == {"PLAINTEXT": "PLAINTEXT", "SECURE": "SSL"}
    assert znodes.decode_registration("/brokers/ids/1", data) == znodes.Registration(endpoints, "r1")


def test_a_registration_of_an_old_broker_names_its_listeners_by_their_protocols():
    old = b'{"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://h:1"],"host":"h","version":2,"port":1}'
    assert znodes.decode_registration("/x", old).endpoints == (Endpoint("PLAINTEXT", "h", 1),)


def test_an_assignment_names_only_what_is_reassigned():
    written = znodes.Assignment({0: nodes(1, 2), 1: nodes(2, 3)}, TOPIC_ID, {0: [], 1: nodes(3)}, {0: [], 1: []})
    data = znodes.encode_assignment(written)
    assert json.loads(data) == {
        "removing_replicas": {},
        "partitions": {"0": [1, 2], "1": [2, 3]},
        "topic_id": znodes.encode_uuid(TOPIC_ID),
        "adding_replicas": {"1": [3]},
        "version": 3,
    }
    assert znodes.decode_assignment("/t", data) == replace(written, adding={1: nodes(3)}, removing={})


def test_an_assignment_of_kafka_0_11_has_no_topic_id():
    assert znodes.decode_assignment("/t", b'{"version":1,"partitions":{"0":[1]}}').topic_id == UUID(int=0)


@pytest.mark.parametrize("recovery", [0, 1])
def test_a_state_is_read_back(recovery):
    leader, epoch, writer = NodeId(2), LeaderEpoch(7), LeaderEpoch(4)
    version = PartitionEpoch(3)
    partition = PartitionImage(
        nodes(1, 2), [leader], leader, epoch, version, [], [], [], [], leader_recovery_state=recovery
    )
    data = znodes.encode_state(partition, writer)
    assert ("leader_recovery_state" in json.loads(data)) == bool(recovery)
    assert znodes.decode_state("/s", data) == znodes.State(leader, epoch, (leader,), writer, recovery)


def test_numbers_of_producers_go_on_behind_the_last_block():
    assert znodes.decode_next_producer_id("/p", b"") == 0
    block = znodes.encode_producer_block(NodeId(1), ProducerId(0), ProducerId(999))
    assert znodes.decode_next_producer_id("/p", block) == 1_000


def test_changes_of_settings_are_read_in_both_versions():
    assert znodes.decode_config_change("/c", znodes.encode_config_change("topics/a")) == "topics/a"
    assert znodes.decode_config_change("/c", b'{"version":1,"entity_type":"topics","entity_name":"a"}') == "topics/a"


@pytest.mark.parametrize(
    "decode",
    [
        znodes.decode_registration,
        znodes.decode_controller,
        znodes.decode_assignment,
        znodes.decode_state,
        znodes.decode_config,
        znodes.decode_config_change,
        znodes.decode_cluster_id,
        znodes.decode_partitions,
        znodes.decode_next_producer_id,
        znodes.decode_number,
    ],
)
@pytest.mark.parametrize("data", [b"{", b"[]", b"{}", b'{"endpoints":3,"partitions":7,"isr":1,"config":[],"id":4}'])
def test_damage_is_named_with_its_znode(decode, data):
    with pytest.raises(znodes.DamagedZnode, match="/brokers/here"):
        decode("/brokers/here", data)
