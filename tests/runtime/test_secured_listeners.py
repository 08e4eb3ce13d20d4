"""Listeners with TLS and SASL, as processes: a cluster that speaks so among its nodes, certificates that change, bad clients."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from linearizability.targets.cluster import Member
from linearizability.targets.errors import TargetError
from linearizability.targets.reference import ReferenceCluster
from linearizability.targets.security import ClientSecurity, Tunnels
from linearizability.targets.wire import Wire, WireClosed, WireError, listed_brokers
from reference.commands import app
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.runtime.security import STANDARD_AUTHORIZER
from tests.targets.secured_kafka import (
    KEYS_URL,
    LOGIN,
    PASSWORD,
    STORE_PASSWORD,
    USER,
    SecuredReference,
    Signer,
    key_set,
)
from tests.waiting import await_true

pytestmark = pytest.mark.process
WITHIN_S = 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredReference]:
    with SecuredReference(tmp_path_factory.mktemp("broker"), tmp_path_factory.mktemp("secrets")) as opened:
        yield opened


def log_of(cluster: ReferenceCluster, number: int = 0) -> str:
    return (cluster.members[number].folder / "node.log").read_text()


def wait_for_line(cluster: ReferenceCluster, sentence: str) -> None:
    end = time.monotonic() + WITHIN_S
    while sentence not in log_of(cluster):
        assert time.monotonic() < end, f"{sentence!r} was not logged:\n{log_of(cluster)}"
        time.sleep(0.05)


def tls_to(broker: SecuredReference, listener: str) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(broker.secrets / "ca.pem"))
    return context.wrap_socket(
        socket.create_connection(("127.0.0.1", broker.ports[listener]), WITHIN_S), server_hostname="localhost"
    )


def test_large_requests_and_answers_pass_through_tls(broker: SecuredReference) -> None:
    with Tunnels(ClientSecurity.of(broker.client("SSL"))) as tunnels:
        wire = Wire.connect(*tunnels.to("localhost", broker.ports["SSL"]))
        names = [MetadataRequest.MetadataRequestTopic(name=f"{'n' * 240}-{number}") for number in range(5000)]
        answer = wire.call(MetadataRequest(topics=names, allow_auto_topic_creation=False))
        assert len(answer.topics) == 5000
        assert not wire.call(CreateTopicsRequest(topics=[], timeout_ms=1000)).topics
        wire.close()


def test_a_client_of_another_protocol_is_named_in_the_log(broker: SecuredReference) -> None:
    with socket.create_connection(("127.0.0.1", broker.ports["SSL"]), WITHIN_S) as plain:
        plain.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\0\0")
        assert plain.recv(100)[:2] == b"\x15\x03"  # an alert of TLS
        assert plain.recv(100) == b""
    wait_for_line(broker, "the TLS handshake failed: the client does not speak TLS")
    with socket.create_connection(("127.0.0.1", broker.members[0].node.port), WITHIN_S) as raw, pytest.raises(OSError):
        ssl.create_default_context().wrap_socket(raw, server_hostname="localhost")
    wait_for_line(broker, "the client speaks TLS, and the listener PLAINTEXT does not")
    with pytest.raises(OSError), tls_to(broker, "MUTUAL") as connection:
        connection.sendall(b"\0\0\0\0")
        assert connection.recv(1) != b""
        raise AssertionError("served without a certificate")
    wait_for_line(broker, "the client has shown no certificate, and ssl.client.auth=required")


def test_a_failed_authentication_is_one_line_without_the_password(broker: SecuredReference) -> None:
    security = ClientSecurity.of(broker.client("SASL_SSL", "PLAIN", password="not hers"))
    with Tunnels(security) as tunnels, pytest.raises(Exception, match="SASL_AUTHENTICATION_FAILED"):
        tunnels.check("localhost", broker.ports["SASL_SSL"])
    wait_for_line(broker, "authentication failed: Authentication failed: Invalid username or password")
    assert "not hers" not in log_of(broker) and PASSWORD not in log_of(broker)


def test_a_new_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    with SecuredReference(tmp_path, tmp_path) as broker:
        with tls_to(broker, "SSL") as connection:
            first = connection.getpeercert(binary_form=True)
        broker._store("broker", broker.authority.issue_cert("localhost"))
        with tls_to(broker, "SSL") as connection:
            second = connection.getpeercert(binary_form=True)
        assert first != second
        (tmp_path / "broker.pem").write_text("nothing")
        with tls_to(broker, "SSL") as connection:
            assert connection.getpeercert(binary_form=True) == second
        wait_for_line(broker, "certificates have changed and cannot be used, the former ones stay")


class InnerSecurity(SecuredReference):
    """Three nodes that use SASL_SSL among themselves, the brokers with this mechanism. Only nodes are authorized."""

    def __init__(self, folder: Path, secrets: Path, mechanism: str) -> None:
        ReferenceCluster.__init__(self, "reference:3", nodes=3, folder=folder)
        self.mechanism = mechanism
        self.secure(secrets, 2_000)
        self._store("broker", self.authority.issue_cert("127.0.0.1", "localhost"))

    def properties(self, member: Member) -> dict[str, str]:
        given = ReferenceCluster.properties(self, member)
        logins = {
            "controller.plain": f'{LOGIN}.plain.PlainLoginModule required username="n" password="p" user_n="p";',
            "inner.plain": f'{LOGIN}.plain.PlainLoginModule required username="n" password="p" user_n="p";',
            "inner.scram-sha-512": f'{LOGIN}.scram.ScramLoginModule required username="b" password="q";',
            "controller.scram-sha-512": f"{LOGIN}.scram.ScramLoginModule required;",
        }
        own_port = self.inner_ports[member.node.id]
        return given | {
            "listeners": f"{given['listeners']},INNER://127.0.0.1:{own_port}",
            "advertised.listeners": f"{given['advertised.listeners']},INNER://127.0.0.1:{own_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL,INNER:SASL_SSL",
            "inter.broker.listener.name": "INNER",
            "sasl.mechanism.inter.broker.protocol": self.mechanism,
            "sasl.mechanism.controller.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "connections.max.reauth.ms": str(self.session_ms),
            "ssl.keystore.location": str(self.secrets / "broker.p12"),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.truststore.location": str(self.secrets / "ca.pem"),
            "ssl.truststore.type": "PEM",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:n;User:b",
            **{f"listener.name.{name}.sasl.jaas.config": text for name, text in logins.items()},
        }

    def format(self, member: Member) -> None:
        arguments = ["--cluster-id", self.cluster_id, "--add-scram", "SCRAM-SHA-512=[name=b,password=q]"]
        done = CliRunner().invoke(app, ["format", str(member.properties_file), *arguments])
        assert done.exit_code == 0, done.output

    @property
    def inner_ports(self) -> dict[int, int]:
        return dict(enumerate(self.ports.values(), start=self.members[0].node.id))

    def open(self) -> None:
        ReferenceCluster.open(self)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_nodes_speak_sasl_over_tls_among_themselves_and_authenticate_again(tmp_path: Path, mechanism: str) -> None:
    with InnerSecurity(tmp_path, tmp_path, mechanism) as cluster:
        node = cluster.nodes[0]
        assert len(listed_brokers(node.host, node.port)) == 3
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=3, replication_factor=3)
        asked = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        with Wire.connect(node.host, node.port) as wire:
            assert wire.call(asked).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        login = f'{LOGIN}.plain.PlainLoginModule required username="n" password="p";'
        as_node = ClientSecurity.of(cluster.client("SASL_SSL", "PLAIN") | {"sasl.jaas.config": login})
        with Tunnels(as_node) as tunnels, Wire.connect(*tunnels.to("localhost", cluster.inner_ports[node.id])) as wire:
            assert wire.call(asked).topics[0].error_code == 0
            time.sleep(2 * cluster.session_ms / 1000)  # sessions end meanwhile, and are renewed
            wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
            (found,) = wire.call(wanted).topics
        assert all(len(partition.isr_nodes) == 3 for partition in found.partitions)
        for number in range(3):
            log = log_of(cluster, number)
            assert "authentication failed" not in log and "has expired, and the client did not" not in log
            assert "Traceback" not in log and "cannot be asked" not in log


def test_only_authentication_is_answered_before_it(broker: SecuredReference) -> None:
    with Wire.connect("127.0.0.1", broker.ports["SASL_PLAINTEXT"]) as wire:
        assert 17 in wire.versions()
        with pytest.raises(WireClosed):
            wire.call(MetadataRequest(topics=[]))
    wait_for_line(broker, "API 3 was asked before authentication")
    assert USER not in log_of(broker)


class WithAuthorizer(SecuredReference):
    """alice may do everything; others nothing but what ACLs allow them, and there are none."""

    def properties(self, member: Member) -> dict[str, str]:
        return super().properties(member) | {
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:ANONYMOUS;User:{USER}",  # in plaintext: the broker itself, and who prepares this test
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{LOGIN}.plain.PlainLoginModule required user_bob="b" user_{USER}="a";',
            "listener.name.mutual.ssl.principal.mapping.rules": f"RULE:^.*O=.*$/{USER}/",
        }


def test_what_a_client_may_do_is_by_the_principal_that_it_authenticated_as(tmp_path: Path) -> None:
    with WithAuthorizer(tmp_path, tmp_path) as broker:
        own = {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(tmp_path / "client.pem")}
        bob = {"sasl.jaas.config": f'{LOGIN}.plain.PlainLoginModule required username="bob" password="b";'}
        ways = {
            "alice": ("SASL_SSL", broker.client("SASL_SSL", "PLAIN", password="a"), 0),
            "bob": ("SASL_SSL", broker.client("SASL_SSL", "PLAIN") | bob, 29),
            "a certificate of hers": ("MUTUAL", broker.client("MUTUAL", **own), 0),
        }
        for name, (listener, properties, expected) in ways.items():
            topic = CreateTopicsRequest.CreatableTopic(
                name=name.partition(" ")[0], num_partitions=1, replication_factor=1
            )
            with Tunnels(ClientSecurity.of(properties)) as tunnels:
                wire = Wire.connect(*tunnels.to("localhost", broker.ports[listener]))
                answer = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
                assert answer.topics[0].error_code == expected, name
                wire.close()


class KeyServer(ThreadingHTTPServer):
    """Serves a set of keys, and counts how often it was asked."""

    def __init__(self, text: str) -> None:
        self.text, self.asked = text, 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked += 1
                self.send_response(200)
                self.end_headers()
                self.wfile.write(server.text.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/keys"


class FetchingReference(SecuredReference):
    """A reference that fetches its keys."""

    keys: KeyServer
    changes: dict[str, str]

    def properties(self, member: Member) -> dict[str, str]:
        return super().properties(member) | {KEYS_URL: self.keys.url, **self.changes}


def logs_in(broker: SecuredReference, token: str) -> bool:
    (broker.secrets / "token").write_text(token)
    with Tunnels(ClientSecurity.of(broker.client("OAUTH"))) as tunnels:
        try:
            return bool(listed_brokers(*tunnels.to("localhost", broker.ports["OAUTH"])))
        except WireError:
            return False


def test_keys_are_fetched_again_when_a_token_has_an_unknown_one(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    broker = FetchingReference(tmp_path / "broker", tmp_path / "secrets")
    newer = Signer("2")
    with KeyServer(key_set(broker.signer)) as broker.keys:
        broker.changes = {"sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "100"}
        with broker:
            assert logs_in(broker, broker.signer.token()) and broker.keys.asked == 1
            assert not logs_in(broker, Signer("1").token())  # another key of the same name: no newer set would help
            assert not logs_in(broker, broker.signer.token(ends_in_s=-60))
            broker.keys.text = key_set(newer)
            await_true(lambda: logs_in(broker, newer.token()))
            assert not logs_in(broker, broker.signer.token())
            broker.keys.text = "no set"
            await_true(lambda: not logs_in(broker, Signer("3").token()) and "the former ones stay" in log_of(broker))
            assert logs_in(broker, newer.token())
        broker.keys.shutdown()


def test_keys_that_cannot_be_fetched_refuse_the_start(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    broker = FetchingReference(tmp_path / "broker", tmp_path / "secrets")
    broker.changes = {KEYS_URL: "http://127.0.0.1:1/keys"}
    with (
        KeyServer("") as broker.keys,
        pytest.raises(TargetError, match=r"jwks\.endpoint\.url=http://127\.0\.0\.1:1/keys"),
    ):
        broker.open()
