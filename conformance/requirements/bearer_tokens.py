"""SEC: OAUTHBEARER with signed tokens (KIP-255, KIP-768).

The controllers' listener accepts it beside the other mechanisms (see `authentication`), with the public key in `token_keys.json`;
only targets on this machine can be configured so. The signing key is no secret: only the suite's own brokers trust it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from conformance.broker import Broker
from conformance.requirement import requirement
from conformance.sasl import (
    APIS,
    EXPOSED,
    LOCKED_OUT,
    LOGIN,
    MECHANISMS,
    ON_CONTROLLER,
    OTHER,
    SASL,
    USER,
    WHO_LEADS,
    begun,
    expect_authenticated,
    expect_refused,
    say,
    shake_hands,
)
from conformance.wire import BrokerConnection, Closed
from reference.protocol.errors import ErrorCode

OAUTHBEARER = "OAUTHBEARER"
KEYS = Path(__file__).with_name("token_keys.json")
SIGNING_KEY = {
    "kty": "EC",
    "crv": "P-256",
    "x": "l4E9IjMatvn0xaEdVGx_WRuh8nCKiI8umsDRH9H0cf4",
    "y": "EVwa3h90_1zE6gxh8hWnst9e1aZ5QySH_HVNybGRDmk",
    "d": "KomAKcxny_Ui9gKvmkvLWN_xhWazdnJ0Hdgqeb5X0OY",
}
AUDIENCE, ISSUER = "the brokers of the suite", "the suite"
SKEW_S = 5
_OWN = f"{ON_CONTROLLER}oauthbearer.sasl."
BEARERS = {
    **SASL,
    "sasl.enabled.mechanisms": ",".join((*MECHANISMS, OAUTHBEARER)),
    f"{_OWN}jaas.config": f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
    f"{_OWN}server.callback.handler.class": f"{LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler",
    f"{_OWN}oauthbearer.jwks.endpoint.url": KEYS.as_uri(),
    f"{_OWN}oauthbearer.expected.audience": AUDIENCE,
    f"{_OWN}oauthbearer.expected.issuer": ISSUER,
    f"{_OWN}oauthbearer.clock.skew.seconds": str(SKEW_S),
}
SINCE = "3.4"
"""The first release in which the validator has the name above."""
UNDERSTOOD = b"\x01"
SESSION_S = 8


def signed(broker: Broker, algorithm: str = "ES256", kid: str = "suite", **claims: Any) -> str:
    """A valid token, except for the changed claims, algorithm or key; a claim of None is left out."""
    try:
        import jwt
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        broker.skip("the suite signs tokens by PyJWT and cryptography: install tidegauge[oauth]")
    now = time.time()
    given = {"sub": USER, "aud": AUDIENCE, "iss": ISSUER, "iat": now - 60, "exp": now + 600, **claims}
    key: Any = {
        "none": None,
        "ES256": jwt.PyJWK.from_dict(SIGNING_KEY, "ES256").key
        if kid == "suite"
        else ec.generate_private_key(ec.SECP256R1()),
    }[algorithm]
    return jwt.encode(
        {name: value for name, value in given.items() if value is not None}, key, algorithm, headers={"kid": "suite"}
    )


def first(token: str, header: str = "n,,", extension: str = "") -> str:
    return f"{header}\x01auth=Bearer {token}\x01{extension}\x01"


def is_let_in(broker: Broker, connection: BrokerConnection, message: str) -> bool:
    """Whether the broker accepts the token. A refusal is a JSON object, and after a byte of the client the error."""
    answer = say(connection, message)
    if answer.error_code == ErrorCode.NONE and not answer.auth_bytes:
        return True
    if answer.error_code == ErrorCode.NONE:
        broker.expect_equal("the answer", bytes(answer.auth_bytes), b'{"status":"invalid_token"}')
        answer = say(connection, UNDERSTOOD)
    expect_refused(broker, connection, answer)
    return False


@requirement(
    "SEC-27",
    notices=LOCKED_OUT,
    source="KIP-255, KIP-768; RFC 7628; OAuthBearerSaslServer, BrokerJwtValidator",
    sentence="OAUTHBEARER with a token that a known key has signed, for the expected audience and issuer and in its time, is "
    "accepted, also with extensions and with its user as authorization id; the session ends with the token.",
    accepted="error NONE(0), a session no longer than the token, then answers",
    since=SINCE,
    configs=BEARERS,
    apis=APIS,
)
def taken(broker: Broker) -> None:
    for name, token, header, extension in (
        ("a plain message", signed(broker), "n,,", ""),
        ("an authorization id", signed(broker), f"n,a={USER},", ""),
        ("an extension", signed(broker), "n,,", "ext=a value\x01"),
        ("several audiences", signed(broker, aud=["x", AUDIENCE]), "n,,", ""),
        ("a clock that is late", signed(broker, nbf=time.time() + SKEW_S - 2), "n,,", ""),
    ):
        with broker.case(name):
            connection = begun(broker, OAUTHBEARER)
            answer = say(connection, first(token, header, extension))
            broker.expect_error(answer.error_code, ErrorCode.NONE)
            broker.expect_equal("the answer", bytes(answer.auth_bytes), b"")
            broker.expect(
                0 < answer.session_lifetime_ms <= 600_000,
                f"the session lasts {answer.session_lifetime_ms} ms, no longer than the token",
            )
            expect_authenticated(broker, connection)


@requirement(
    "SEC-28",
    notices=EXPOSED,
    source="KIP-255, KIP-768; OAuthBearerSaslServer, BrokerJwtValidator",
    sentence="A token is refused that is unsigned, signed by another key, changed, over, not yet valid, "
    "without an end, for another audience or of another issuer, or without a user: the client is let in by none.",
    accepted='{"status":"invalid_token"}, and after the client\'s answer to it SASL_AUTHENTICATION_FAILED(58), then closed',
    since=SINCE,
    configs=BEARERS,
    apis=APIS,
)
def refused(broker: Broker) -> None:
    good = signed(broker)
    head, body, signature = good.split(".")
    now = time.time()
    for name, token in (
        ("unsigned", signed(broker, "none")),
        ("without its signature", f"{head}.{body}."),
        ("another key", signed(broker, kid="another")),
        ("changed", f"{head}.{signed(broker, sub=OTHER).split('.')[1]}.{signature}"),
        ("over", signed(broker, exp=now - SKEW_S - 1)),
        ("not yet valid", signed(broker, nbf=now + SKEW_S + 60)),
        ("without an end", signed(broker, exp=None)),
        ("another audience", signed(broker, aud="others")),
        ("no audience", signed(broker, aud=None)),
        ("another issuer", signed(broker, iss="others")),
        ("without a user", signed(broker, sub=None)),
        ("no token", "x"),
    ):
        with broker.case(name):
            connection = begun(broker, OAUTHBEARER)
            broker.expect(not is_let_in(broker, connection, first(token)), "the token is refused")
    for name, message in (("another's name", first(good, f"n,a={OTHER},")), ("no message", "x"), ("empty", "")):
        with broker.case(name):
            connection = begun(broker, OAUTHBEARER)
            expect_refused(broker, connection, say(connection, message))
    connection = begun(broker, OAUTHBEARER)
    broker.expect(is_let_in(broker, connection, first(good)), "the good token is accepted")


@requirement(
    "SEC-29",
    notices=EXPOSED,
    source="KIP-368; SaslServerAuthenticator.ReauthInfo",
    sentence="A client that authenticated by a token is not served after the token's end, unless it shows another of the same "
    "user before.",
    accepted="answers with the newer token; closed without one, and SASL_AUTHENTICATION_FAILED(58) for another user's",
    since=SINCE,
    configs=BEARERS,
    apis=APIS,
    deadline_s=40.0,
)
def ends(broker: Broker) -> None:
    began = time.monotonic()
    idle, renewed, changed = (begun(broker, OAUTHBEARER) for _ in range(3))
    for connection in (idle, renewed, changed):
        broker.expect(
            is_let_in(broker, connection, first(signed(broker, exp=time.time() + SESSION_S))), "the token is accepted"
        )
        expect_authenticated(broker, connection)
    if time.monotonic() - began > SESSION_S / 2:
        broker.skip("this machine was too slow to use the tokens before their end")
    for connection in (renewed, changed):
        shake_hands(broker, connection, OAUTHBEARER)
    broker.expect(is_let_in(broker, renewed, first(signed(broker))), "a newer token is accepted")
    with broker.case("another user's token"):
        broker.expect(
            say(changed, first(signed(broker, sub=OTHER))).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED,
            "another user's token is refused",
        )
    time.sleep(SESSION_S + 0.5)
    with broker.case("without a newer token"):
        try:
            answer = idle.call(WHO_LEADS, 2)
        except Closed:
            broker.saw("the connection was closed")
        else:
            broker.expect(False, f"a request after the session is answered with error {answer.error_code}")
    with broker.case("with a newer token"):
        expect_authenticated(broker, renewed)
