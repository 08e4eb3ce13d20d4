"""Security settings of a broker's file: those that are served are checked, and the others refused by name.

To serve a file without a protection that it asks for would be insecure by silence.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

from reference.authorizer.authorizer import super_users_of
from reference.controller.broker_configs import PER_ADDRESS, connections_by_address
from reference.controller.config_definition import InvalidConfig
from reference.node.listeners import (
    OAUTHBEARER,
    OF_NODES,
    PROTOCOLS,
    VALIDATOR,
    inter_broker_listener,
    login_of,
    of_listener,
    protocols_of,
    sasl_of,
)
from reference.runtime.key_sets import read_keys
from reference.runtime.tls import client_context, server_context
from reference.security.certificate_principals import mapping_rules
from reference.security.errors import WrongSecurity

SERVED = {
    "sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.mechanism.inter.broker.protocol", "sasl.mechanism.controller.protocol",
    "sasl.server.max.receive.size",
    "delegation.token.expiry.check.interval.ms", "delegation.token.expiry.time.ms", "delegation.token.max.lifetime.ms",
    "delegation.token.secret.key",
    "ssl.client.auth", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm", "ssl.key.password",
    "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
    "ssl.principal.mapping.rules", "ssl.protocol",
    "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type",
}  # fmt: skip
OF_BEARERS = frozenset({
    VALIDATOR, "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name",
})  # fmt: skip
"""Settings that are served where OAUTHBEARER is."""
OF_ONE_LISTENER = frozenset({"connections.max.reauth.ms", "max.connections", "max.connection.creation.rate"})
"""Further settings that are served for one listener."""

ASKS_FOR = {
    "sasl.": "a kind of authentication that is not served here",
    "ssl.": "a kind of TLS that is not served here",
    "security.providers": "security providers of Java, and there is no Java here",
    "delegation.token.": "a kind of delegation tokens that is not served here",
    "password.encoder.": "passwords encoded in ZooKeeper, and there is none here",
    "client.quota.callback.class": "a class that decides on quotas, and quotas are applied as Kafka's default does here",
    "early.start.listeners": "listeners that open before the ACLs are read, and none does here",
    "principal.builder.class": "a principal builder, and principals are built as Kafka's default does here",
    "create.topic.policy.class.name": "a policy for new topics, and policies are not applied here",
    "alter.config.policy.class.name": "a policy for settings, and policies are not applied here",
    "config.providers": "values of another place, and values are taken as they are here",
    "kafka.metrics.reporters": "classes that report metrics, and tidegauge.metrics.listener serves them here",
    "remote.log.storage.system.enable": "tiered storage, and records are kept in the log directories alone here",
}
"""Name, or its beginning -> what a line with it asks for. Most of these names change nothing where they have Kafka's default."""

WITH_ZOOKEEPER_ASKS_FOR = {
    "zookeeper.set.acl": "znodes that brokers alone may change",
    "zookeeper.ssl.": "TLS to ZooKeeper",
    "zookeeper.clientCnxnSocket": "a class that connects to ZooKeeper",
    "zookeeper.metadata.migration.enable": "a migration to KRaft",
    "cordoned.log.dirs": "log directories that take no new replicas, of which only a metadata quorum knows",
    "delegation.token.": "delegation tokens, which are kept in a metadata quorum only",
    "authorizer.class.name": "an authorizer, whose ACLs are read from a metadata quorum only",
}
"""Name, or its beginning -> what a line with it asks for where ZooKeeper coordinates."""
MECHANISM_SETTINGS = ("sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol")

AUTHORIZER_SETTINGS = ("super.users", "allow.everyone.if.no.acl.found")
"""Settings of the authorizer itself, which are no broker settings."""

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

OF_LISTENER = re.compile(r"listener\.name\.[^.]+\.(?:(?!max\.)[^.]+\.(?=sasl\.|connections\.))?")
"""The prefix of a setting of one listener, or of one mechanism on it."""


def refused_line(properties: Mapping[str, str], defaults: Mapping[str, str | None]) -> str | None:
    """The sentence that refuses the first line with a feature that is not served; None where there is none."""
    served = SERVED | OF_BEARERS if has_bearers(properties) else SERVED
    for name, value in properties.items():
        own = OF_LISTENER.sub("", name)
        if own == VALIDATOR and not re.fullmatch(rf"listener\.name\.[^.]+\.oauthbearer\.{VALIDATOR}", name):
            return f"{name} asks for {ASKS_FOR['sasl.']}: it cannot be served"
        if own == "sasl.jaas.config" and not re.fullmatch(r"listener\.name\.[^.]+\.[^.]+\.sasl\.jaas\.config", name):
            return f"{name} has no effect on a broker: listener.name.NAME.MECHANISM.{own} has"
        if own.startswith("sasl.mechanism.") and name != own:
            return f"{name} has no effect on a broker: {own} has"
        asked = next((what for start, what in ASKS_FOR.items() if begins(own, start)), None)
        if asked and own not in served and value.strip() not in ("", (defaults.get(own) or "").removeprefix("class ")):
            return f"{name} asks for {asked}: it cannot be served"
    authorizer = properties.get("authorizer.class.name", "").strip()
    if authorizer not in ("", STANDARD_AUTHORIZER):
        return f"authorizer.class.name={authorizer}: {STANDARD_AUTHORIZER} alone can be served"
    try:
        connections_by_address(properties.get(PER_ADDRESS, ""))
    except InvalidConfig as error:
        return str(error)
    unnamed = next((user for user in super_users_of(properties) if ":" not in user), None)
    if unnamed is not None:
        return f"super.users: '{unnamed}' is no principal, as User:name"
    return None


