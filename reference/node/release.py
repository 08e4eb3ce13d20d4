"""The release of Apache Kafka whose API versions this node supports, for clients and other nodes."""

from __future__ import annotations

from collections.abc import Mapping

from reference.controller.quorum_voters import FEATURE as VOTERS_FEATURE
from reference.controller.quorum_voters import LEVELS as VOTERS_LEVELS
from reference.protocol.apis import APIS

RELEASE = "4.3.1"

BROKER, CONTROLLER = "broker", "controller"
"""The kinds of listeners, by their names in the schemas."""

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

This node serves no API of share.version and streams.version, and advertises none. It may join a cluster that has finalized
them, as by Apache Kafka's defaults: they do not affect other APIs.
"""

BEFORE_IDS = "2.8"
"""The inter-broker protocol of Apache Kafka 2.8, which has topic names where later ones have topic ids."""
HIGHEST_IN_2_8 = {1: 12, 2: 6, 4: 5, 5: 3, 6: 7, 24: 3, 56: 0}
"""API between brokers -> the highest version in 2.8, if 3.9 supports a higher one.

Fetch, ListOffsets, LeaderAndIsr, StopReplica, UpdateMetadata, AddPartitionsToTxn, AlterPartition (then AlterIsr).
Source: the schemas of 2.8.2; MetadataVersion and ControllerChannelManager of 3.9.2.
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
    BEFORE_IDS: {},
}
"""The finalized features of a new cluster, as the release of Apache Kafka has them by default.

4.3-IV0, KIP-966, KIP-848 and KIP-890; 3.9-IV0. A cluster of 2.8 has no metadata quorum.
"""


def peers_release_of(properties: Mapping[str, str]) -> str:
    """The release whose API versions are used for requests to other nodes: that of the oldest of them."""
    return properties.get("tidegauge.peers.release", RELEASE)


def versions_of(key: int, release: str = RELEASE) -> tuple[int, int]:
    """The lowest and the highest version of an API, without versions that Kafka marks as unstable."""
    if release == BEFORE_IDS:
        lowest, highest = versions_of(key, "3.9.2")
        return lowest, min(highest, HIGHEST_IN_2_8.get(key, highest))
    lowest, highest, unstable, _ = APIS[key].releases[release]
    return lowest, highest - 1 if unstable else highest


def is_served_on(key: int, listener: str) -> bool:
    """Whether the release serves an API on this kind of listener."""
    return listener in APIS[key].releases[RELEASE][3]
