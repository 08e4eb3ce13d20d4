"""SEC: the messages of SCRAM, authorization identities, and requests before authentication."""

from __future__ import annotations

import time
from typing import Any

from conformance.broker import Broker
from conformance.requirement import requirement
from conformance.requirements.coordinators import java_hash
from conformance.sasl import (
    APIS,
    EXPOSED,
    LIMITED,
    LOCKED_OUT,
    OTHER,
    PASSWORD,
    SASL,
    SCRAM,
    SESSION_MS,
    USER,
    WHO_LEADS,
    WITH_CREDENTIALS,
    accepted,
    begun,
    delete_password,
    exchange_scram,
    expect_authenticated,
    expect_refused,
    log_in_plain,
    log_in_scram,
    plain,
    say,
    set_password,
    shake_hands,
    unauthenticated,
)
from conformance.wire import BrokerConnection, Closed
from linearizability.client.errors import error_of
from linearizability.client.requests import new_topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest

MECHANISM = "SCRAM-SHA-256"
MOST_BYTES = 512 * 1024
"""The default of sasl.server.max.receive.size."""


def first(broker: Broker, message: str) -> tuple[BrokerConnection, Any]:
    """Send a client's first message of SCRAM on a new connection; return the connection and the response."""
    connection = begun(broker, MECHANISM)
    return connection, say(connection, message)


# ---- SCRAM's first message


@requirement(
    "SEC-30",
    notices=EXPOSED,
    source="RFC 5802, section 6; ScramMessages.ClientFirstMessage",
    sentence="A first message of SCRAM that asks for channel binding, or has no header, is refused with "
    "SASL_AUTHENTICATION_FAILED, and the connection is closed.",
    accepted="SASL_AUTHENTICATION_FAILED(58), then closed; the same message without channel binding goes on",
    configs=SASL,
    apis=WITH_CREDENTIALS,
)
def channel_binding(broker: Broker) -> None:
    user = broker.unused_name("user")
    log_in_scram(broker, MECHANISM, user)
    for header in ("p=tls-unique,,", "p=tls-exporter,,", "x,,", ""):
        with broker.case(header or "no header"):
            expect_refused(broker, *first(broker, f"{header}n={user},r=nonceofclient"))
    _, answer = first(broker, f"n,,n={user},r=nonceofclient")
    broker.expect_equal("the error without channel binding", error_of(answer), ErrorCode.NONE)


@requirement(
    "SEC-31",
    notices=EXPOSED,
    source="RFC 5802, section 5.1; ScramSaslServer.evaluateResponse",
    sentence="A client of SCRAM that asks to act as another user is refused with SASL_AUTHENTICATION_FAILED; one that gives "
    "its own name goes on.",
    accepted="SASL_AUTHENTICATION_FAILED(58), then closed, for another name; error NONE(0) for its own",
    configs=SASL,
    apis=WITH_CREDENTIALS,
)
def acting_as_another(broker: Broker) -> None:
    user, other = broker.unused_name("user"), broker.unused_name("user")
    for each in (user, other):
        log_in_scram(broker, MECHANISM, each)
    for name in (other, USER, f"{user}x"):
        with broker.case(name):
            expect_refused(broker, *first(broker, f"n,a={name},n={user},r=nonceofclient"))
    _, answer = first(broker, f"n,a={user},n={user},r=nonceofclient")
    broker.expect_equal("the error with its own name", error_of(answer), ErrorCode.NONE)


@requirement(
    "SEC-32",
    notices=LOCKED_OUT,
    source="RFC 5802, section 5.1; ScramFormatter.username",
    sentence="In SCRAM a comma of a user's name is written =2C and an equals sign =3D: the name that they stand for is meant, "
    "and another escape is refused.",
    accepted="error NONE(0) for the escaped name of a user; SASL_AUTHENTICATION_FAILED(58) for another escape or none",
    configs=SASL,
    apis=WITH_CREDENTIALS,
)
def escaped_names(broker: Broker) -> None:
    stem = broker.unused_name("user")
    set_password(broker, f"{stem},a=b", PASSWORD)

    def error(name: str) -> int:
        return error_of(first(broker, f"n,,n={name},r=nonceofclient")[1])

    broker.eventually(lambda: error(f"{stem}=2Ca=3Db") == ErrorCode.NONE, "the escaped name is taken")
    for name in (f"{stem}=2Ca=3D", f"{stem}=2ca=3db", f"{stem}=2Ca=b", f"{stem}=2Ca=40b"):
        with broker.case(name.removeprefix(stem)):
            expect_refused(broker, *first(broker, f"n,,n={name},r=nonceofclient"))


# ---- users of the mechanisms


