"""`client.properties`, by the names of Kafka's clients: the security of connections, and the client id.

Each property about security is either applied or refused by its name. Other properties (timeouts, serializers) are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Self

from linearizability.targets.security.errors import SecurityError
from linearizability.targets.security.mechanisms import MECHANISMS, Mechanism, TokenEndpoint
from linearizability.targets.security.tls import tls_context
from reference.security.errors import WrongSecurity
from reference.security.jaas import read_login
from reference.security.java_properties import logical_lines

CLIENT_ID = "tidegauge"
PROTOCOLS = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
"""security.protocol -> whether it has TLS, whether it has SASL."""

SERVED = {
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.endpoint.identification.algorithm",
    "ssl.enabled.protocols",
    "ssl.protocol",
    "ssl.cipher.suites",
    *(
        f"ssl.{store}.{what}"
        for store in ("truststore", "keystore")
        for what in ("type", "location", "password", "certificates", "certificate.chain", "key")
    ),
    "ssl.key.password",
}
WITHOUT_EFFECT = re.compile(r"sasl\.login\.(refresh|retry|connect|read)\..*|sasl\.kerberos\..*|ssl\.secure\.random\..*")
"""Properties of Java's clients that change neither the encryption nor the authentication here."""


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The security of connections to a target."""

    protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    mechanism: str = ""
    """The SASL mechanism; empty without SASL."""
    tls: SSLContext | None = field(default=None, repr=False)
    login: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The options of sasl.jaas.config: user names and secrets."""
    client_id: str = CLIENT_ID
    """The default client id of requests (client.id)."""
    tokens: TokenEndpoint | None = field(default=None, repr=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file. Errors: SecurityError, which names the file and the error in it."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SecurityError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
        try:
            return cls.of(parse_properties(text))
        except SecurityError as error:
            raise SecurityError(f"{path}: {error}") from error

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """Build from properties by name. Errors: SecurityError, which names the property."""
        _refuse_unknown(properties)
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise SecurityError(f"security.protocol={protocol} is none of {', '.join(PROTOCOLS)}")
        with_tls, with_sasl = PROTOCOLS[protocol]
        mechanism, login = _login(properties) if with_sasl else ("", {})
        return cls(
            protocol,
            mechanism,
            tls_context(properties) if with_tls else None,
            login,
            properties.get("client.id") or CLIENT_ID,
            TokenEndpoint.of(properties, login) if mechanism == "OAUTHBEARER" else None,
        )

    def authentication(self) -> Mechanism | None:
        """A new exchange of the mechanism; None without SASL. Errors: SecurityError where no token is available."""
        return MECHANISMS[self.mechanism](self.login, self.tokens) if self.mechanism else None

    def __str__(self) -> str:
        return f"{self.protocol} {self.mechanism}".strip()


def _refuse_unknown(properties: Mapping[str, str]) -> None:
    for name in properties:
        asks = name.startswith(("ssl.", "sasl.", "security."))
        if asks and name not in SERVED and not WITHOUT_EFFECT.fullmatch(name):
            raise SecurityError(f"{name} cannot be served")


def _login(properties: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise SecurityError(f"sasl.mechanism={mechanism} cannot be served; these can: {', '.join(MECHANISMS)}")
    text = properties.get("sasl.jaas.config", "")
    if not text and mechanism == "OAUTHBEARER":
        return mechanism, {}
    try:
        return mechanism, read_login(text)[1]
    except WrongSecurity as error:
        raise SecurityError(str(error)) from error


def parse_properties(text: str) -> dict[str, str]:
    """Parse Java properties. Errors: SecurityError, which names the line."""
    values: dict[str, str] = {}
    for number, name, value in logical_lines(text):
        if value is None:
            raise SecurityError(f"line {number} is not NAME=VALUE")
        values[name] = value
    return values
