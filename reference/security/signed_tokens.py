"""Signed access tokens (JSON Web Tokens, RFC 7519), checked by a set of public keys (RFC 7517).

PyJWT checks the signature. Times are checked here, because the caller passes the time. The rules for claims and for the
choice of a key are those of Kafka's BrokerJwtValidator and its library jose4j: exp and iat are required, and an
audience must be an expected one. The keys are public keys: a shared secret in a key set that anyone may read would
protect nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from reference.security.errors import WrongSecurity

ALGORITHMS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
"""Signature algorithm -> the type of its key (RFC 7518, RFC 8037)."""

SECTIONS = 3


class TokenRefused(Exception):
    """The token is not valid; the message has the reason."""


class UnknownKey(TokenRefused):
    """No key of the set fits the token: a newer set may have one."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The rules for a token's claims: sasl.oauthbearer.* of a listener."""

    audiences: Sequence[str] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    user_claim: str = "sub"
    scope_claim: str = "scope"


@dataclass(frozen=True, slots=True)
class KeySet:
    """Public keys, each as its JSON object."""

    keys: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, text: str) -> KeySet:
        """Errors: WrongSecurity for a text that is no key set, or for a key that cannot be used."""
        try:
            keys = json.loads(text)["keys"]
            if not isinstance(keys, list) or not all(isinstance(each, dict) for each in cast("list[Any]", keys)):
                raise TypeError("keys is no list of objects")
            for each in cast("list[Mapping[str, Any]]", keys):
                if each.get("kty") in ALGORITHMS.values():
                    _key(each, str(each.get("alg") or next(a for a, kty in ALGORITHMS.items() if kty == each["kty"])))
                else:
                    raise TypeError(f"a key of type {each.get('kty')} cannot be used")
        except WrongSecurity:
            raise
        except Exception as error:  # any error of PyJWT and cryptography about a key
            raise WrongSecurity(f"this is no set of public keys: {error}") from error
        return cls(cast("list[Mapping[str, Any]]", keys))

    def fitting(self, header: Mapping[str, Any]) -> Mapping[str, Any]:
        """The key for a token with this header. Errors: TokenRefused."""
        algorithm = header.get("alg")
        kind = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
        if kind is None:
            raise TokenRefused(f"the algorithm {algorithm!r} is not allowed")
        for key in self.keys:
            if (
                key["kty"] == kind
                and key.get("use", "sig") == "sig"
                and key.get("alg", algorithm) == algorithm
                and ("kid" not in header or key.get("kid") == header["kid"])
            ):
                return key
        raise UnknownKey("no key fits the token")


@dataclass(frozen=True, slots=True)
class Bearer:
    """The user that a token names, and its expiry time in milliseconds."""

    user: str
    expires_at_ms: int


def check_token(token: str, keys: KeySet, rules: TokenRules, now_ms: int) -> Bearer:
    """Check a token's signature and claims. Errors: TokenRefused."""
    claims = _signed_claims(token, keys)
    issued, expires, not_before = _time(claims, "iat"), _time(claims, "exp"), _time(claims, "nbf")
    if issued is None or expires is None:
        raise TokenRefused("exp or iat is missing")
    if expires < max(issued, not_before or 0):
        raise TokenRefused("it expires before it becomes valid")
    now, skew = now_ms / 1000, rules.clock_skew_s
    if now - skew >= expires:
        raise TokenRefused("it has expired")
    if not_before is not None and now + skew < not_before:
        raise TokenRefused("it is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenRefused(f"the issuer is {claims.get('iss')!r}")
    _check_audience(claims.get("aud"), rules.audiences)
    _check_scope(claims.get(rules.scope_claim))
    user = claims.get(rules.user_claim)
    if not isinstance(user, str) or not user.strip():
        raise TokenRefused(f"{rules.user_claim} names no user")
    return Bearer(user.strip(), int(expires * 1000))


def _signed_claims(token: str, keys: KeySet) -> Mapping[str, Any]:
    """The claims, after a check of the signature. Errors: TokenRefused."""
    import jwt

    if token.count(".") != SECTIONS - 1:
        raise TokenRefused("it does not have three sections")
    try:
        header: Mapping[str, Any] = jwt.get_unverified_header(token)
        if "crit" in header:
            raise TokenRefused(f"the extensions {header['crit']!r} are not known")
        key = keys.fitting(header)
        found = jwt.PyJWS().decode_complete(token, _key(key, header["alg"]), algorithms=[header["alg"]])
        claims = json.loads(found["payload"])
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise TokenRefused(str(error)) from error
    if not isinstance(claims, dict):
        raise TokenRefused("the claims are no object")
    return cast("Mapping[str, Any]", claims)


def _key(key: Mapping[str, Any], algorithm: str) -> Any:
    """The key for PyJWT. Errors: WrongSecurity if PyJWT is missing; jwt.PyJWTError."""
    try:
        import jwt
    except ImportError as error:
        raise WrongSecurity("OAUTHBEARER needs PyJWT and cryptography: install tidegauge[oauth]") from error
    return jwt.PyJWK.from_dict(dict(key), algorithm)


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """A time claim in seconds since 1970; None if it is missing. Errors: TokenRefused."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise TokenRefused(f"{name} is not a time")
    return value


def _check_audience(audience: Any, expected: Sequence[str]) -> None:
    """Refuse a token for other audiences, also if none is expected, as jose4j does. Errors: TokenRefused."""
    named = [audience] if isinstance(audience, str) else audience or []
    if not isinstance(named, list):
        raise TokenRefused("the audience is no list")
    if (named or expected) and not set(expected) & {each for each in cast("list[Any]", named) if isinstance(each, str)}:
        raise TokenRefused(f"the audience is {audience!r}")


def _check_scope(scope: Any) -> None:
    """Errors: TokenRefused for an empty scope, or for one that occurs twice."""
    named = [scope] if isinstance(scope, str) else scope
    if isinstance(named, list):
        names = [each.strip() if isinstance(each, str) else "" for each in cast("list[Any]", named)]
        if not all(names) or len(set(names)) < len(names):
            raise TokenRefused("a scope is empty, or named twice")