@requirement(
    "SEC-33",
    notices=EXPOSED,
    source="PlainServerCallbackHandler, ScramServerCallbackHandler",
    sentence="Each mechanism has users of its own: one of SCRAM is no user of PLAIN, and one of PLAIN none of SCRAM.",
    accepted="SASL_AUTHENTICATION_FAILED(58), then closed, with the right password of the other mechanism",
    configs=SASL,
    apis=WITH_CREDENTIALS,
)
def users_of_mechanisms(broker: Broker) -> None:
    user = broker.unused_name("user")
    for mechanism in SCRAM:
        log_in_scram(broker, mechanism, user)
    with broker.case("a user of SCRAM by PLAIN"):
        connection = begun(broker, "PLAIN")
        expect_refused(broker, connection, say(connection, plain(user)))
    for mechanism in SCRAM:
        with broker.case(f"a user of PLAIN by {mechanism}"):
            connection = unauthenticated(broker)
            expect_refused(broker, connection, exchange_scram(broker, connection, mechanism, USER, PASSWORD))


@requirement(
    "SEC-34",
    notices=EXPOSED,
    source="RFC 4616; PlainServerCallbackHandler",
    sentence="Names and passwords of PLAIN are compared to the letter: no case, space or part of them is left out.",
    accepted="SASL_AUTHENTICATION_FAILED(58), then closed",
    configs=SASL,
    apis=APIS,
)
def plain_to_the_letter(broker: Broker) -> None:
    for user, password in (
        (USER.upper(), PASSWORD),
        (f"{USER} ", PASSWORD),
        (USER, PASSWORD.upper()),
        (USER, PASSWORD[:-1]),
        (USER, f"{PASSWORD} "),
        (OTHER, PASSWORD),
    ):
        with broker.case(f"{user!r}, {password!r}"):
            connection = begun(broker, "PLAIN")
            expect_refused(broker, connection, say(connection, plain(user, password)))
    expect_authenticated(broker, log_in_plain(broker))


# ---- before authentication


@requirement(
    "SEC-35",
    notices=LOCKED_OUT,
    source="KIP-511; SaslServerAuthenticator.handleApiVersionsRequest",
    sentence="ApiVersions in a version that the broker does not know is answered before authentication in version 0, with "
    "UNSUPPORTED_VERSION, and the client may ask again and authenticate.",
    accepted="UNSUPPORTED_VERSION(35), then ApiVersions v0, SaslHandshake and SaslAuthenticate without error",
    configs=SASL,
    apis=APIS,
)
def unknown_versions(broker: Broker) -> None:
    connection = unauthenticated(broker)
    connection.send_bytes(NEWEST_VERSIONS)
    answer = connection.receive_frame()
    broker.expect_equal("the correlation id and the error", answer[:6], (7).to_bytes(4, "big") + b"\0\x23")
    broker.expect_equal("the error of v0", connection.call(ApiVersionsRequest(), 0).error_code, ErrorCode.NONE)
    shake_hands(broker, connection, "PLAIN")
    broker.expect_error(say(connection, plain()).error_code, ErrorCode.NONE)
    expect_authenticated(broker, connection)


NEWEST_VERSIONS = bytes.fromhex("0000000f 0012 7fff 00000007 0004 74657374 00".replace(" ", ""))
"""ApiVersions v32767 with the correlation id 7, of the client `test`."""


@requirement(
    "SEC-36",
    notices="security: a client that has not authenticated lets a broker hold as much memory as it likes",
    source="KIP-896; SaslServerAuthenticator, sasl.server.max.receive.size",
    sentence="Before authentication a request larger than sasl.server.max.receive.size closes the connection before it is "
    "complete; a smaller one is read.",
    accepted="closed after the size of 524,289; an answer to a request of almost 524,288 bytes",
    since="3.4",
    configs=SASL,
    apis=APIS,
)
def too_large(broker: Broker) -> None:
    with broker.case("a byte too much"):
        connection = unauthenticated(broker)
        connection.send_bytes((MOST_BYTES + 1).to_bytes(4, "big"))
        broker.expect_closed(connection)
    with broker.case("within an exchange"):
        connection = begun(broker, "PLAIN")
        connection.send_bytes((MOST_BYTES + 1).to_bytes(4, "big"))
        broker.expect_closed(connection)
    with broker.case("the largest"):
        connection = begun(broker, "PLAIN")
        token = plain(password="x" * (MOST_BYTES - 100))
        expect_refused(broker, connection, say(connection, token))
    expect_authenticated(broker, log_in_plain(broker))


