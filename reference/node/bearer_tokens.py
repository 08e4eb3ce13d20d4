"""The server's side of OAUTHBEARER (RFC 7628, KIP-255, KIP-768): one message with a signed token.

A refused token is answered with a JSON object; the client replies with a single byte, and the exchange fails.
Source: org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslServer, OAuthBearerClientInitialResponse.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from reference.node.sasl_mechanisms import Refused
from reference.protocol.primitives import TimestampMs
from reference.security.signed_tokens import KeySet, TokenRefused, TokenRules, UnknownKey, check_token

_PAIRS = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_FIRST = re.compile(rf"n,(?:a=(?P<acts_as>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01(?P<pairs>{_PAIRS})\x01")
_BEARER = re.compile(r"bearer +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)
_UNDERSTOOD = b"\x01"
"""The client's reply to the response that refuses its token."""

INVALID_TOKEN = '{"status":"invalid_token"}'


class BearerToken:
    """One exchange."""

    by_token = False

    def __init__(
        self, rules: TokenRules, keys: KeySet, wants_keys: Callable[[], None], log: Callable[[str, str], None]
    ) -> None:
        """`wants_keys` is called if no key fits a token."""
        self._rules, self._keys, self._wants_keys, self._log = rules, keys, wants_keys, log
        self._is_refused = False
        self.user: str | None = None
        self.expires_at: TimestampMs | None = None

    def answer(self, message: bytes, now: TimestampMs) -> bytes:
        if self._is_refused:
            raise Refused("the token was refused", INVALID_TOKEN if message == _UNDERSTOOD else None)
        acts_as, token = _read(message)
        try:
            bearer = check_token(token, self._keys, self._rules, now)
        except TokenRefused as refused:
            if isinstance(refused, UnknownKey):
                self._wants_keys()
            self._log("info", f"a token of OAUTHBEARER is refused: {refused}")
            self._is_refused = True
            return INVALID_TOKEN.encode()
        if acts_as not in ("", bearer.user):
            raise Refused("the authorization id is not the token's user", _other_user(acts_as, bearer.user))
        self.user, self.expires_at = bearer.user, TimestampMs(bearer.expires_at_ms)
        return b""


def _read(message: bytes) -> tuple[str, str]:
    """The authorization id and the token of a message. Errors: Refused."""
    try:
        found = _FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        raise Refused("the message of OAUTHBEARER is no text") from None
    if found is None:
        raise Refused("the message of OAUTHBEARER cannot be read")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise Refused("the message of OAUTHBEARER has no token")
    return found["acts_as"] or "", bearer["token"]


def _other_user(acts_as: str, user: str) -> str:
    return (
        f"Authentication failed: Client requested an authorization id ({acts_as}) that is different from the token's "
        f"principal name ({user})"
    )
