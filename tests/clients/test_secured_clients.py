"""Real clients on the reference's secured listeners: each protocol and mechanism, and what a wrong password looks like."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaProvider
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer  # pyright: ignore[reportAttributeAccessIssue]
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonProvider

from tests.targets.secured_kafka import LOGIN, PASSWORD, USER, SecuredReference
from tests.tools.jvm import Tools, run_in_own_jvm

pytestmark = pytest.mark.process
WITHIN_S = 60
VALUES = [f"value {number}" for number in range(200)]
WAYS = [
    ("SSL", ""), ("MUTUAL", ""), ("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-256"), ("SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_PLAINTEXT", "PLAIN"), ("SASL_PLAINTEXT", "SCRAM-SHA-256"), ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ("OAUTH", "OAUTHBEARER"),
]  # fmt: skip
OF_TOOLS = WAYS[:-1]
"""Without OAUTHBEARER: Java reads a token only from a URL that its command line allows, as in `test_java_logs_in_by_a_token`."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredReference]:
    with SecuredReference(tmp_path_factory.mktemp("broker"), tmp_path_factory.mktemp("secrets")) as opened:
        yield opened


def protocol_of(listener: str) -> str:
    return {"MUTUAL": "SSL", "OAUTH": "SASL_SSL"}.get(listener, listener)


