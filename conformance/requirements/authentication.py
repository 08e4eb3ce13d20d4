"""SEC: authentication by SASL: handshake, mechanisms, failures, sessions that end, credentials.

The suite configures SASL on the controllers' listener: every node of a KRaft cluster has one, at an address that DescribeQuorum
reports, and the suite's other connections are not affected.
"""

from __future__ import annotations

import time

from conformance.broker import Broker
from conformance.requirement import requirement
from conformance.sasl import (
    APIS,
    ASKED,
    EXPOSED,
    ITERATIONS,
    LIMITED,
    LOCKED_OUT,
    MECHANISMS,
    OTHER,
    OTHER_PASSWORD,
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
    expect_not_served,
    expect_refused,
    log_in_plain,
    log_in_scram,
    plain,
    say,
    set_password,
    shake_hands,
    unauthenticated,
)
from conformance.wire import Closed
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest

# ---- before authentication


@requirement(
    "SEC-01",
    notices=LOCKED_OUT,
    source="KIP-43; SaslServerAuthenticator.handleApiVersionsRequest",
    sentence="ApiVersions is answered on a SASL listener before authentication, with the versions of SaslHandshake and "
    "SaslAuthenticate.",
    accepted="error NONE(0), both APIs listed",
    configs=SASL,
    apis=APIS,
)
def versions_before_authentication(broker: Broker) -> None:
    answer = unauthenticated(broker).call(ApiVersionsRequest(), 0)
    broker.expect_error(answer.error_code, ErrorCode.NONE)
    listed = {api.api_key for api in answer.api_keys}
    wanted = {SaslHandshakeRequest.KEY, SaslAuthenticateRequest.KEY}
    broker.expect(wanted <= listed, f"of APIs {sorted(wanted)}, {sorted(wanted & listed)} are listed")


@requirement(
    "SEC-02",
    notices=LOCKED_OUT,
    source="KIP-43; SaslServerAuthenticator.handleHandshakeRequest",
    sentence="SaslHandshake for an enabled mechanism is answered without error by the list of all enabled ones.",
    accepted="error NONE(0), the mechanisms of sasl.enabled.mechanisms in any order",
    configs=SASL,
    apis=APIS,
)
def handshake(broker: Broker) -> None:
    for mechanism in MECHANISMS:
        with broker.case(mechanism):
            answer = shake_hands(broker, unauthenticated(broker), mechanism)
            broker.expect_equal("the mechanisms", sorted(answer.mechanisms), sorted(MECHANISMS))


