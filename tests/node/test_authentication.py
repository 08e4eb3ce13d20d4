"""SASL on the broker's side: requests before authentication, the mechanisms, and the end of sessions."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from scramp import ScramClient

from reference.node.authentication import ADMITTED, AuthenticationFailed, SaslSession, State
from reference.node.listeners import SaslSettings
from reference.node.sasl_mechanisms import (
    Credentials,
    Mechanism,
    Plain,
    Refused,
    Scram,
    Token,
    credential,
    token_credential,
)
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest
from reference.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from reference.protocol.primitives import AT_ONCE, NEVER, TimestampMs
from reference.security.scram_client import ScramExchange

SESSION_MS = 10_000
SETTINGS = SaslSettings(("PLAIN", "SCRAM-SHA-256"), {"PLAIN": {"user_a": "pa", "user_b": "pb"}}, {"PLAIN": SESSION_MS, "SCRAM-SHA-256": 0})  # fmt: skip
HANDSHAKE, AUTHENTICATE, METADATA = 17, 36, 3
NOW = TimestampMs(1_000_000)


def no_token(id: str, mechanism: int) -> None:
    return None


def scram(user: str, password: str, salt: bytes, nonce: str = "n", name: str = "SCRAM-SHA-256") -> Scram:
    """The server's side of SCRAM for one user."""
    number, hash_name = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}[name]
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, 4096)
    known = {(user, number): credential(user, number, salt, 4096, salted)}
    return Scram(name, Credentials(lambda *key: known.get(key), no_token), nonce)


