"""Addresses of clients, as ACLs and quotas name them."""

from __future__ import annotations

import ipaddress
import struct


def host_of(address: str) -> str:
    """An address in Java's spelling (InetAddress.getHostAddress), which ACLs and quotas use on all brokers of a cluster.

    IPv6 has eight numbers. A client of an IPv6 socket with an IPv4 address gets that, so that an ACL for it applies.
    """
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    numbers = ":".join(f"{number:x}" for number in struct.unpack(">8H", found.packed))
    return f"{numbers}%{found.scope_id}" if found.scope_id else numbers
