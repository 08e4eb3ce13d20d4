"""The client's side of the SASL mechanisms: each returns its first message, and then a response to each challenge."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from linearizability.targets.security.errors import SecurityError
from reference.security.errors import WrongSecurity
from reference.security.scram_client import ScramExchange

TOKEN_WITHIN_S = 10.0


class Mechanism(Protocol):
    """One authentication."""

    def first(self) -> bytes:
        """The client's first message."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The client's response to a challenge; None when the exchange is complete. Errors: SecurityError."""
        ...


class Plain:
    """PLAIN (RFC 4616)."""

    def __init__(self, login: Mapping[str, str], tokens: TokenEndpoint | None = None) -> None:
        self.user, self.password = user_and_password(login)

    def first(self) -> bytes:
        return f"\0{self.user}\0{self.password}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class Scram:
    """SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802)."""

    def __init__(self, name: str, login: Mapping[str, str]) -> None:
        by_token = login.get("tokenauth", "").lower() == "true"
        self._exchange = ScramExchange(name, *user_and_password(login), "tokenauth=true" if by_token else "")

    def first(self) -> bytes:
        return self._exchange.first()

    def answer(self, challenge: bytes) -> bytes | None:
        try:
            return self._exchange.answer(challenge)
        except WrongSecurity as error:
            raise SecurityError(f"SCRAM: {error}") from error


class OAuthBearer:
    """OAUTHBEARER (RFC 7628) with a token from the configured endpoint."""

    def __init__(self, login: Mapping[str, str], tokens: TokenEndpoint | None) -> None:
        assert tokens is not None
        self.token = tokens.token()

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self.token}\x01\x01".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        return b"\x01" if challenge else None  # acknowledge the reason for a refusal; the server then fails


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """The source of tokens: an authorization server (client credentials, RFC 6749), or a file with one token."""

    url: str
    client: str = ""
    secret: str = ""
    scope: str = ""

    @classmethod
    def of(cls, properties: Mapping[str, str], login: Mapping[str, str]) -> Self:
        """Errors: SecurityError."""
        url = properties.get("sasl.oauthbearer.token.endpoint.url", "")
        if urllib.parse.urlsplit(url).scheme not in ("http", "https", "file"):
            raise SecurityError("sasl.oauthbearer.token.endpoint.url is no http, https or file URL")
        own = "sasl.oauthbearer.client.credentials.client."
        return cls(
            url,
            properties.get(f"{own}id") or login.get("clientId", ""),
            properties.get(f"{own}secret") or login.get("clientSecret", ""),
            properties.get("sasl.oauthbearer.scope") or login.get("scope", ""),
        )

    def token(self) -> str:
        """Request a new token. Errors: SecurityError."""
        parts = urllib.parse.urlsplit(self.url)
        try:
            if parts.scheme == "file":
                return Path(urllib.request.url2pathname(parts.path)).read_text(encoding="utf-8").strip()
            body = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
            request = urllib.request.Request(self.url, urllib.parse.urlencode(body).encode())
            request.add_header("Authorization", "Basic " + b64encode(f"{self.client}:{self.secret}".encode()).decode())
            with urllib.request.urlopen(request, timeout=TOKEN_WITHIN_S) as answer:
                return str(json.load(answer)["access_token"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SecurityError(f"no token from {self.url}: {error}") from error


def user_and_password(login: Mapping[str, str]) -> tuple[str, str]:
    """The user and the password of a login. Errors: SecurityError where sasl.jaas.config lacks one."""
    if "username" not in login or "password" not in login:
        raise SecurityError("sasl.jaas.config has no username and password")
    return login["username"], login["password"]


MECHANISMS: dict[str, Callable[[Mapping[str, str], TokenEndpoint | None], Mechanism]] = {
    "PLAIN": Plain,
    "SCRAM-SHA-256": lambda login, _: Scram("SCRAM-SHA-256", login),
    "SCRAM-SHA-512": lambda login, _: Scram("SCRAM-SHA-512", login),
    "OAUTHBEARER": OAuthBearer,
}
