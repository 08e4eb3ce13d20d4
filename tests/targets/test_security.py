"""Secured brokers are reached by the properties of Kafka's own clients: TLS, SASL, and a clear error where that fails."""

import re
import sys

import pytest
from typer.testing import CliRunner

from linearizability.targets import Access, TargetError, open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.security import ClientSecurity, SecurityError, Tunnels
from linearizability.targets.wire import Wire, WireError, listed_brokers
from tests.targets.secured_kafka import PASSWORD, STORE_PASSWORD, SecuredKafka, SecuredReference

JAAS = 'x.PlainLoginModule required username="u" password="p";'


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism=GSSAPI"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": 'x required a="b" c'}, "sasl.jaas.config"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": 'x required a="b" c;'}, "option 2"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "token.endpoint.url"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/trust.jks"}, "ssl.truststore.type=JKS"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/nowhere.pem"}, "/nowhere.pem"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "/nowhere.p12"}, "/nowhere.p12"),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.1"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "NULL"}, "ssl.cipher.suites"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"}, "ldaps"),
        ({"security.protocol": "SSL", "ssl.engine.factory.class": "x"}, "ssl.engine.factory.class"),
        ({"security.providers": "x"}, "security.providers"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_by_name(properties, named):
    with pytest.raises(SecurityError, match=named.replace(".", r"\.")):
        ClientSecurity.of(properties)


def test_a_file_is_read_as_java_reads_it_and_its_secrets_are_not_shown(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(
        "# of the team\nsecurity.protocol: SASL_PLAINTEXT\nacks=all\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=x.PlainLoginModule required \\\n  username="u" \\\n  password="q\\\\"\\u0041";\n'
    )
    security = ClientSecurity.read(file)
    mechanism = security.authentication()
    assert mechanism is not None and mechanism.first() == b'\0u\0q"A'
    assert str(security) == "SASL_PLAINTEXT PLAIN"
    assert 'q"A' not in repr(security)
    file.write_text("security.protocol\n")
    with pytest.raises(SecurityError, match=r"client\.properties: line 1 is not NAME=VALUE"):
        ClientSecurity.read(file)


def test_a_target_that_the_suite_starts_takes_no_client_configuration(tmp_path):
    security = ClientSecurity.of(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS}
    )
    with pytest.raises(ValueError, match="started here, without security"):
        open_target("reference:1", folder=tmp_path, access=Access(security=security))


@pytest.mark.parametrize(
    ("spec", "protocol"),
    [
        ("reference:1", "SSL"),
        ("reference:1", "SASL_PLAINTEXT"),
        pytest.param("mixed:kafka:4.3.1,reference", "SASL_SSL", marks=pytest.mark.kafka),
    ],
)
def test_a_cluster_is_started_with_a_secured_listener(tmp_path, spec, protocol):
    with open_target(spec, folder=tmp_path, protocol=protocol) as target:
        assert {each.node_id for each in listed_brokers(target.nodes[0].host, target.nodes[0].port)} == {
            each.id for each in target.nodes
        }
        assert isinstance(target, ClusterTarget)
        listener = target.members[0].node
        with pytest.raises(WireError):
            listed_brokers(listener.host, listener.port)
        assert target.security is not None
        password = target.security.login.get("password", "no password")
    left = "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    assert f"SECURED:{protocol}" in left
    assert password not in left and "PRIVATE KEY" not in left


def test_a_target_without_listeners_of_ours_is_not_secured(tmp_path):
    with pytest.raises(ValueError, match="is not secured here"):
        open_target("addr:127.0.0.1:9092", folder=tmp_path, protocol="SSL")


@pytest.fixture(scope="module", params=[SecuredReference, pytest.param(SecuredKafka, marks=pytest.mark.kafka)])
def kafka(request, tmp_path_factory):
    secrets = tmp_path_factory.mktemp("secrets")
    with request.param(tmp_path_factory.mktemp("kafka"), secrets) as broker:
        yield broker


WAYS = [
    ("SSL", ""), ("MUTUAL", ""), ("OAUTH", ""),
    *((listener, mechanism) for listener in ("SASL_SSL", "SASL_PLAINTEXT") for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
]  # fmt: skip


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_every_way_in_leads_to_the_broker(kafka, tmp_path, listener, mechanism):
    own = (
        {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(kafka.secrets / "client.pem")}
        if listener == "MUTUAL"
        else {}
    )
    security = ClientSecurity.of(kafka.client(listener, mechanism, **own))
    with open_target(kafka.address(listener), folder=tmp_path, access=Access(security=security)) as target:
        node = target.nodes[0]
        assert [one.port for one in listed_brokers(node.host, node.port)] == [kafka.ports[listener]]
        assert target.addresses.reach("localhost", kafka.ports[listener]) == (node.host, node.port)
        assert PASSWORD not in str(target.describe())


def test_a_listener_that_wants_sasl_is_suspected(kafka, tmp_path):
    with pytest.raises(TargetError, match="does this listener want SASL"):
        open_target(kafka.address("SASL_PLAINTEXT"), folder=tmp_path).open()


def test_stores_may_be_pkcs12(kafka):
    stores = {
        f"ssl_{store}_{name}": value
        for store in ("truststore", "keystore")
        for name, value in {
            "type": "PKCS12",
            "location": str(kafka.secrets / "client.p12"),
            "password": STORE_PASSWORD,
        }.items()
    }
    with Tunnels(ClientSecurity.of(kafka.client("MUTUAL", **stores))) as tunnels:
        assert listed_brokers(*tunnels.to("localhost", kafka.ports["MUTUAL"]))


@pytest.mark.parametrize(
    ("listener", "changes", "said"),
    [
        ("SASL_SSL", {"mechanism": "PLAIN", "password": "wrong"}, "SASL_AUTHENTICATION_FAILED"),
        ("SASL_SSL", {"mechanism": "SCRAM-SHA-256", "password": "wrong"}, "SASL_AUTHENTICATION_FAILED"),
        ("SASL_PLAINTEXT", {"mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_endpoint_url": "file:///dev/null"}, "OAUTHBEARER is none of PLAIN"),
        ("SSL", {"ssl_truststore_location": "stranger.pem"}, "the broker's certificate is refused"),
        ("SASL_PLAINTEXT", {"mechanism": "PLAIN", "security_protocol": "SASL_SSL"}, "TLS handshake"),
        ("SASL_SSL", {"mechanism": "PLAIN", "security_protocol": "SASL_PLAINTEXT"}, "the listener speaks TLS"),
        ("MUTUAL", {}, "does not answer"),
    ],
)  # fmt: skip
def test_a_way_that_is_barred_is_reported_with_its_reason(kafka, tmp_path, listener, changes, said):
    given = dict(changes)
    if "ssl_truststore_location" in given:
        given["ssl_truststore_location"] = str(kafka.secrets / given["ssl_truststore_location"])
    security = ClientSecurity.of(kafka.client(listener, **given))
    with (
        pytest.raises(TargetError, match=said) as failed,
        open_target(kafka.address(listener), folder=tmp_path, access=Access(security=security)),
    ):
        pass
    assert PASSWORD not in str(failed.value) and "wrong" not in str(failed.value)


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("SASL_PLAINTEXT", "PLAIN is refused: no mechanism is offered"),
        ("SASL_SSL", r"does this listener speak TLS\?"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("spec", ["reference:1", pytest.param("kafka:4.3.1", marks=pytest.mark.kafka)])
def test_a_listener_in_plaintext_is_told_from_a_secured_one(spec, protocol, said, tmp_path):
    """No reason is empty."""
    security = ClientSecurity.of({"security.protocol": protocol, "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS})
    with open_target(spec, folder=tmp_path / "plain") as plain, pytest.raises(TargetError) as failed:
        open_target(f"addr:{plain.bootstrap}", folder=tmp_path, access=Access(security=security)).open()
    assert re.search(said, str(failed.value)), failed.value


def test_an_adapter_says_how_its_broker_is_secured(kafka, tmp_path):
    path = tmp_path / "adapter.py"
    results = {
        "describe": {"contract": 1, "name": "secured", "client": kafka.client("SASL_SSL", "PLAIN")},
        "start": {"nodes": [{"id": 1, "host": "localhost", "port": kafka.ports["SASL_SSL"]}]},
    }
    path.write_text(
        f"import json, sys\nfor line in sys.stdin:\n    asked = json.loads(line)\n    ok = {results!r}.get(asked['command'], {{}})\n"
        "    print(json.dumps({'id': asked['id'], 'ok': ok}), flush=True)\n"
    )
    with open_target(f"exec:{sys.executable} {path}", folder=tmp_path) as target:
        node = target.nodes[0]
        assert [one.port for one in listed_brokers(node.host, node.port)] == [kafka.ports["SASL_SSL"]]
        assert PASSWORD not in str(target.describe())


def test_the_certificate_must_name_the_host(kafka):
    strict, lax = (
        ClientSecurity.of(kafka.client("SSL", **changes))
        for changes in ({}, {"ssl_endpoint_identification_algorithm": ""})
    )
    with Tunnels(strict) as tunnels, pytest.raises(SecurityError, match="certificate is refused"):
        tunnels.check("127.0.0.1", kafka.ports["SSL"])
    with Tunnels(lax) as tunnels:
        tunnels.check("127.0.0.1", kafka.ports["SSL"])
    with Tunnels(strict) as tunnels:
        assert listed_brokers(*tunnels.to("127.0.0.1", kafka.ports["SSL"], name="localhost"))


def test_a_broker_that_ended_is_seen_as_one_that_closes(kafka):
    with Tunnels(ClientSecurity.of(kafka.client("SSL"))) as tunnels, pytest.raises(WireError):
        Wire.connect(*tunnels.to("localhost", 1)).versions()


def test_requirements_are_judged_on_a_secured_broker(kafka, tmp_path):
    from tidegauge import app

    file = tmp_path / "client.properties"
    lines = kafka.client("SASL_SSL", "SCRAM-SHA-512", client_id="of-the-judge")
    lines["sasl.jaas.config"] = lines["sasl.jaas.config"].replace("\\", "\\\\")
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    target = ["--target", kafka.address("SASL_SSL"), "--client-config", str(file)]
    command = ["run", "FRM", "PRD-01..PRD-06", "CGH-20", *target, "--results", str(tmp_path / "results"), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert '"verdict": "fail"' not in done.output
    stored = "".join(path.read_text() for path in (tmp_path / "results").rglob("report.json"))
    assert '"security": "SASL_SSL SCRAM-SHA-512"' in stored or '"security":"SASL_SSL SCRAM-SHA-512"' in stored
    assert b"of-the-judge".hex() in stored
    assert PASSWORD not in stored