@requirement(
    "SEC-03",
    notices=LOCKED_OUT,
    source="KIP-43; SaslServerAuthenticator.handleHandshakeRequest",
    sentence="SaslHandshake for a mechanism that is not enabled is refused with UNSUPPORTED_SASL_MECHANISM and the list of "
    "enabled "
    "ones; the connection is closed.",
    accepted="UNSUPPORTED_SASL_MECHANISM(33), the list, then closed",
    configs=SASL,
    apis=APIS,
)
def unknown_mechanism(broker: Broker) -> None:
    for mechanism in ("GSSAPI", "plain", ""):
        with broker.case(mechanism or "empty"):
            connection = unauthenticated(broker)
            answer = connection.call(SaslHandshakeRequest(mechanism=mechanism), 1)
            broker.expect_error(answer.error_code, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            broker.expect_equal("the mechanisms", sorted(answer.mechanisms), sorted(MECHANISMS))
            broker.expect_closed(connection, what="the connection after the refusal")


@requirement(
    "SEC-04",
    notices=EXPOSED,
    source="KIP-43; SaslServerAuthenticator.handleKafkaRequest",
    sentence="Before authentication no API but ApiVersions and SaslHandshake is served: the connection is closed without an "
    "answer.",
    accepted="closed, at once as after ApiVersions",
    configs=SASL,
    apis=APIS,
)
def nothing_before_authentication(broker: Broker) -> None:
    for request, version in (*ASKED, (SaslAuthenticateRequest(auth_bytes=plain().encode()), 2)):
        for after_versions in (False, True):
            with broker.case(f"{type(request).__name__} {'after ApiVersions' if after_versions else 'first'}"):
                connection = unauthenticated(broker)
                if after_versions:
                    connection.call(ApiVersionsRequest(), 0)
                connection.send(request, version, awaited=False)
                broker.expect_closed(connection)
    expect_authenticated(broker, log_in_plain(broker))


@requirement(
    "SEC-05",
    notices=EXPOSED,
    source="KIP-152; SaslServerAuthenticator.handleSaslToken",
    sentence="Between SaslHandshake and the end of the mechanism's exchange no API but SaslAuthenticate is served.",
    accepted="closed, with or without ILLEGAL_SASL_STATE(34) before",
    configs=SASL,
    apis=APIS,
)
def nothing_within_an_exchange(broker: Broker) -> None:
    for request, version in ((ApiVersionsRequest(), 0), (SaslHandshakeRequest(mechanism="PLAIN"), 1)):
        with broker.case(type(request).__name__):
            connection = begun(broker, "PLAIN")
            expect_not_served(broker, connection, request, version)
    with broker.case("DescribeQuorumRequest"):
        connection = begun(broker, "PLAIN")
        expect_not_served(broker, connection, WHO_LEADS, 2)
    expect_authenticated(broker, log_in_plain(broker))


# ---- PLAIN


@requirement(
    "SEC-06",
    notices=LOCKED_OUT,
    source="KIP-43, KIP-152; RFC 4616",
    sentence="PLAIN with a known user and password is accepted in every version of SaslAuthenticate, and requests are served "
    "then.",
    accepted="error NONE(0), then answers",
    configs=SASL,
    apis=APIS,
)
def plain_accepted(broker: Broker) -> None:
    for version in range(3):
        with broker.case(f"SaslAuthenticate v{version}"):
            connection = begun(broker, "PLAIN")
            broker.expect_error(say(connection, plain(), version).error_code, ErrorCode.NONE)
            expect_authenticated(broker, connection)
    with broker.case("with the user as authorization id"):
        connection = begun(broker, "PLAIN")
        broker.expect_error(say(connection, plain(acts_as=USER)).error_code, ErrorCode.NONE)


@requirement(
    "SEC-07",
    notices=EXPOSED,
    source="KIP-152; PlainSaslServer.evaluateResponse",
    sentence="PLAIN with a wrong or empty password, an unknown user, another user's name as authorization id, or another number "
    "of parts than three is refused with SASL_AUTHENTICATION_FAILED, and the connection is closed; a wrong password and an "
    "unknown user are refused in the same words.",
    accepted="SASL_AUTHENTICATION_FAILED(58), then closed; one message for a wrong password and an unknown user",
    configs=SASL,
    apis=APIS,
)
def plain_refused(broker: Broker) -> None:
    tokens = {
        "wrong password": plain(password="wrong"),
        "unknown user": plain(user=broker.unused_name("user")),
        "password of another": plain(password=OTHER_PASSWORD),
        "another as authorization id": plain(acts_as=OTHER),
        "empty password": plain(password=""),
        "a part too many": f"{plain()}\0x",
        "empty": "",
    }
    said: dict[str, str | None] = {}
    for name, token in tokens.items():
        with broker.case(name):
            connection = begun(broker, "PLAIN")
            answer = say(connection, token)
            said[name] = answer.error_message
            expect_refused(broker, connection, answer)
    broker.expect_equal("the message for an unknown user", said.get("unknown user"), said.get("wrong password"))
    expect_authenticated(broker, log_in_plain(broker))


@requirement(
    "SEC-08",
    notices=LOCKED_OUT,
    source="KIP-43; SaslServerAuthenticator.handleSaslToken",
    sentence="After SaslHandshake v0 the mechanism's messages come and go without a request around them, each behind its size.",
    accepted="an empty answer to PLAIN's message, then requests are served; closed where the password is wrong",
    configs=SASL,
    apis=APIS,
)
def raw_tokens(broker: Broker) -> None:
    for password, good in ((PASSWORD, True), ("wrong", False)):
        with broker.case("right password" if good else "wrong password"):
            connection = begun(broker, "PLAIN", version=0)
            token = plain(password=password).encode()
            connection.send_bytes(len(token).to_bytes(4, "big") + token)
            if good:
                broker.expect_equal("the answer's bytes", connection.receive_frame(), b"")
                expect_authenticated(broker, connection)
            else:
                broker.expect_closed(connection)


# ---- SCRAM


@requirement(
    "SEC-09",
    notices=LOCKED_OUT,
    source="KIP-84, KIP-554; RFC 5802, RFC 7677",
    sentence="A user whose credential AlterUserScramCredentials has set authenticates by SCRAM, and the server proves that it "
    "knows "
    "the credential.",
    accepted="error NONE(0) twice, a server signature that verifies, then answers",
    configs=SASL,
    apis=WITH_CREDENTIALS,
)
def scram_accepted(broker: Broker) -> None:
    for mechanism in SCRAM:
        with broker.case(mechanism):
            expect_authenticated(broker, log_in_scram(broker, mechanism))


@requirement(
    "SEC-10",
    notices=EXPOSED,
    source="RFC 5802, section 5; ScramSaslServer",
    sentence="The server's first message of SCRAM begins its nonce with the client's, adds one of its own that differs each "
    "time, and "
    "has the credential's salt and iterations.",
    accepted="r=CLIENT…, another each time; s and i as they were set",
    configs=SASL,
    apis=WITH_CREDENTIALS,
)
def scram_first_message(broker: Broker) -> None:
    user = broker.unused_name("user")
    log_in_scram(broker, "SCRAM-SHA-256", user)
    nonces: set[str] = set()
    for _ in range(3):
        connection = begun(broker, "SCRAM-SHA-256")
        answer = say(connection, f"n,,n={user},r=nonceofclient")
        broker.expect_error(answer.error_code, ErrorCode.NONE)
        parts = dict(part.split("=", 1) for part in bytes(answer.auth_bytes).decode().split(",") if "=" in part)
        nonce = parts.get("r", "")
        broker.expect(
            nonce.startswith("nonceofclient") and nonce != "nonceofclient",
            f"the server's nonce follows the client's: {nonce}",
        )
        broker.expect_equal("the iterations", parts.get("i"), str(ITERATIONS))
        broker.expect_equal("the salt", parts.get("s"), "YSBzYWx0IG9mIHRoZSBzdWl0ZQ==")
        nonces.add(nonce)
    broker.expect_equal("different nonces", len(nonces), 3)


@requirement(
    "SEC-11",
    notices=EXPOSED,
    source="KIP-84; ScramSaslServer.evaluateResponse",
    sentence="SCRAM with a wrong password, an unknown user, a credential of the other mechanism, or a last message with a wrong "
    "proof, without one or with another nonce is refused with SASL_AUTHENTICATION_FAILED, and the connection is closed.",
    accepted="SASL_AUTHENTICATION_FAILED(58), then closed; closed without an answer to a last message that is none",
    configs=SASL,
    apis=WITH_CREDENTIALS,
)
def scram_refused(broker: Broker) -> None:
    user = broker.unused_name("user")
    log_in_scram(broker, "SCRAM-SHA-256", user)
    for name, mechanism, asked, password in (
        ("wrong password", "SCRAM-SHA-256", user, "wrong"),
        ("unknown user", "SCRAM-SHA-256", broker.unused_name("user"), PASSWORD),
        ("the other mechanism", "SCRAM-SHA-512", user, PASSWORD),
    ):
        with broker.case(name):
            connection = unauthenticated(broker)
            expect_refused(broker, connection, exchange_scram(broker, connection, mechanism, asked, password))
    for name, final in (
        ("an empty proof", "c=biws,r={},p="),
        ("another nonce", "c=biws,r=x{},p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        ("a proof of zeros", "c=biws,r={},p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        ("no message", ""),
    ):
        with broker.case(name):
            connection = begun(broker, "SCRAM-SHA-256")
            first = bytes(say(connection, f"n,,n={user},r=abc").auth_bytes).decode()
            nonce = first.partition(",")[0].removeprefix("r=")
            try:
                answer = say(connection, final.format(nonce))
            except Closed:
                broker.saw("the connection was closed")
            else:
                expect_refused(broker, connection, answer)


@requirement(
    "SEC-12",
    notices=EXPOSED,
    source="KIP-554; ScramControlManager, ScramPublisher",
    sentence="After a user's password was changed only the new one is accepted, and none after the credential was deleted.",
    accepted="SASL_AUTHENTICATION_FAILED(58) for the old password, and for both after the deletion",
    configs=SASL,
    apis=WITH_CREDENTIALS,
)
def scram_changed(broker: Broker) -> None:
    user, mechanism = broker.unused_name("user"), "SCRAM-SHA-256"
    log_in_scram(broker, mechanism, user)
    set_password(broker, user, "changed", mechanism)
    broker.eventually(lambda: accepted(broker, mechanism, user, "changed"), "the new password is accepted")
    broker.expect(not accepted(broker, mechanism, user, PASSWORD), "the old password is refused")
    delete_password(broker, user, mechanism)
    broker.eventually(lambda: not accepted(broker, mechanism, user, "changed"), "a deleted credential is refused")
    broker.expect(
        not accepted(broker, mechanism, user, PASSWORD), "the old password is refused after the deletion, too"
    )


# ---- after authentication, and again


@requirement(
    "SEC-13",
    notices=LOCKED_OUT,
    source="KIP-368; KafkaApis.handleSaslHandshakeRequest, handleSaslAuthenticateRequest",
    sentence="SaslHandshake and SaslAuthenticate are answered with ILLEGAL_SASL_STATE by a listener without SASL, and after an "
    "authentication whose session has no end; the connection goes on.",
    accepted="ILLEGAL_SASL_STATE(34) for each, then answers",
    configs=SASL,
    apis=APIS,
)
def illegal_state(broker: Broker) -> None:
    with broker.case("a listener without SASL"):
        connection = broker.connect()
        broker.expect_error(
            connection.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code, ErrorCode.ILLEGAL_SASL_STATE
        )
        broker.expect_error(say(connection, plain()).error_code, ErrorCode.ILLEGAL_SASL_STATE)
        broker.expect_error(connection.call(ApiVersionsRequest(), 0).error_code, ErrorCode.NONE, what="ApiVersions")
    with broker.case("after authentication"):
        connection = log_in_plain(broker)
        broker.expect_error(
            connection.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code, ErrorCode.ILLEGAL_SASL_STATE
        )
        broker.expect_error(say(connection, plain()).error_code, ErrorCode.ILLEGAL_SASL_STATE)
        expect_authenticated(broker, connection)


@requirement(
    "SEC-14",
    notices=LOCKED_OUT,
    source="KIP-368; SaslServerAuthenticator.ReauthInfo",
    sentence="The last SaslAuthenticate answer says how long the session lasts: connections.max.reauth.ms of the mechanism, 0 "
    "where "
    "there is no limit.",
    accepted="session_lifetime_ms of 3000 with the limit, 0 without",
    configs=SASL,
    apis=WITH_CREDENTIALS,
)
def session_lifetime(broker: Broker) -> None:
    connection = begun(broker, "PLAIN")
    broker.expect_equal("the lifetime without a limit", say(connection, plain()).session_lifetime_ms, 0)
    user = broker.unused_name("user")
    log_in_scram(broker, LIMITED, user)
    answer = exchange_scram(broker, unauthenticated(broker), LIMITED, user, PASSWORD)
    broker.expect_equal("the lifetime with a limit", answer.session_lifetime_ms, SESSION_MS)


@requirement(
    "SEC-15",
    notices=EXPOSED,
    source="KIP-368; SocketServer.processCompletedReceives",
    sentence="A client that goes on after its session's end without authenticating again is not served: its connection is "
    "closed.",
    accepted="closed without an answer",
    configs=SASL,
    apis=WITH_CREDENTIALS,
)
def session_ends(broker: Broker) -> None:
    begins = time.monotonic()
    connection = log_in_scram(broker, LIMITED)
    ends = time.monotonic() + SESSION_MS / 1000

    def is_over() -> bool:
        """Whether the connection was closed; what was asked before the end may be answered after it."""
        asked = time.monotonic()
        try:
            connection.call(WHO_LEADS, 2)
        except Closed:
            early = time.monotonic() - begins < SESSION_MS / 1000
            broker.expect(not early, "the connection is not closed within the session")
            return True
        broker.expect(asked < ends, "no request after the session is answered")
        return False

    broker.eventually(is_over, "the connection is closed", within_s=10 * SESSION_MS / 1000)


@requirement(
    "SEC-16",
    notices=LOCKED_OUT,
    source="KIP-368; SaslServerAuthenticator.reauthenticate",
    sentence="A client that authenticates again as before goes on with the same connection after its former session's end.",
    accepted="error NONE(0), a new lifetime, and answers beyond the former one",
    configs=SASL,
    apis=WITH_CREDENTIALS,
)
def authenticated_again(broker: Broker) -> None:
    user = broker.unused_name("user")
    connection = log_in_scram(broker, LIMITED, user)
    for _ in range(2):
        time.sleep(SESSION_MS * 0.6 / 1000)
        began = time.monotonic()
        answer = exchange_scram(broker, connection, LIMITED, user, PASSWORD)
        broker.expect_error(answer.error_code, ErrorCode.NONE)
        broker.expect_equal("the new lifetime", answer.session_lifetime_ms, SESSION_MS)
        connection.send(WHO_LEADS, 2)
        if (time.monotonic() - began) * 1000 > SESSION_MS / 2:
            broker.skip("this machine was too slow to ask within the new session")
        broker.expect_error(connection.receive().error_code, ErrorCode.NONE, what="a request in the new session")


@requirement(
    "SEC-17",
    notices=EXPOSED,
    source="KIP-368; SaslServerAuthenticator.ReauthInfo.ensurePrincipalUnchanged, saslMechanismUnchanged",
    sentence="A client that authenticates again as another user, by another mechanism, or with a wrong password is not served "
    "any "
    "more: its connection is closed.",
    accepted="SASL_AUTHENTICATION_FAILED(58) and closed for another user and a wrong password; closed for another mechanism",
    configs=SASL,
    apis=WITH_CREDENTIALS,
)
def authenticated_as_another(broker: Broker) -> None:
    other = broker.unused_name("user")
    log_in_scram(broker, LIMITED, other)
    with broker.case("another user"):
        connection = log_in_scram(broker, LIMITED)
        expect_refused(broker, connection, exchange_scram(broker, connection, LIMITED, other, PASSWORD))
    with broker.case("a wrong password"):
        connection = log_in_scram(broker, LIMITED, other)
        expect_refused(broker, connection, exchange_scram(broker, connection, LIMITED, other, "wrong"))
    with broker.case("another mechanism"):
        connection = log_in_scram(broker, LIMITED)
        shake_hands(broker, connection, "PLAIN")
        connection.send(SaslAuthenticateRequest(auth_bytes=plain().encode()), 2, awaited=False)
        broker.expect_closed(connection)
