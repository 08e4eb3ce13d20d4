"""The static properties of a node: its role, its listeners, the voters of the metadata quorum."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from reference.protocol.primitives import NodeId
from reference.replication.partition_state import TruncationRule


def controller_listeners_of(properties: Mapping[str, str]) -> frozenset[str]:
    """The listeners of the controller quorum."""
    text = properties.get("controller.listener.names", "")
    return frozenset(name.strip().upper() for name in text.split(",") if name.strip())


def first_controller_listener_of(properties: Mapping[str, str]) -> str:
    """The listener on which the voters connect to each other."""
    return properties.get("controller.listener.names", "").split(",")[0].strip().upper() or "CONTROLLER"


def truncation_of(properties: Mapping[str, str]) -> TruncationRule:
    """The truncation rule; the historical one, from before KIP-101, truncates to the high watermark."""
    historical = properties.get("tidegauge.replica.truncation") == "high-watermark"
    return "high-watermark" if historical else "leader-epoch"


def is_broker(properties: Mapping[str, str]) -> bool:
    """Whether the node is a broker; otherwise it is only a controller."""
    roles = properties.get("process.roles", "broker,controller").split(",")
    return "broker" in (role.strip() for role in roles)


class Address(NamedTuple):
    """Another node's address, and its listener's name, which determines the security protocol."""

    host: str
    port: int
    listener: str = ""


Voters = Mapping[NodeId, Address]

_VOTER = re.compile(r"(\d+)@(\[[0-9a-fA-F:]+\]|[^:@]+):(\d+)")


def voters_of(properties: Mapping[str, str], node: NodeId, *, may_be_alone: bool = True) -> dict[NodeId, Address]:
    """The voters of the configuration, by id.

    If none is configured, and the node may be alone, it is the only voter, and its address is not used. Otherwise the voters
    are in the log, and the leader is found through the bootstrap servers (KIP-853).

    Errors: ValueError for an entry that is not `ID@HOST:PORT`.
    """
    text = properties.get("controller.quorum.voters", "")
    listener = properties.get("controller.listener.names", "").partition(",")[0].strip().upper()
    found: dict[NodeId, Address] = {}
    for item in text.split(","):
        if item.strip():
            matched = _VOTER.fullmatch(item.strip())
            if matched is None:
                raise ValueError(f"'{item}' is no voter: ID@HOST:PORT is needed")
            found[NodeId(int(matched[1]))] = Address(matched[2].strip("[]"), int(matched[3]), listener)
    return found or ({node: Address("127.0.0.1", 0, listener)} if may_be_alone else {})