def test_the_exchange_is_that_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    server = scram("user", "pencil", salt, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = server.answer(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", NOW)
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert server.answer(final, NOW) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"
    with pytest.raises(Refused):
        server.answer(final, NOW)


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_another_implementation_agrees(name: str) -> None:
    server = scram("a,b=c", "Ünder", b"sixteen  letters", name=name)
    client: Any = ScramClient([name], "a,b=c", "Ünder")
    client.set_server_first(server.answer(client.get_client_first().encode(), NOW).decode())
    client.set_server_final(server.answer(client.get_client_final().encode(), NOW).decode())
    assert server.user == "a,b=c"


@pytest.mark.parametrize(
    "messages",
    [
        [b"\xff"], [b""], [b"p=tls-unique,,n=u,r=x"], [b"n,,n=,r=x"], [b"n,,n=u,r="], [b"n,,n=u=,r=x"], [b"n,,n=other,r=x"],
        [b"n,a=other,n=u,r=x"], [b"n,,m=z,n=u,r=x"],
        [b"n,,n=u,r=x", b"c=biws,r=x,p=AAAA"], [b"n,,n=u,r=x", b"c=eSws,r=xn,p=AAAA"], [b"n,,n=u,r=x", b"c=biws,r=xn,p=AAAA"],
        [b"n,,n=u,r=x", b"c=biws,r=xn,p=A"], [b"n,,n=u,r=x", b"c=biws,r=xn,p=" + base64.b64encode(bytes(32))], [b"n,,n=u,r=x", b"n,,n=u,r=x"],
    ],
)  # fmt: skip
def test_a_message_of_scram_that_is_none_is_refused(messages: list[bytes]) -> None:
    server = scram("u", "p", b"short")
    for message in messages[:-1]:
        server.answer(message, NOW)
    with pytest.raises(Refused):
        server.answer(messages[-1], NOW)
    assert server.user is None


def test_a_weak_credential_is_refused() -> None:
    weak = UserScramCredentialRecord(name="u", mechanism=1, salt=b"s", stored_key=b"", server_key=b"", iterations=4095)
    with pytest.raises(Refused, match="4095 iterations"):
        Scram("SCRAM-SHA-256", Credentials(lambda user, number: weak, no_token), "n").answer(b"n,,n=u,r=x", NOW)


@pytest.mark.parametrize(
    ("message", "user"),
    [
        (b"\0a\0pa", "a"), (b"a\0a\0pa", "a"), (b"\0a\0pa\0more", None), (b"b\0a\0pa", None), (b"\0a\0pb", None), (b"\0c\0pa", None),
        (b"\0a\0", None), (b"\0\0pa", None), (b"a", None), (b"", None), (b"\0a\0p\xff", None),
    ],
)  # fmt: skip
def test_plain_knows_the_users_of_the_login_alone(message: bytes, user: str | None) -> None:
    plain = Plain(SETTINGS)
    if user is None:
        with pytest.raises(Refused):
            plain.answer(message, NOW)
    else:
        assert plain.answer(message, NOW) == b""
    assert plain.user == user


def session() -> SaslSession:
    def new(name: str, settings: SaslSettings) -> Mechanism:
        return Plain(settings) if name == "PLAIN" else scram("a", "pa", b"salt")

    return SaslSession(SETTINGS, new)


def log_in(sasl: SaslSession, user: str = "a", now: TimestampMs = AT_ONCE, mechanism: str = "PLAIN") -> int:
    assert sasl.takes(HANDSHAKE, now)
    sasl.handshake(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert sasl.takes(AUTHENTICATE, now)
    token = f"\0{user}\0p{user}".encode()
    return sasl.authenticate(SaslAuthenticateRequest(auth_bytes=token), now).session_lifetime_ms


def test_no_other_api_is_admitted_before_authentication() -> None:
    assert all(METADATA not in keys for keys in ADMITTED.values())
    sasl = session()
    assert ADMITTED[sasl.state] == {HANDSHAKE, 18}
    sasl.versions_answered()
    assert ADMITTED[sasl.state] == {HANDSHAKE}
    sasl.handshake(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert ADMITTED[sasl.state] == {AUTHENTICATE}
    assert sasl.principal is None and sasl.takes(METADATA, AT_ONCE)
    sasl.authenticate(SaslAuthenticateRequest(auth_bytes=b"\0a\0pa"), AT_ONCE)
    assert sasl.principal == "User:a" and not sasl.takes(METADATA, AT_ONCE)


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are() -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        session().handshake(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    response: Any = failed.value.response
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256"]


def test_a_refusal_does_not_say_whether_the_user_exists() -> None:
    said: list[Any] = []
    for user in ("a", "unknown"):
        sasl = session()
        sasl.handshake(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        with pytest.raises(AuthenticationFailed) as failed:
            sasl.token(f"\0{user}\0wrong".encode(), AT_ONCE)
        said.append(failed.value.response)
        assert sasl.state is State.FAILED and ADMITTED[sasl.state] == frozenset()
    assert said[0] == said[1] and said[0].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_session_ends_unless_the_client_authenticates_again() -> None:
    sasl = session()
    assert log_in(sasl) == SESSION_MS
    assert not sasl.takes(METADATA, AT_ONCE + SESSION_MS - 1)
    with pytest.raises(AuthenticationFailed, match="has expired"):
        sasl.takes(METADATA, AT_ONCE + SESSION_MS)
    assert log_in(sasl, now=AT_ONCE + SESSION_MS) == SESSION_MS
    # at most once a second; more is answered with ILLEGAL_SASL_STATE
    assert not sasl.takes(HANDSHAKE, AT_ONCE + SESSION_MS + 999)
    assert not sasl.takes(METADATA, AT_ONCE + 2 * SESSION_MS - 1)
    assert sasl.takes(HANDSHAKE, AT_ONCE + SESSION_MS + 1000)


def test_a_client_that_authenticates_again_keeps_its_principal_and_mechanism() -> None:
    sasl = session()
    log_in(sasl)
    with pytest.raises(AuthenticationFailed) as failed:
        log_in(sasl, user="b", now=TimestampMs(1))
    response: Any = failed.value.response
    assert response.error_message == "Cannot change principals during re-authentication from User.a: User.b"
    sasl = session()
    log_in(sasl)
    assert sasl.takes(HANDSHAKE, TimestampMs(1))
    assert sasl.handshake(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
    assert sasl.state is State.OTHER_MECHANISM and ADMITTED[sasl.state] == frozenset()


def test_without_a_limit_no_session_ends_and_none_begins_again() -> None:
    sasl = session()
    log_in(sasl)
    sasl.expires_at = None
    assert not sasl.takes(HANDSHAKE, NEVER) and not sasl.takes(METADATA, NEVER)


def by_token(ends: TimestampMs) -> SaslSession:
    """A session on a broker that knows one delegation token, of User:a, whose HMAC is b"hmac"."""

    def new(name: str, settings: SaslSettings) -> Mechanism:
        def token(id: str, mechanism: int) -> Token | None:
            return Token(token_credential(b"hmac", id, mechanism), "User:a", ends) if id == "id" else None

        return Scram(name, Credentials(lambda user, mechanism: None, token), "n")

    return SaslSession(SETTINGS, new)


def log_in_by_token(sasl: SaslSession, password: str, extension: str = "tokenauth=true", id: str = "id") -> int:
    """Authenticate by the token; return the session's lifetime in ms."""
    sasl.takes(HANDSHAKE, NOW)
    sasl.handshake(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    exchange = ScramExchange("SCRAM-SHA-256", id, password, extension)
    answer, _ = sasl.token(exchange.first(), NOW)
    final = exchange.answer(bytes(answer))
    assert final is not None
    answer, lifetime_ms = sasl.token(final, NOW)
    assert exchange.answer(bytes(answer)) is None
    return lifetime_ms


def test_the_bearer_of_a_token_is_its_owner_until_it_ends() -> None:
    ends = TimestampMs(NOW + 5_000)
    sasl = by_token(ends)
    assert log_in_by_token(sasl, base64.b64encode(b"hmac").decode()) == 5_000
    assert (sasl.principal, sasl.by_token, sasl.expires_at) == ("User:a", True, ends)
    with pytest.raises(AuthenticationFailed, match="has expired"):
        sasl.takes(METADATA, ends)


def test_a_token_that_has_ended_gives_no_request_a_session() -> None:
    sasl = by_token(TimestampMs(NOW - 1))
    assert log_in_by_token(sasl, base64.b64encode(b"hmac").decode()) == 0
    with pytest.raises(AuthenticationFailed, match="has expired"):
        sasl.takes(METADATA, NOW)


@pytest.mark.parametrize(
    ("password", "extension", "id"),
    [("aG1hYw==", "", "id"), ("aG1hYx==", "tokenauth=true", "id"), ("aG1hYw==", "tokenauth=true", "no")],
)
def test_a_token_is_no_user_and_has_one_password(password: str, extension: str, id: str) -> None:
    with pytest.raises(AuthenticationFailed):
        log_in_by_token(by_token(TimestampMs(NOW + 1)), password, extension, id)