@requirement(
    "SEC-37",
    notices=EXPOSED,
    source="KIP-152; SaslServerAuthenticator.authenticate",
    sentence="A request that a client sends behind a wrong password, without waiting for the answer, is not carried out.",
    accepted="SASL_AUTHENTICATION_FAILED(58), then closed, and no such topic",
    configs=SASL,
    apis=APIS,
)
def sent_ahead(broker: Broker) -> None:
    name = broker.unused_name()
    connection = begun(broker, "PLAIN")
    connection.send(SaslAuthenticateRequest(auth_bytes=plain(password="wrong").encode()), 2)
    connection.send(CreateTopicsRequest(topics=[new_topic(name)], timeout_ms=10_000), 7, awaited=False)
    expect_refused(broker, connection, connection.receive())
    broker.topic()  # by now the broker has handled all earlier requests
    answer = broker.metadata([MetadataRequest.MetadataRequestTopic(name=name)])
    broker.expect_equal("the error of Metadata for the topic", error_of(answer), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@requirement(
    "SEC-38",
    notices=EXPOSED,
    source="KIP-43; SaslServerAuthenticator.handleKafkaRequest",
    sentence="SaslHandshake in a version that the broker does not know is not taken for one that it knows.",
    accepted="closed",
    configs=SASL,
    apis=APIS,
)
def unknown_handshake(broker: Broker) -> None:
    connection = unauthenticated(broker)
    connection.send_bytes(HANDSHAKE_9)
    broker.expect_closed(connection)
    expect_authenticated(broker, log_in_plain(broker))


HANDSHAKE_9 = bytes.fromhex("00000015 0011 0009 00000007 0004 74657374 0005 504c41494e".replace(" ", ""))
"""SaslHandshake v9 for PLAIN."""


# ---- sessions


@requirement(
    "SEC-39",
    notices=EXPOSED,
    source="KIP-368; SaslServerAuthenticator.ReauthInfo",
    sentence="The session of a client that authenticated in SaslAuthenticate v0, which names no end, ends all the same.",
    accepted="closed without an answer after connections.max.reauth.ms",
    configs=SASL,
    apis=WITH_CREDENTIALS,
)
def old_sessions_end(broker: Broker) -> None:
    user = broker.unused_name("user")
    log_in_scram(broker, LIMITED, user)
    connection = unauthenticated(broker)
    broker.expect_error(
        exchange_scram(broker, connection, LIMITED, user, PASSWORD, version=0).error_code, ErrorCode.NONE
    )
    began = time.monotonic()

    def is_over() -> bool:
        asked = time.monotonic()
        try:
            connection.call(WHO_LEADS, 2)
        except Closed:
            return True
        broker.expect(asked < began + SESSION_MS / 1000, "no request after the session is answered")
        return False

    broker.eventually(is_over, "the connection is closed", within_s=10 * SESSION_MS / 1000)


@requirement(
    "SEC-40",
    notices=LOCKED_OUT,
    source="KIP-554: credentials are records of the metadata log",
    sentence="After a restart of the broker users log in by the passwords that were set before, and by no others.",
    accepted="error NONE(0) for the password, SASL_AUTHENTICATION_FAILED(58) for the one before it",
    configs=SASL,
    apis=WITH_CREDENTIALS,
    hooks=("restart",),
    alone=True,  # where other users were deleted, a restart of Kafka may lose those that are left (ScramDelta.apply)
    deadline_s=60.0,
)
def after_a_restart(broker: Broker) -> None:
    user = broker.unused_name("user")
    log_in_scram(broker, MECHANISM, user)
    set_password(broker, user, "changed")
    broker.eventually(lambda: accepted(broker, MECHANISM, user, "changed"), "the new password is accepted")
    broker.restart_leader(broker.topic())
    broker.eventually(lambda: accepted(broker, MECHANISM, user, "changed"), "the password is accepted again")
    broker.expect(not accepted(broker, MECHANISM, user, PASSWORD), "the password before it is refused")


@requirement(
    "SEC-44",
    notices=LOCKED_OUT,
    source="KIP-554: credentials are records of the metadata log, and a deletion is of one user and one mechanism",
    sentence="After a restart of the broker the users log in that are left of a mechanism, and no user whose credentials were "
    "deleted.",
    accepted="error NONE(0) for a user that was not deleted, SASL_AUTHENTICATION_FAILED(58) for one that was",
    configs=SASL,
    apis=WITH_CREDENTIALS,
    hooks=("restart",),
    alone=True,  # users of other requirements change what Kafka replays
    deadline_s=60.0,
)
def others_after_a_restart(broker: Broker) -> None:
    # Kafka replays changes of users in the order of a table of 16 places, and loses those that follow a deletion. The mechanism
    # is not the one of SEC-40, which shares this start.
    mechanism = "SCRAM-SHA-512"
    deleted, left = sorted((broker.unused_name("user") for _ in range(2)), key=_place_in_a_java_table)
    log_in_scram(broker, mechanism, deleted)
    log_in_scram(broker, mechanism, left)
    delete_password(broker, deleted, mechanism)
    broker.eventually(lambda: not accepted(broker, mechanism, deleted, PASSWORD), "the deleted user is refused")
    broker.restart_leader(broker.topic())
    broker.eventually(lambda: accepted(broker, mechanism, left, PASSWORD), "the user that is left is accepted again")
    broker.expect(not accepted(broker, mechanism, deleted, PASSWORD), "the deleted user is refused")


def _place_in_a_java_table(name: str) -> int:
    hashed = java_hash(name) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) % 16