def confluent(secured: SecuredReference, listener: str, mechanism: str, password: str, topic: str) -> list[str]:
    common = {
        "bootstrap.servers": f"localhost:{secured.ports[listener]}",
        "security.protocol": protocol_of(listener),
        "ssl.ca.location": str(secured.secrets / "ca.pem"),
    }
    if listener == "MUTUAL":
        own = str(secured.secrets / "client.pem")
        common |= {"ssl.certificate.location": own, "ssl.key.location": own}
    if mechanism == "OAUTHBEARER":
        common |= {"sasl.mechanism": mechanism, "oauth_cb": lambda _: (secured.signer.token(), time.time() + 3600)}
    elif mechanism:
        common |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password}
    refused: list[Any] = []
    producer = Producer(
        {**common, "enable.idempotence": True, "error_cb": refused.append, "message.timeout.ms": 30_000}
    )
    for value in VALUES:
        producer.produce(topic, value)
    while producer.flush(0.1):
        fatal = [error for error in refused if error.name() == "_AUTHENTICATION"]
        if fatal:
            producer.purge()
            raise KafkaException(fatal[0])
    consumer = Consumer({**common, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[str] = []
    while len(found) < len(VALUES):
        message = consumer.poll(WITHIN_S)
        assert message is not None and message.error() is None
        found.append((message.value() or b"").decode())
    consumer.close()
    return found


def context_of(secured: SecuredReference, listener: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(secured.secrets / "ca.pem"))
    if listener == "MUTUAL":
        context.load_cert_chain(str(secured.secrets / "client.pem"))
    return context


def python_settings(secured: SecuredReference, listener: str, mechanism: str, password: str) -> dict[str, Any]:
    """kafka-python and aiokafka name them alike."""
    given: dict[str, Any] = {
        "bootstrap_servers": f"localhost:{secured.ports[listener]}",
        "security_protocol": protocol_of(listener),
    }
    if protocol_of(listener).endswith("SSL"):
        given["ssl_context"] = context_of(secured, listener)
    if mechanism == "OAUTHBEARER":
        given["sasl_mechanism"] = mechanism
    elif mechanism:
        given |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": password}
    return given


class KafkaPythonTokens(KafkaPythonProvider):
    def __init__(self, secured: SecuredReference) -> None:
        self._secured = secured

    def token(self) -> str:
        return self._secured.signer.token()


class AiokafkaTokens(AiokafkaProvider):
    def __init__(self, secured: SecuredReference) -> None:
        self._secured = secured

    async def token(self) -> str:
        return self._secured.signer.token()


def kafka_python(secured: SecuredReference, listener: str, mechanism: str, password: str, topic: str) -> list[str]:
    settings = python_settings(secured, listener, mechanism, password)
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = KafkaPythonTokens(secured)
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value.encode())
    producer.flush(WITHIN_S)
    producer.close()
    consumer = KafkaConsumer(
        topic, **settings, auto_offset_reset="earliest", group_id=topic, consumer_timeout_ms=WITHIN_S * 1000
    )
    found = [message.value.decode() for _, message in zip(VALUES, consumer, strict=False)]
    consumer.close()
    return found


def aiokafka(secured: SecuredReference, listener: str, mechanism: str, password: str, topic: str) -> list[str]:
    async def run() -> list[str]:
        settings = python_settings(secured, listener, mechanism, password)
        if mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = AiokafkaTokens(secured)
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send(topic, value.encode())
        async with AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest", group_id=topic) as consumer:
            return [((await consumer.getone()).value or b"").decode() for _ in VALUES]

    return asyncio.run(asyncio.wait_for(run(), WITHIN_S))


CLIENTS: dict[str, Callable[[SecuredReference, str, str, str, str], list[str]]] = {
    "librdkafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_produces_and_consumes(secured: SecuredReference, client: str, listener: str, mechanism: str) -> None:
    topic = f"{client}-{listener}-{mechanism}"
    assert CLIENTS[client](secured, listener, mechanism, PASSWORD, topic) == VALUES


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    "client", ["librdkafka", "aiokafka"]
)  # kafka-python tries again for as long as it may, also at Kafka
def test_a_wrong_password_is_an_authentication_error(
    secured: SecuredReference, caplog: pytest.LogCaptureFixture, client: str, mechanism: str
) -> None:
    with pytest.raises((KafkaException, AiokafkaError)) as refused:
        CLIENTS[client](secured, "SASL_SSL", mechanism, "another", "never")
    assert "Authentication failed" in f"{refused.value} {caplog.text}"  # aiokafka logs what it was answered


def properties_file(folder: Path, properties: dict[str, str]) -> Path:
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n".replace("\\", "\\\\") for name, value in properties.items()))
    return path


@pytest.mark.sampled(days=5)
@pytest.mark.java
@pytest.mark.parametrize(("listener", "mechanism"), OF_TOOLS)
def test_kafkas_tools_produce_and_list(
    secured: SecuredReference, tools: Tools, tmp_path: Path, listener: str, mechanism: str
) -> None:
    own = {}
    if listener == "MUTUAL":
        own = {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(secured.secrets / "client.pem")}
    config = properties_file(tmp_path, secured.client(listener, mechanism, **own))
    where = ("--bootstrap-server", f"localhost:{secured.ports[listener]}")
    topic = f"java-{listener}-{mechanism}"
    lines = "".join(f"{value}\n" for value in VALUES)
    tools.run("kafka-console-producer", *where, "--topic", topic, "--command-config", config, stdin=lines).well()
    assert topic in tools.run("kafka-topics", *where, "--command-config", config, "--list").well().splitlines()
    reading = ("--topic", topic, "--from-beginning", "--max-messages", len(VALUES))
    seen = tools.run("kafka-console-consumer", *where, *reading, "--command-config", config).well()
    assert seen.splitlines()[: len(VALUES)] == VALUES


@pytest.mark.java
def test_kafka_configs_sets_and_removes_a_password(secured: SecuredReference, tools: Tools, tmp_path: Path) -> None:
    admin = properties_file(tmp_path, secured.client("SASL_SSL", "PLAIN"))
    where = ("--bootstrap-server", f"localhost:{secured.ports['SASL_SSL']}", "--command-config")
    bob = ("--alter", "--entity-type", "users", "--entity-name", "bob")
    said = tools.run(
        "kafka-configs", *where, admin, *bob, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=pw]"
    )
    assert "Completed updating config for user bob" in said.well()
    login = f'{LOGIN}.scram.ScramLoginModule required username="bob" password="pw";'
    folder = tmp_path / "bob"
    folder.mkdir()
    config = properties_file(folder, secured.client("SASL_SSL", "SCRAM-SHA-256") | {"sasl.jaas.config": login})
    tools.run("kafka-topics", *where, config, "--list").well()
    tools.run("kafka-configs", *where, admin, *bob, "--delete-config", "SCRAM-SHA-256").well()
    refused = tools.run("kafka-topics", *where, config, "--list")
    assert refused.code != 0 and "Authentication failed" in refused.out + refused.errors


@pytest.mark.java
def test_kafkas_tools_say_what_is_wrong(secured: SecuredReference, tools: Tools, tmp_path: Path) -> None:
    config = properties_file(tmp_path, secured.client("SASL_SSL", "PLAIN", password="another"))
    where = ("--bootstrap-server", f"localhost:{secured.ports['SASL_SSL']}", "--command-config", config)
    refused = tools.run("kafka-topics", *where, "--list")
    assert refused.code != 0
    assert "Authentication failed: Invalid username or password" in refused.out + refused.errors


@pytest.mark.java
def test_java_logs_in_by_a_token(secured: SecuredReference, tmp_path: Path) -> None:
    login = f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required;"
    handler = f"{LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"
    changes = {"sasl_jaas_config": login, "sasl_login_callback_handler_class": handler}
    config = properties_file(tmp_path, secured.client("OAUTH", **changes))
    url = (secured.secrets / "token").as_uri()
    where = ("--bootstrap-server", f"localhost:{secured.ports['OAUTH']}", "--command-config", config)
    option = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"
    made = run_in_own_jvm("kafka-topics", *where, "--create", "--topic", "by-java", jvm=(option,))
    assert "Created topic by-java" in made.well()
