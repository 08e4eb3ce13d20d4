"""OAUTHBEARER: one message with a token; a refused token is answered before the exchange fails (OAuthBearerSaslServer)."""

from __future__ import annotations

import json

import pytest

from reference.node.authentication import AuthenticationFailed, SaslSession
from reference.node.bearer_tokens import INVALID_TOKEN, BearerToken
from reference.node.listeners import VALIDATORS, SaslSettings, sasl_of
from reference.node.sasl_mechanisms import Refused
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest
from reference.protocol.primitives import TimestampMs
from reference.runtime.security import refused_line
from reference.security.errors import WrongSecurity
from reference.security.signed_tokens import KeySet, TokenRules
from tests.targets.secured_kafka import AUDIENCE, LOGIN, USER, Signer

SIGNER, STRANGER = Signer("1"), Signer("2")
KEYS = KeySet.read(json.dumps({"keys": [SIGNER.public]}))
NOW_S = 2_000_000_000
NOW = TimestampMs(NOW_S * 1000)
TIMES = {"iat": NOW_S - 1, "exp": NOW_S + 60}
wanted: list[str] = []


def exchange() -> BearerToken:
    return BearerToken(TokenRules((AUDIENCE,)), KEYS, lambda: wanted.append("keys"), lambda level, text: None)


def first(token: str, header: str = "n,,") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01\x01".encode()


def test_the_bearer_is_the_user_that_the_token_names() -> None:
    for header in ("n,,", f"n,a={USER},"):
        server = exchange()
        assert server.answer(first(SIGNER.token(**TIMES), header), NOW) == b""
        assert (server.user, server.expires_at) == (USER, (NOW_S + 60) * 1000)
    server = exchange()
    message = f"n,,\x01ext=a value\x01auth=bearer {SIGNER.token(**TIMES)}\x01\x01"
    assert server.answer(message.encode(), NOW) == b"" and server.user == USER


@pytest.mark.parametrize(
    "message",
    [b"", b"\xff", b"n,,\x01\x01", b"y,,\x01auth=Bearer x\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01auth=Bearer x\x01"],
)  # fmt: skip
def test_a_malformed_message_fails_at_once(message: bytes) -> None:
    with pytest.raises(Refused) as refused:
        exchange().answer(message, NOW)
    assert refused.value.said is None


def test_another_name_than_the_tokens_is_refused() -> None:
    with pytest.raises(Refused, match="authorization id"):
        exchange().answer(first(SIGNER.token(**TIMES), "n,a=bob,"), NOW)


def test_a_refused_token_is_answered_before_the_exchange_fails() -> None:
    def new(name: str, settings: SaslSettings) -> BearerToken:
        return exchange()

    sasl = SaslSession(SaslSettings(("OAUTHBEARER",), {}, {"OAUTHBEARER": 0}), new)
    sasl.handshake(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    assert sasl.token(first(SIGNER.token(**{**TIMES, "exp": NOW_S - 31})), NOW) == (INVALID_TOKEN.encode(), 0)
    assert sasl.principal is None
    with pytest.raises(AuthenticationFailed) as failed:
        sasl.token(b"\x01", NOW)
    response = failed.value.response
    assert getattr(response, "error_code", None) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert getattr(response, "error_message", None) == INVALID_TOKEN


def test_after_a_refused_token_no_other_is_taken() -> None:
    server = exchange()
    server.answer(first("x"), NOW)
    with pytest.raises(Refused):
        server.answer(first(SIGNER.token(**TIMES)), NOW)
    assert server.user is None


def test_a_token_by_an_unknown_key_asks_for_newer_keys() -> None:
    del wanted[:]
    exchange().answer(first(STRANGER.token(**TIMES)), NOW)
    assert wanted == ["keys"]
    exchange().answer(first("x.y.z"), NOW)
    assert wanted == ["keys"]


SETTINGS = {
    "listener.security.protocol.map": "IN:SASL_SSL",
    "listener.name.in.sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.in.oauthbearer.sasl.jaas.config": f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
    "listener.name.in.oauthbearer.sasl.server.callback.handler.class": VALIDATORS[0],
    "listener.name.in.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "http://localhost/keys",
}


def test_settings_go_from_the_mechanism_on_a_listener_to_the_general_ones() -> None:
    own = "listener.name.in.oauthbearer.sasl.oauthbearer."
    changes = {
        f"{own}expected.audience": "a, b",
        "sasl.oauthbearer.expected.issuer": "i",
        "listener.name.in.sasl.oauthbearer.clock.skew.seconds": "5",
        f"{own}sub.claim.name": "name",
        f"{own}scope.claim.name": "scp",
        f"{own}jwks.endpoint.refresh.ms": "7",
    }
    found = sasl_of({**SETTINGS, **changes}, "IN")
    assert found is not None and found.bearer is not None
    assert found.bearer.rules == TokenRules(["a", "b"], "i", 5, "name", "scp")
    assert (found.bearer.keys_url, found.bearer.refresh_ms, found.bearer.backoff_ms) == (
        "http://localhost/keys",
        7,
        10_000,
    )
    plain = sasl_of(SETTINGS, "IN")
    assert plain is not None and plain.bearer is not None and plain.bearer.rules == TokenRules([])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("server.callback.handler.class", "", "server.callback.handler.class= cannot be served"),
        ("server.callback.handler.class", "x.Own", "server.callback.handler.class=x.Own cannot be served"),
        ("oauthbearer.jwks.endpoint.url", "ftp://x", "jwks.endpoint.url=ftp://x is no URL"),
        ("oauthbearer.clock.skew.seconds", "x", "clock.skew.seconds=x is no number"),
        ("jaas.config", f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredValidatorRequiredScope=x;", "unsecuredValidatorRequiredScope"),
    ],
)  # fmt: skip
def test_a_handler_of_unsigned_tokens_is_refused_by_name(name: str, value: str, said: str) -> None:
    with pytest.raises(WrongSecurity, match=said):
        sasl_of({**SETTINGS, f"listener.name.in.oauthbearer.sasl.{name}": value}, "IN")


def test_other_settings_of_tokens_are_refused_by_name() -> None:
    own = "listener.name.in.oauthbearer.sasl.oauthbearer."
    defaults = {"sasl.oauthbearer.jwt.validator.class": "class K"}
    assert refused_line(SETTINGS, defaults) is None
    for name in ("scope", "token.endpoint.url", "jwt.validator.class"):
        line = refused_line({**SETTINGS, own + name: "x"}, defaults)
        assert line is not None and line.startswith(own + name)
    without = {**SETTINGS, "listener.name.in.sasl.enabled.mechanisms": "PLAIN"}
    assert refused_line(without, defaults) is not None
    moved = {**SETTINGS, "sasl.server.callback.handler.class": VALIDATORS[0]}
    assert "sasl.server.callback.handler.class asks for" in str(refused_line(moved, defaults))
