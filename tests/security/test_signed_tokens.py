"""Tokens: the signatures, times and claims that prove a user (BrokerJwtValidator, RFC 7519)."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from reference.security.errors import WrongSecurity
from reference.security.signed_tokens import Bearer, KeySet, TokenRefused, TokenRules, UnknownKey, check_token

NOW_S = 1_000_000
RULES = TokenRules(("here",), "issuer", clock_skew_s=30)
RSA, EC, ED = (
    rsa.generate_private_key(65537, 2048),
    ec.generate_private_key(ec.SECP256R1()),
    ed25519.Ed25519PrivateKey.generate(),
)
PUBLIC: dict[str, dict[str, Any]] = {
    "RS256": {**RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True), "kid": "r"},
    "ES256": {**ECAlgorithm.to_jwk(EC.public_key(), as_dict=True), "kid": "e"},
    "EdDSA": {**OKPAlgorithm.to_jwk(ED.public_key(), as_dict=True), "kid": "d"},
}
PRIVATE: dict[str, Any] = {"RS256": RSA, "ES256": EC, "EdDSA": ED, "PS512": RSA}
KEYS = KeySet.read(json.dumps({"keys": [*PUBLIC.values()]}))
CLAIMS = {"sub": "alice", "aud": "here", "iss": "issuer", "iat": NOW_S - 100, "exp": NOW_S + 10}


def token(algorithm: str = "RS256", kid: str | None = None, key: Any = None, **claims: Any) -> str:
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(given, key or PRIVATE[algorithm], algorithm, headers={"kid": kid} if kid else {})


def check(text: str, rules: TokenRules = RULES, now_s: float = NOW_S, keys: KeySet = KEYS) -> Bearer:
    return check_token(text, keys, rules, int(now_s * 1000))


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_a_signed_token_names_its_user_and_its_end(algorithm: str) -> None:
    assert check(token(algorithm)) == Bearer("alice", (NOW_S + 10) * 1000)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None}, {"iat": None}, {"exp": NOW_S - 30}, {"exp": "soon"}, {"exp": True}, {"nbf": NOW_S + 31}, {"iat": NOW_S + 20},
        {"nbf": NOW_S + 20, "exp": NOW_S + 10}, {"iss": None}, {"iss": "x"}, {"aud": None}, {"aud": "there"}, {"aud": ["there"]}, {"aud": 3},
        {"sub": None}, {"sub": " "}, {"sub": 7}, {"scope": ["a", "a"]}, {"scope": ""}, {"exp": 1e300},
    ],
)  # fmt: skip
def test_a_claim_that_is_wrong_is_refused(claims: dict[str, Any]) -> None:
    plain = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    signer = jwt.PyJWS()  # jwt.encode refuses some of these claims
    with pytest.raises(TokenRefused):
        check(signer.encode(json.dumps(plain).encode(), RSA, "RS256"))
    assert check(signer.encode(json.dumps(CLAIMS).encode(), RSA, "RS256")).user == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW_S - 29},
        {"nbf": NOW_S + 30, "exp": NOW_S + 40},
        {"aud": ["x", "here"]},
        {"scope": "a b"},
        {"iat": NOW_S + 5},
    ],
)
def test_the_clocks_may_differ_a_little(claims: dict[str, Any]) -> None:
    assert check(token(**claims)).user == "alice"


def test_a_token_with_an_audience_is_refused_if_none_is_configured() -> None:
    with pytest.raises(TokenRefused, match="audience"):
        check(token(), TokenRules())
    assert check(token(aud=None, iss=None), TokenRules()).user == "alice"


def test_other_claims_may_name_the_user() -> None:
    assert check(token(name="bob"), TokenRules(("here",), user_claim="name")).user == "bob"


def forged() -> dict[str, str]:
    """Name -> a text that looks like a token and is invalid."""
    good = token()
    head, body, signature = good.split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    modulus = str(PUBLIC["RS256"]["n"]).encode()
    return {
        "unsigned": f"{none}.{body}.",
        "two sections": f"{head}.{body}",
        "another signature": f"{head}.{body}.{signature[:-4]}AAAA",
        "another body": f"{head}.{body[:-1]}{'A' if body[-1] != 'A' else 'B'}.{signature}",
        "another key": token(key=rsa.generate_private_key(65537, 2048)),
        "the public key as a secret": jwt.encode(CLAIMS, modulus, "HS256"),
        "the algorithm of another key": token("ES256", kid="r"),
        "no key with this id": token(kid="z"),
        "an unknown extension": jwt.PyJWS().encode(
            json.dumps(CLAIMS).encode(), RSA, "RS256", headers={"crit": ["x"], "x": 1}
        ),
        "no object": jwt.PyJWS().encode(b"[1]", RSA, "RS256"),
        "no JSON": jwt.PyJWS().encode(b"\xff", RSA, "RS256"),
        "deep": f"{base64.urlsafe_b64encode(b'[' * 100_000).decode()}.{body}.{signature}",
        "empty": "",
        "dots": "..",
    }


@pytest.mark.parametrize("name", forged())
def test_a_forged_token_is_refused(name: str) -> None:
    with pytest.raises(TokenRefused):
        check(forged()[name])


def test_a_key_that_is_not_known_may_be_in_a_newer_set() -> None:
    with pytest.raises(UnknownKey):
        check(token(kid="z"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"keys": 1}',
        '{"keys": [1]}',
        '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}',
        '{"keys": [{"kty": "RSA"}]}',
    ],
)
def test_an_invalid_set_of_public_keys_is_refused(text: str) -> None:
    with pytest.raises(WrongSecurity, match="no set of public keys"):
        KeySet.read(text)
