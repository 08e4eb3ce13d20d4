"""A stranger asks every API, on a broker's and on the controllers' listener: Kafka and the reference refuse the same way.

The stranger has authenticated, and no ACL names it. The APIs include those that only brokers and controllers may use
(ClusterAction), and fetches in a follower's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from linearizability.client.requests import new_topic
from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.kafka import KafkaCluster
from linearizability.targets.ports import free_ports
from linearizability.targets.reference import ReferenceCluster
from linearizability.targets.security import ClientSecurity, Tunnels
from linearizability.targets.wire import Wire, WireClosed
from reference.node.release import BROKER, CONTROLLER, is_served_on, versions_of
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from reference.protocol.needs import NEEDS
from reference.protocol.schema import Message
from tests.node.test_access import filled
from tests.targets.secured_kafka import LOGIN

pytestmark = [pytest.mark.process, pytest.mark.kafka]

TOPIC = "guarded"
CLIENT = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{LOGIN}.plain.PlainLoginModule required username="stranger" password="s";',
}
USERS = 'username="broker" password="b" user_broker="b" user_stranger="s"'


class Guarded(ClusterTarget):
    """One node with an authorizer, whose super users are those that connect in plaintext, and the node itself."""

    def properties(self, member: Member) -> dict[str, str]:
        given = super().properties(member)
        (self.port,) = free_ports(1)
        door = f"SASL_PLAINTEXT://127.0.0.1:{self.port}"
        plain = f"{LOGIN}.plain.PlainLoginModule required {USERS};"
        return given | {
            "listeners": f"{given['listeners']},{door}",
            "advertised.listeners": f"{given['advertised.listeners']},{door}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": plain,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:broker",
        }

    def ports(self) -> dict[str, int]:
        """Kind of listener -> the port where a stranger asks."""
        listeners = self.member(1).properties["listeners"].split(",")
        controller = next(each for each in listeners if each.startswith("CONTROLLER://"))
        return {BROKER: self.port, CONTROLLER: int(controller.rpartition(":")[2])}


class GuardedKafka(Guarded, KafkaCluster):
    def __init__(self, folder: Path) -> None:
        super().__init__("kafka:4.3.1", version="4.3.1", nodes=1, folder=folder)

    def prepare(self) -> None:
        KafkaCluster("kafka:4.3.1", version="4.3.1", nodes=1, folder=self.folder.parent / "plain").prepare()
        super().prepare()


class GuardedReference(Guarded, ReferenceCluster):
    def __init__(self, folder: Path) -> None:
        super().__init__("reference:1", nodes=1, folder=folder)


def errors_in(answer: Any) -> set[str]:
    """The names of all errors in a response, at any depth; NONE where there is none."""
    found: set[int] = set()

    def look(value: Any) -> None:
        if isinstance(value, Message):
            for field in value.FIELDS:
                inner = getattr(value, field.name)
                if field.name.endswith("error_code") and isinstance(inner, int):
                    found.add(inner)
                look(inner)
        elif isinstance(value, list):
            for each in value:
                look(each)

    look(answer)
    return {ErrorCode(code).name for code in found - {0}} or {"NONE"}


def outcome(tunnels: Tunnels, port: int, request: Message, version: int) -> str:
    """What a stranger gets: the errors, or `closed`."""
    with Wire.connect(*tunnels.to("127.0.0.1", port)) as wire:
        try:
            return ", ".join(sorted(errors_in(wire.call(request, version))))
        except WireClosed:
            return "closed"


VALID = {
    "timeout_ms": 10_000,
    "resource_type_filter": 2,
    "operation": 3,
    "permission_type": 3,
    "permission_type_filter": 3,
    "pattern_type_filter": 3,
}
"""Fields whose zero Kafka does not take: with a timeout of 0 it has no time to refuse, and an unknown ACL closes the connection."""


def of_version(message: Message, version: int) -> Message:
    """The same message without what the version does not have, and with values that are valid."""
    for field in message.FIELDS:
        if field.name in VALID:
            setattr(message, field.name, VALID[field.name])
        value = getattr(message, field.name)
        if version not in field.versions:
            setattr(message, field.name, getattr(type(message)(), field.name))
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    of_version(each, version)
    return message


def asked(topic_id: Any) -> Iterator[tuple[str, str, Message, int]]:
    """Listener, what is asked, the request and its version."""
    for key in sorted(NEEDS):
        for kind in (BROKER, CONTROLLER):
            if is_served_on(key, kind):
                version = versions_of(key)[1]
                request = of_version(filled(key), version)
                yield kind, type(request).__name__, request, version
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
    for replica in (-1, 0, 1, 7):
        fetch = FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=replica),
            max_wait_ms=0,
            topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])],
        )
        yield BROKER, f"a fetch as replica {replica}", fetch, 17
        epochs = OffsetForLeaderEpochRequest(
            replica_id=replica,
            topics=[
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic=TOPIC,
                    partitions=[OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)],
                )
            ],
        )
        yield BROKER, f"epochs as replica {replica}", epochs, 4


def outcomes(cluster: Guarded) -> dict[tuple[str, str], str]:
    with Wire.connect(cluster.nodes[0].host, cluster.nodes[0].port) as wire:
        made = wire.call(CreateTopicsRequest(topics=[new_topic(TOPIC)], timeout_ms=10_000)).topics[0]
        assert made.error_code == 0, made
    ports = cluster.ports()
    with Tunnels(ClientSecurity.of(CLIENT)) as tunnels:
        return {
            (kind, name): outcome(tunnels, ports[kind], request, version)
            for kind, name, request, version in asked(made.topic_id)
        }


NOT_HANDLED = "UNKNOWN_SERVER_ERROR"
"""The error of Kafka's controllers for an API that they advertise and do not handle."""
DIFFERS = {
    (CONTROLLER, "DescribeDelegationTokenRequest"): (NOT_HANDLED, "closed"),
    (CONTROLLER, "DescribeUserScramCredentialsRequest"): (NOT_HANDLED, "CLUSTER_AUTHORIZATION_FAILED"),
}
"""Listener and what is asked -> what Kafka and the reference answer."""


def test_a_stranger_gets_the_same_from_both(tmp_path: Path) -> None:
    with GuardedKafka(tmp_path / "kafka") as cluster:
        kafka = outcomes(cluster)
    with GuardedReference(tmp_path / "reference") as cluster:
        reference = outcomes(cluster)
    assert {key: (value, reference[key]) for key, value in kafka.items() if value != reference[key]} == DIFFERS
    admitted = {name for (_, name), value in kafka.items() if value == "NONE"}
    assert admitted == {"ApiVersionsRequest", "DescribeClusterRequest", "ListGroupsRequest", "ListTransactionsRequest"}
