"""Security settings that this broker cannot honour, and their refusal.

It speaks in clear, to everyone. A file that asks for authentication, encryption, an authorizer or a policy is refused by the
line that asks: to serve it without would be insecure by silence. So is a file that spares log directories.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")

ASKS_FOR = {
    "authorizer.class.name": "an authorizer, and every client may do everything here",
    "super.users": "an authorizer, and every client may do everything here",
    "sasl.": "authentication by SASL, and clients are not authenticated here",
    "ssl.": "TLS, and connections are not encrypted here",
    "delegation.token.secret.key": "delegation tokens, and clients are not authenticated here",
    "principal.builder.class": "a principal builder, and clients are not authenticated here",
    "create.topic.policy.class.name": "a policy for new topics, and policies are not applied here",
    "alter.config.policy.class.name": "a policy for settings, and policies are not applied here",
    "cordoned.log.dirs": "log directories that take no new replicas (KIP-1066), and all directories take them here",
}
"""Name, or its beginning -> what a line with it asks for. Most of these names change nothing where they have Kafka's default."""


OF_LISTENER = re.compile(r"listener\.name\.[^.]+\.(?:[^.]+\.(?=sasl\.))?")
"""What comes before a setting that is one listener's, or one mechanism's on it."""


def refused_line(properties: Mapping[str, str], defaults: Mapping[str, str | None]) -> str | None:
    """The sentence that refuses the first line that asks for protection; None where none does."""
    for name, value in properties.items():
        own = OF_LISTENER.sub("", name)
        asked = next((what for start, what in ASKS_FOR.items() if _begins(own, start)), None)
        if asked and value.strip() not in ("", defaults.get(own)):
            return f"{name} asks for {asked}: it cannot be served"
    protocol = properties.get("security.inter.broker.protocol", PLAINTEXT).strip().upper()
    if protocol != PLAINTEXT:
        return f"security.inter.broker.protocol={protocol}: brokers speak PLAINTEXT alone here"
    return None


def _begins(name: str, start: str) -> bool:
    return name.startswith(start) if start.endswith(".") else name == start


def refused_listener(names: Iterable[str], controllers: Iterable[str], protocols: str | None) -> str | None:
    """The sentence that refuses the first listener that does not speak in clear; None where all do.

    `protocols` is listener.security.protocol.map. Without it a listener's name is its protocol, and a controllers' listener
    speaks PLAINTEXT (KIP-103, KIP-590).
    """
    known = {name: name for name in PROTOCOLS}
    if protocols is None:
        known |= {name.upper(): PLAINTEXT for name in controllers if name.upper() not in PROTOCOLS}
    else:
        pairs = (pair.rpartition(":") for pair in protocols.split(",") if pair.strip())
        known = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
    for name in names:
        protocol = known.get(name)
        if protocol is None:
            return f"listener.security.protocol.map has no protocol for the listener {name}"
        if protocol != PLAINTEXT:
            return f"the listener {name} is to speak {protocol}: PLAINTEXT alone can be served"
    return None


def is_open(host: str) -> bool:
    """Whether a listener on this host is reached from other machines; an empty host is every address."""
    try:
        return not ipaddress.ip_address(host or "0.0.0.0").is_loopback
    except ValueError:
        return host != "localhost"
