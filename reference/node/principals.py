"""Principals: `TYPE:NAME` of the client that a connection authenticated, and their form in an envelope (KIP-590)."""

from __future__ import annotations

import ipaddress

from reference.protocol.addresses import host_of
from reference.protocol.codec import CodecError, decode, encode
from reference.protocol.messages.default_principal_data import DefaultPrincipalData
from reference.protocol.primitives import Buffer

USER = "User"
ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that has not authenticated (org.apache.kafka.common.security.auth.KafkaPrincipal)."""

_VERSION_BYTES = 2


def user(name: str) -> str:
    """The principal of a user."""
    return f"{USER}:{name}"


def encode_principal(principal: str, by_token: bool) -> bytes:
    """As Kafka's DefaultKafkaPrincipalBuilder writes it, with whether it has authenticated by a delegation token."""
    type_, _, name = principal.partition(":")
    return b"\x00\x00" + encode(DefaultPrincipalData(type=type_, name=name, token_authenticated=by_token), 0)


def decode_principal(data: Buffer) -> tuple[str, bool]:
    """The principal, and whether by a token. Errors: CodecError for what is no principal of version 0."""
    if bytes(data[:_VERSION_BYTES]) != b"\x00\x00":
        raise CodecError("the principal's version is not served")
    found = decode(DefaultPrincipalData, 0, data[_VERSION_BYTES:])
    return f"{found.type}:{found.name}", found.token_authenticated


def encode_host(host: str) -> bytes:
    """An address in network order, as Java's InetAddress gives it; loopback where the host is a name."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return bytes([127, 0, 0, 1])


def decode_host(data: Buffer) -> str:
    """Errors: CodecError for what is no address."""
    try:
        return host_of(str(ipaddress.ip_address(bytes(data))))
    except ValueError as error:
        raise CodecError(f"the client's address has {len(data)} bytes") from error
