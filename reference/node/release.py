"""The release of Apache Kafka whose API versions this node speaks, to clients and to other nodes."""

from __future__ import annotations

from collections.abc import Mapping

from reference.controller.quorum_voters import FEATURE as VOTERS_FEATURE
from reference.controller.quorum_voters import LEVELS as VOTERS_LEVELS
from reference.protocol.apis import APIS

RELEASE = "4.3.1"

BROKER, CONTROLLER = "broker", "controller"
"""The listeners that serve an API, as the schemas call them."""

SUPPORTED_FEATURES = {
    "metadata.version": (7, 30),
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    VOTERS_FEATURE: VOTERS_LEVELS,
}
"""Feature -> the lowest and the highest level.

Of share.version and streams.version this node serves no API, and advertises none. It takes part in a cluster that has finalized
them, as by the defaults of Apache Kafka: they change nothing in what other APIs mean.
"""

Features = Mapping[str, tuple[int, int]]


FIRST_FEATURES = {
    RELEASE: {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    },
    "3.9.2": {"metadata.version": 21},
}
"""The finalized features of a new cluster, as that release of Apache Kafka has them by default.

4.3-IV0, KIP-966, KIP-848 and KIP-890; 3.9-IV0.
"""


def peers_release_of(properties: Mapping[str, str]) -> str:
    """The release in whose API versions the other nodes are asked: that of the oldest of them."""
    return properties.get("tidegauge.peers.release", RELEASE)


def versions_of(key: int, release: str = RELEASE) -> tuple[int, int]:
    """The lowest and the highest version of an API; versions that Kafka calls unstable are left out."""
    lowest, highest, unstable, _ = APIS[key].releases[release]
    return lowest, highest - 1 if unstable else highest


def is_served_on(key: int, listener: str) -> bool:
    """Whether the release serves an API on this kind of listener."""
    return listener in APIS[key].releases[RELEASE][3]
