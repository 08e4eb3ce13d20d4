"""A client of a listener with SASL, step by step, for the requirements of the area SEC."""

from __future__ import annotations

import hashlib
from typing import Any

from conformance.answers import only
from conformance.broker import Broker
from conformance.wire import BrokerConnection, Closed, Failed
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.describe_cluster import DescribeClusterRequest
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest
from reference.protocol.schema import Message
from reference.security.errors import WrongSecurity
from reference.security.scram_client import ScramExchange

USER, PASSWORD = "suite", "of the suite"
OTHER, OTHER_PASSWORD = "other", "of the other"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
"""Mechanism -> its number in credentials, and its hash."""

SESSION_MS = 3_000
LIMITED = "SCRAM-SHA-512"
"""The mechanism whose sessions end after SESSION_MS."""

ITERATIONS = 4096
SALT = b"a salt of the suite"
LOGIN = "org.apache.kafka.common.security"
ON_CONTROLLER = "listener.name.controller."
SASL = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "sasl.mechanism.controller.protocol": "PLAIN",
    f"{ON_CONTROLLER}plain.sasl.jaas.config": f"{LOGIN}.plain.PlainLoginModule required "
    f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}" user_{OTHER}="{OTHER_PASSWORD}";',
    **{f"{ON_CONTROLLER}{name.lower()}.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;" for name in SCRAM},
    f"{ON_CONTROLLER}{LIMITED.lower()}.connections.max.reauth.ms": str(SESSION_MS),
}  # fmt: skip
APIS = {"DescribeQuorum": 2}
WITH_CREDENTIALS = {**APIS, "AlterUserScramCredentials": 0}
EXPOSED = "security: a client is served without authentication, or is taken for another user"
LOCKED_OUT = (
    "stuck: Java, librdkafka and franz-go cannot log in, or wait for ever instead of reporting a wrong password"
)
_METADATA = DescribeQuorumRequest.TopicData(
    topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
)
WHO_LEADS = DescribeQuorumRequest(topics=[_METADATA])
ASKED: tuple[tuple[Message, int], ...] = (
    (DescribeClusterRequest(endpoint_type=2), 1),
    (WHO_LEADS, 2),
    (CreateTopicsRequest(topics=[], timeout_ms=1000), 7),
    (FetchRequest(max_wait_ms=0, topics=[]), 13),
)
"""Requests that a controller's listener serves to authenticated clients."""


# ---- a client of the SASL listener


def unauthenticated(broker: Broker) -> BrokerConnection:
    """A new connection to the SASL listener of the active controller."""
    answer = broker.call(WHO_LEADS, 2)
    quorum = only(only(answer.topics, "topic of the quorum").partitions, "partition of the quorum")
    node = only([one for one in answer.nodes if one.node_id == quorum.leader_id], "node that leads the quorum")
    listener = only(node.listeners, "listener of the controller")
    return broker.connect((listener.host, listener.port))


def shake_hands(broker: Broker, connection: BrokerConnection, mechanism: str, version: int = 1) -> Any:
    answer = connection.call(SaslHandshakeRequest(mechanism=mechanism), version)
    broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"SaslHandshake for {mechanism}")
    return answer


def begun(broker: Broker, mechanism: str, version: int = 1) -> BrokerConnection:
    """A new connection after SaslHandshake for a mechanism."""
    connection = unauthenticated(broker)
    shake_hands(broker, connection, mechanism, version)
    return connection


def say(connection: BrokerConnection, message: str | bytes, version: int = 2) -> Any:
    """Send one message of a mechanism in SaslAuthenticate, and return the response."""
    data = message.encode() if isinstance(message, str) else message
    return connection.call(SaslAuthenticateRequest(auth_bytes=data), version)


def plain(user: str = USER, password: str = PASSWORD, acts_as: str = "") -> str:
    return f"{acts_as}\0{user}\0{password}"


def log_in_plain(broker: Broker, user: str = USER, password: str = PASSWORD) -> BrokerConnection:
    connection = begun(broker, "PLAIN")
    broker.expect_error(say(connection, plain(user, password)).error_code, ErrorCode.NONE, what="SaslAuthenticate")
    return connection


def exchange_scram(
    broker: Broker,
    connection: BrokerConnection,
    mechanism: str,
    user: str,
    password: str,
    extension: str = "",
    version: int = 2,
) -> Any:
    """Run a whole SCRAM exchange, in which the server must prove its knowledge of the password, and return the last
    response."""
    shake_hands(broker, connection, mechanism)
    client = ScramExchange(mechanism, user, password, extension)
    said: bytes | None = client.first()
    while True:
        answer = say(connection, said, version)
        if answer.error_code:
            return answer
        try:
            said = client.answer(bytes(answer.auth_bytes))
        except WrongSecurity as error:
            raise Failed(f"{mechanism}: {error}") from error
        if said is None:
            return answer


def set_password(broker: Broker, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
    number, hash_name = SCRAM[mechanism]
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), SALT, ITERATIONS)
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user, mechanism=number, iterations=ITERATIONS, salt=SALT, salted_password=salted
    )
    answer = broker.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))
    broker.expect_error(only(answer.results, "result").error_code, ErrorCode.NONE, what="AlterUserScramCredentials")


def delete_password(broker: Broker, user: str, mechanism: str) -> None:
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=user, mechanism=SCRAM[mechanism][0])
    answer = broker.call(AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]))
    broker.expect_error(only(answer.results, "result").error_code, ErrorCode.NONE, what="the deletion")


def accepted(broker: Broker, mechanism: str, user: str, password: str) -> bool:
    """Whether the user can log in: credentials take effect once the broker has replayed them."""
    return exchange_scram(broker, unauthenticated(broker), mechanism, user, password).error_code == ErrorCode.NONE


def log_in_scram(broker: Broker, mechanism: str, user: str = "") -> BrokerConnection:
    """Set the password of a user, by default a new one, and log in as soon as the listener accepts it. Returns the
    connection."""
    user = user or broker.unused_name("user")
    set_password(broker, user, PASSWORD, mechanism)
    broker.eventually(lambda: accepted(broker, mechanism, user, PASSWORD), f"{mechanism} takes the password")
    connection = unauthenticated(broker)
    exchange_scram(broker, connection, mechanism, user, PASSWORD)
    return connection


def expect_authenticated(
    broker: Broker, connection: BrokerConnection, what: str = "a request after authentication"
) -> None:
    answer = connection.call(WHO_LEADS, 2)
    broker.expect_error(answer.error_code, ErrorCode.NONE, what=what)


def expect_refused(broker: Broker, connection: BrokerConnection, answer: Any) -> None:
    """Require SASL_AUTHENTICATION_FAILED and a closed connection."""
    broker.expect_error(answer.error_code, ErrorCode.SASL_AUTHENTICATION_FAILED)
    broker.expect_closed(connection, what="the connection after the refusal")


def expect_not_served(broker: Broker, connection: BrokerConnection, request: Message, version: int) -> None:
    """Require that the request is not served: the connection closes, with or without ILLEGAL_SASL_STATE before."""
    try:
        answer = connection.call(request, version)
    except Closed:
        broker.saw(f"{type(request).__name__}: the connection was closed")
        return
    code = getattr(answer, "error_code", None)
    broker.expect(code == ErrorCode.ILLEGAL_SASL_STATE, f"{type(request).__name__} was answered with error {code}")
    broker.expect_closed(connection)