def has_bearers(properties: Mapping[str, str]) -> bool:
    """Whether a listener has OAUTHBEARER."""
    return any(
        OF_LISTENER.sub("", name) == "sasl.enabled.mechanisms" and OAUTHBEARER in value
        for name, value in properties.items()
    )


def refused_with_zookeeper(properties: Mapping[str, str]) -> str | None:
    """The sentence that refuses the first line that cannot be served where ZooKeeper coordinates; None where none does."""
    for name, value in properties.items():
        asked = next((what for start, what in WITH_ZOOKEEPER_ASKS_FOR.items() if begins(name, start)), None)
        if asked and value.strip().lower() not in ("", "false"):
            return f"{name} asks for {asked}: it cannot be served with zookeeper.connect"
        if OF_LISTENER.sub("", name) in MECHANISM_SETTINGS and "SCRAM" in value.upper():
            return (
                f"{name} asks for SCRAM, whose credentials are read from a metadata quorum only, and not from ZooKeeper"
            )
    return None


def is_served_on_listener(name: str, listeners: Iterable[str]) -> bool:
    """Whether a setting is one of a listener's own, and that listener is one of these (in capitals)."""
    found = OF_LISTENER.match(name)
    own = name[found.end() :] if found else ""
    named = name.removeprefix("listener.name.").partition(".")[0].upper()
    return own in SERVED | OF_BEARERS | OF_ONE_LISTENER and named in listeners


def begins(name: str, start: str) -> bool:
    return name.startswith(start) if start.endswith(".") else name == start


def refused_listener(properties: Mapping[str, str], own: Iterable[str], controllers: Iterable[str]) -> str | None:
    """The sentence that refuses the first listener that cannot be served as the file says; None where all can.

    `own` are the names of this node's listeners, `controllers` those of the controllers', which a broker connects to.
    """
    own, controllers, protocols = [*own], [*controllers], protocols_of(properties)
    for name in [*own, *controllers]:
        if name not in protocols:
            return f"listener.security.protocol.map has no protocol for the listener {name}"
        if protocols[name] not in PROTOCOLS:
            return f"the listener {name} is to speak {protocols[name]}: that is none of {', '.join(PROTOCOLS)}"
    try:
        for name in own:
            check_served(properties, name)
        _check_inter_broker(properties, [name for name in own if name not in controllers])
        for name in controllers[:1]:
            peer_login(properties, name, mechanism_setting(properties, name))
            check_client(properties, name)
    except WrongSecurity as error:
        return str(error)
    return None


def check_served(properties: Mapping[str, str], listener: str) -> None:
    """Check that this node can serve a listener as configured. Errors: WrongSecurity."""
    sasl = sasl_of(properties, listener)
    if sasl is not None and sasl.bearer is not None and sasl.bearer.keys_url.startswith("file:"):
        read_keys(sasl.bearer.keys_url)
    if protocols_of(properties)[listener].endswith("SSL"):
        own = of_listener(properties, listener)
        mapping_rules(own.get("ssl.principal.mapping.rules", "DEFAULT"))
        try:
            server_context(properties, listener)
        except WrongSecurity as error:
            raise WrongSecurity(f"listener {listener}: {error}") from error


def check_client(properties: Mapping[str, str], listener: str) -> None:
    """Check that this node can connect to other nodes' listener of this name. Errors: WrongSecurity."""
    if protocols_of(properties)[listener].endswith("SSL"):
        client_context(properties, listener)


def _check_inter_broker(properties: Mapping[str, str], own: list[str]) -> None:
    named = inter_broker_listener(properties)
    if properties.get("inter.broker.listener.name") and properties.get("security.inter.broker.protocol"):
        raise WrongSecurity("inter.broker.listener.name and security.inter.broker.protocol are both set: one is enough")
    if named and own and named not in own:
        raise WrongSecurity(f"the inter-broker listener {named} is not among {', '.join(own)}")
    for listener in [named or own[0]] if own else []:
        peer_login(properties, listener, mechanism_setting(properties, listener))
        check_client(properties, listener)


def mechanism_setting(properties: Mapping[str, str], listener: str) -> str:
    """The setting that names the mechanism for other nodes' listener of this name."""
    controllers = {name.strip().upper() for name in properties.get("controller.listener.names", "").split(",")}
    kind = "controller" if listener in controllers else "inter.broker"
    return f"sasl.mechanism.{kind}.protocol"


def peer_login(properties: Mapping[str, str], listener: str, setting: str) -> tuple[str, str, str] | None:
    """Mechanism, user and password for other nodes' listener of this name; None without SASL. Errors: WrongSecurity."""
    if not protocols_of(properties)[listener].startswith("SASL_"):
        return None
    mechanism = properties.get(setting, "GSSAPI").strip()
    if mechanism not in OF_NODES:
        raise WrongSecurity(f"{setting}={mechanism} cannot be served; these can: {', '.join(OF_NODES)}")
    options = login_of(of_listener(properties, listener), listener, mechanism)
    if not options.get("username") or "password" not in options:
        raise WrongSecurity(
            f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config has no username and password "
            "for connections to other nodes"
        )
    return mechanism, options["username"], options["password"]


def is_open(host: str) -> bool:
    """Whether a listener on this host is reached from other machines; an empty host is every address."""
    try:
        return not ipaddress.ip_address(host or "0.0.0.0").is_loopback
    except ValueError:
        return host != "localhost"
