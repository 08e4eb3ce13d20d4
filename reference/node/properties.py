"""What a node reads of its file's properties by itself: they are no settings of brokers or topics."""

from __future__ import annotations

from collections.abc import Mapping

from reference.replication.reign import TruncationRule


def controller_listeners_of(properties: Mapping[str, str]) -> frozenset[str]:
    """The listeners on which the quorum speaks."""
    text = properties.get("controller.listener.names", "")
    return frozenset(name.strip().upper() for name in text.split(",") if name.strip())


def truncation_of(properties: Mapping[str, str]) -> TruncationRule:
    """The historical switch: before KIP-101 followers cut their logs to their high watermarks."""
    historical = properties.get("tidegauge.replica.truncation") == "high-watermark"
    return "high-watermark" if historical else "leader-epoch"


def is_broker(properties: Mapping[str, str]) -> bool:
    """Whether the node serves clients; else it is a controller only."""
    roles = properties.get("process.roles", "broker,controller").split(",")
    return "broker" in (role.strip() for role in roles)
