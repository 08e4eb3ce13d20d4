"""The security protocol of each listener (KIP-103), and for SASL its mechanisms and logins.

A setting of one listener has the prefix `listener.name.<name>.`, one of a mechanism on it `listener.name.<name>.<mechanism>.`.
Each takes precedence over the general one (org.apache.kafka.common.network.ListenerName).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from reference.security.errors import WrongSecurity
from reference.security.jaas import read_login
from reference.security.signed_tokens import TokenRules

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = {PLAINTEXT: 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Protocol -> its number in registrations (org.apache.kafka.common.security.auth.SecurityProtocol)."""

PLAIN = "PLAIN"
SCRAM = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Mechanism -> its number in credentials."""

OAUTHBEARER = "OAUTHBEARER"
OF_NODES = (PLAIN, *SCRAM)
"""The mechanisms by which a node authenticates to other nodes."""
MECHANISMS = (*OF_NODES, OAUTHBEARER)
USER_OPTION = "user_"
LOGIN_MODULES = {
    PLAIN: "PlainLoginModule",
    **dict.fromkeys(SCRAM, "ScramLoginModule"),
    OAUTHBEARER: "OAuthBearerLoginModule",
}
"""Mechanism -> the Kafka login module that its login must name; other classes would check users differently."""

DEFAULT_MAX_RECEIVE_BYTES = 524_288

VALIDATOR = "sasl.server.callback.handler.class"
VALIDATORS = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerValidatorCallbackHandler"
    for package in ("", "secured.")
)
"""Kafka's own validators, by the present and the former class name."""


def protocols_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Listener -> protocol, from listener.security.protocol.map.

    Without the map a listener's name is its protocol, and a controller listener with another name uses PLAINTEXT (KIP-590).
    """
    text = properties.get("listener.security.protocol.map")
    if text is None:
        controllers = properties.get("controller.listener.names", "").split(",")
        named = {name.strip().upper() for name in controllers if name.strip()}
        return {**dict.fromkeys(named, PLAINTEXT), **{name: name for name in PROTOCOLS}}
    pairs = (pair.rpartition(":") for pair in text.split(",") if pair.strip())
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


def inter_broker_listener(properties: Mapping[str, str]) -> str:
    """The listener on which brokers connect to each other; empty for the first one of each broker."""
    named = properties.get("inter.broker.listener.name") or properties.get("security.inter.broker.protocol") or ""
    return named.strip().upper()


def of_listener(properties: Mapping[str, str], listener: str) -> dict[str, str]:
    """The properties in force on a listener: its own ones, without their prefix, override the others."""
    prefix = f"listener.name.{listener.lower()}."
    own = {name[len(prefix) :]: value for name, value in properties.items() if name.startswith(prefix)}
    return {**properties, **own}


@dataclass(frozen=True, slots=True)
class BearerSettings:
    """OAUTHBEARER on one listener."""

    rules: TokenRules
    keys_url: str
    """sasl.oauthbearer.jwks.endpoint.url, of scheme file, http or https."""
    refresh_ms: int
    backoff_ms: int
    """The shortest interval between two fetches of keys."""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """SASL on one listener."""

    mechanisms: tuple[str, ...]
    logins: Mapping[str, Mapping[str, str]] = field(repr=False)
    """Mechanism -> the options of its login: for PLAIN the users, for all mechanisms this node's own login to others."""
    max_session_ms: Mapping[str, int]
    """Mechanism -> connections.max.reauth.ms; 0 for no limit (KIP-368)."""
    bearer: BearerSettings | None = None
    """The settings of OAUTHBEARER, if it is enabled."""
    max_receive_bytes: int = DEFAULT_MAX_RECEIVE_BYTES
    """sasl.server.max.receive.size: the largest frame before authentication."""

    def password_of(self, user: str) -> str | None:
        """A user's password for PLAIN; None for an unknown user."""
        return self.logins[PLAIN].get(f"{USER_OPTION}{user}")


