"""Addresses of clients, as ACLs and quotas name them."""

from __future__ import annotations

import ipaddress
import struct


def host_of(address: str) -> str:
    """An address as Java writes it (InetAddress.getHostAddress), for ACLs and quotas name it so in all brokers of a cluster.

    IPv6 has eight numbers; an IPv4 client of an IPv6 socket is one of IPv4, so that a denial for its address counts.
    """
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    numbers = ":".join(f"{number:x}" for number in struct.unpack(">8H", found.packed))
    return f"{numbers}%{found.scope_id}" if found.scope_id else numbers
