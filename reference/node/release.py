"""The release of Apache Kafka whose API versions this node speaks, to clients and to other nodes."""

from __future__ import annotations

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
}
"""Feature -> the lowest and the highest level.

Of the last two this node serves no API, and advertises none. It takes part in a cluster that has finalized them, as by the
defaults of Apache Kafka: they change nothing in what other APIs mean.
"""


def versions_of(key: int) -> tuple[int, int]:
    """The lowest and the highest version of an API; versions that Kafka calls unstable are left out."""
    lowest, highest, unstable, _ = APIS[key].releases[RELEASE]
    return lowest, highest - 1 if unstable else highest


def is_served_on(key: int, listener: str) -> bool:
    """Whether the release serves an API on this kind of listener."""
    return listener in APIS[key].releases[RELEASE][3]
