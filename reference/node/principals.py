"""Principals: `TYPE:NAME` of a connection's authenticated client, and their encoding in an envelope (KIP-590)."""

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
    """The encoding of Kafka's DefaultKafkaPrincipalBuilder, including whether the client authenticated by a delegation token."""
    type_, _, name = principal.partition(":")
    return b"\x00\x00" + encode(DefaultPrincipalData(type=type_, name=name, token_authenticated=by_token), 0)


def decode_principal(data: Buffer) -> tuple[str, bool]:
    """The principal, and whether it authenticated by a token. Errors: CodecError for bytes that are no principal of version 0."""
    if bytes(data[:_VERSION_BYTES]) != b"\x00\x00":
        raise CodecError("a principal is encoded in an unsupported version")
    found = decode(DefaultPrincipalData, 0, data[_VERSION_BYTES:])
    return f"{found.type}:{found.name}", found.token_authenticated


def encode_host(host: str) -> bytes:
    """The bytes of an address in network order, as Java's InetAddress; those of the loopback address for a host name."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return bytes([127, 0, 0, 1])


def decode_host(data: Buffer) -> str:
    """The address. Errors: CodecError for bytes that are no address."""
    try:
        return host_of(str(ipaddress.ip_address(bytes(data))))
    except ValueError as error:
        raise CodecError(f"the client's address has {len(data)} bytes") from error
