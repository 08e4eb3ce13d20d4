"""Broker settings for drawn requests: some that are not the defaults, chosen by the seed.

Values are such that requests meet them: sizes of a few bytes, one session, one partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

DRAWN: Mapping[str, tuple[str, ...]] = {
    "auto.create.topics.enable": ("true",),
    "authorizer.class.name": ("",),
    "compression.type": ("gzip", "zstd", "uncompressed"),
    "default.replication.factor": ("2",),
    "delete.topic.enable": ("false",),
    "fetch.max.bytes": ("1024",),
    "group.consumer.assignors": ("range",),
    "group.consumer.max.size": ("1",),
    "group.consumer.migration.policy": ("disabled", "upgrade", "downgrade"),
    "group.coordinator.rebalance.protocols": ("classic",),
    "group.max.session.timeout.ms": ("6000",),
    "group.max.size": ("1",),
    "log.cleanup.policy": ("compact", "compact,delete"),
    "log.message.timestamp.after.max.ms": ("0",),
    "log.message.timestamp.before.max.ms": ("3600000",),
    "log.message.timestamp.type": ("LogAppendTime",),
    "max.incremental.fetch.session.cache.slots": ("0", "1", "7"),
    "max.request.partition.size.limit": ("1", "2"),
    "message.max.bytes": ("160", "250"),
    "min.insync.replicas": ("2",),
    "num.partitions": ("2",),
    "offset.metadata.max.bytes": ("0", "3"),
    "transaction.partition.verification.enable": ("false",),
    "transaction.two.phase.commit.enable": ("true",),
    "unclean.leader.election.enable": ("true",),
}
"""Setting -> values besides its default."""


def drawn_settings(seed: int) -> dict[str, str]:
    """Three to eight of them."""
    chance = Random(f"settings {seed}")
    return {name: chance.choice(DRAWN[name]) for name in chance.sample(sorted(DRAWN), chance.randint(3, 8))}