def sasl_of(properties: Mapping[str, str], listener: str) -> SaslSettings | None:
    """The SASL settings of a listener; None if it does not use SASL. Errors: WrongSecurity, which names an unsupported
    property."""
    if not protocols_of(properties).get(listener, "").startswith("SASL_"):
        return None
    own = of_listener(properties, listener)
    names = [name.strip() for name in own.get("sasl.enabled.mechanisms", "GSSAPI").split(",") if name.strip()]
    if not names:
        raise WrongSecurity(f"the listener {listener} has no mechanism in sasl.enabled.mechanisms")
    for name in names:
        if name not in MECHANISMS:
            raise WrongSecurity(
                f"listener {listener}: sasl.enabled.mechanisms={name} cannot be served; these can: {', '.join(MECHANISMS)}"
            )
    logins = {name: login_of(own, listener, name) for name in names}
    session = {
        name: _integer("connections.max.reauth.ms", of_mechanism(own, name, "connections.max.reauth.ms"), 0)
        for name in names
    }
    most = "sasl.server.max.receive.size"
    bearer = bearer_of(own, listener, logins[OAUTHBEARER]) if OAUTHBEARER in names else None
    return SaslSettings(tuple(names), logins, session, bearer, _integer(most, own.get(most), DEFAULT_MAX_RECEIVE_BYTES))


def bearer_of(own: Mapping[str, str], listener: str, login: Mapping[str, str]) -> BearerSettings:
    """The settings of OAUTHBEARER. Without Kafka's validator of signed tokens Kafka accepts unsigned ones. Errors:
    WrongSecurity."""
    where = f"listener.name.{listener.lower()}.{OAUTHBEARER.lower()}."
    validator = own.get(f"{OAUTHBEARER.lower()}.{VALIDATOR}", "")
    if validator not in VALIDATORS:
        raise WrongSecurity(f"{where}{VALIDATOR}={validator} cannot be served: {VALIDATORS[0]} can")
    unknown = next((name for name in login if name.startswith(("ssl.", "unsecuredValidator"))), None)
    if unknown is not None:
        raise WrongSecurity(f"{where}sasl.jaas.config: {unknown} cannot be served")

    def given(name: str) -> str | None:
        return of_mechanism(own, OAUTHBEARER, f"sasl.oauthbearer.{name}")

    def number(name: str, default: int) -> int:
        return _integer(f"sasl.oauthbearer.{name}", given(name), default)

    url = given("jwks.endpoint.url") or ""
    if urlsplit(url).scheme not in ("file", "http", "https"):
        raise WrongSecurity(f"{where}sasl.oauthbearer.jwks.endpoint.url={url} is no URL of file, http or https")
    audiences = [each.strip() for each in (given("expected.audience") or "").split(",") if each.strip()]
    rules = TokenRules(
        audiences,
        given("expected.issuer"),
        number("clock.skew.seconds", 30),
        given("sub.claim.name") or "sub",
        given("scope.claim.name") or "scope",
    )
    backoff_ms = max(
        number("jwks.endpoint.retry.backoff.ms", 100), number("jwks.endpoint.retry.backoff.max.ms", 10_000)
    )
    return BearerSettings(rules, url, number("jwks.endpoint.refresh.ms", 3_600_000), backoff_ms)


def _integer(name: str, text: str | None, default: int) -> int:
    """A number. A listener's own setting is in no table, so it was not checked before. Errors: WrongSecurity."""
    try:
        return int(text) if text else default
    except ValueError:
        raise WrongSecurity(f"{name}={text} is no number") from None


def of_mechanism(own: Mapping[str, str], mechanism: str, name: str) -> str | None:
    """A mechanism's setting on a listener, else the general one."""
    return own.get(f"{mechanism.lower()}.{name}", own.get(name))


def login_of(own: Mapping[str, str], listener: str, mechanism: str) -> dict[str, str]:
    """The options of a mechanism's login. Errors: WrongSecurity."""
    name = f"{mechanism.lower()}.sasl.jaas.config"
    full = f"listener.name.{listener.lower()}.{name}"
    if name not in own:
        raise WrongSecurity(f"listener {listener}: {full} is missing")
    try:
        module, options = read_login(own[name])
    except WrongSecurity as error:
        raise WrongSecurity(f"{full}: {error}") from error
    if module.rpartition(".")[2] != LOGIN_MODULES[mechanism]:
        raise WrongSecurity(f"{full}: {module} cannot be served; {LOGIN_MODULES[mechanism]} can")
    return options
