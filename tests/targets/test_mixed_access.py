"""Nodes of Apache Kafka and of the reference share credentials (SCRAM) and ACLs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.mixed import MixedCluster, Role
from linearizability.targets.ports import free_ports
from linearizability.targets.wire import Wire
from reference.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from reference.protocol.messages.create_acls import CreateAclsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_acls import DeleteAclsRequest
from reference.protocol.messages.describe_acls import DescribeAclsRequest
from reference.protocol.schema import Message

pytestmark = pytest.mark.kafka

WITHIN_S = 90
KAFKA, REFERENCE = 1, 2
TOPIC, PASSWORD = "shared", "a password"
SHA_256, ITERATIONS, SALT = 1, 4096, b"some salt"
TOPICS, LITERAL, WRITE, ALLOW, ANY = 2, 3, 4, 3, 1


class SharingCluster(MixedCluster):
    """A node of Kafka and one of the reference; clients that authenticate have a listener of their own."""

    def __init__(self, folder: Path) -> None:
        kinds = [open_target(kind, folder=folder / "unused") for kind in ("kafka:4.3.1", "reference")]
        clusters = [each for each in kinds if isinstance(each, ClusterTarget)]
        super().__init__("mixed:kafka:4.3.1,reference", clusters, [Role.BOTH] * 2, folder=folder)
        self.doors = free_ports(2, "127.0.0.1")

    def properties(self, member: Member) -> dict[str, str]:
        given = super().properties(member)
        door = f"SASL_PLAINTEXT://127.0.0.1:{self.doors[member.node.id - 1]}"
        return given | {
            "listeners": f"{given['listeners']},{door}",
            "advertised.listeners": f"{given['advertised.listeners']},{door}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "delegation.token.secret.key": "a secret of both nodes",
        }

    def ask(self, node: int, request: Message) -> Message:
        at = self.member(node).node
        with Wire.connect(at.host, at.port, timeout_s=WITHIN_S) as wire:
            return wire.call(request)

    def add_user(self, node: int, name: str) -> None:
        upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=name,
            mechanism=SHA_256,
            iterations=ITERATIONS,
            salt=SALT,
            salted_password=hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), SALT, ITERATIONS),
        )
        self.ask(node, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))

    def allow(self, node: int, name: str) -> None:
        acl = CreateAclsRequest.AclCreation(
            resource_type=TOPICS,
            resource_name=TOPIC,
            resource_pattern_type=LITERAL,
            principal=f"User:{name}",
            host="*",
            operation=WRITE,
            permission_type=ALLOW,
        )
        self.ask(node, CreateAclsRequest(creations=[acl]))

    def forget(self, node: int, name: str) -> None:
        acl = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=TOPICS,
            resource_name_filter=TOPIC,
            pattern_type_filter=LITERAL,
            principal_filter=f"User:{name}",
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        self.ask(node, DeleteAclsRequest(filters=[acl]))

    def acls(self, node: int) -> set[str]:
        """The principals in the topic's ACLs, as a node reports them."""
        asked = DescribeAclsRequest(
            resource_type_filter=TOPICS,
            resource_name_filter=TOPIC,
            pattern_type_filter=LITERAL,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        found = self.ask(node, asked)
        return {acl.principal for each in getattr(found, "resources", ()) for acl in each.acls}

    def written(self, node: int, name: str, password: str = PASSWORD) -> str:
        """The name of the error that a user gets who writes a record through the node's SASL listener; "" if there is none."""
        errors: list[str] = []
        producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{self.doors[node - 1]}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": name,
                "sasl.password": password,
                "message.timeout.ms": 10_000,
                "error_cb": lambda error: errors.append(error.name()),
                "log_level": 0,
            }
        )
        found: list[str] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            found.append("" if error is None else error.name())

        try:
            producer.produce(TOPIC, b"x", partition=node - 1, on_delivery=delivered)
            producer.flush(WITHIN_S)
        except KafkaException as error:
            return str(error)
        refused = [name for name in errors if name == "_AUTHENTICATION"]
        return refused[0] if refused and found != [""] else found[0]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SharingCluster]:
    with SharingCluster(tmp_path) as target:
        form = CreateTopicsRequest.CreatableReplicaAssignment
        topic = CreateTopicsRequest.CreatableTopic(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[form(partition_index=0, broker_ids=[1, 2]), form(partition_index=1, broker_ids=[2, 1])],
        )
        target.ask(KAFKA, CreateTopicsRequest(topics=[topic], timeout_ms=WITHIN_S * 1000))
        yield target


def until(seen: Callable[[], object], wanted: object) -> None:
    end = time.monotonic() + WITHIN_S
    while (found := seen()) != wanted:
        assert time.monotonic() < end, f"{found}, not {wanted}"


def at_both(see: Callable[[int], object]) -> list[object]:
    return [see(KAFKA), see(REFERENCE)]


@pytest.mark.sampled(days=5)
def test_what_one_kind_knows_the_other_kind_enforces(cluster: SharingCluster) -> None:
    """Also after both were killed and started again."""
    cluster.add_user(KAFKA, "alice")
    cluster.add_user(REFERENCE, "bob")
    cluster.allow(REFERENCE, "alice")
    cluster.allow(KAFKA, "bob")
    until(lambda: at_both(cluster.acls), [{"User:alice", "User:bob"}] * 2)
    for name in ("alice", "bob"):
        until(lambda name=name: at_both(lambda node: cluster.written(node, name)), ["", ""])
    assert at_both(lambda node: cluster.written(node, "alice", "another password")) == ["_AUTHENTICATION"] * 2
    cluster.add_user(REFERENCE, "carol")
    until(lambda: at_both(lambda node: cluster.written(node, "carol")), ["TOPIC_AUTHORIZATION_FAILED"] * 2)
    for node in (KAFKA, REFERENCE):
        cluster.kill(node)
        cluster.restart(node)
    until(lambda: at_both(lambda node: cluster.written(node, "alice")), ["", ""])
    assert at_both(lambda node: cluster.written(node, "carol")) == ["TOPIC_AUTHORIZATION_FAILED"] * 2
    cluster.forget(KAFKA, "alice")
    until(lambda: at_both(cluster.acls), [{"User:bob"}] * 2)
    until(lambda: at_both(lambda node: cluster.written(node, "alice")), ["TOPIC_AUTHORIZATION_FAILED"] * 2)
    assert at_both(lambda node: cluster.written(node, "bob")) == ["", ""]
