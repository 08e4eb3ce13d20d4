"""A group's coordinator is killed right after it acknowledged a commit; librdkafka then reads from the next one (KIP-848)."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition, libversion

from linearizability.findings.waiting import await_true
from linearizability.targets import open_target
from linearizability.targets.target import Target
from linearizability.workload.cluster import Coordinated, create_topic, find_coordinator, look

TOPIC, GROUP, OFFSETS = "orders", "shop", "__consumer_offsets"
BROKERS = (2, 3, 4)
"""All but the controller."""
SETTINGS = {"offsets.topic.num.partitions": "1"}
ROUNDS, FIRST = 3, 1000
PAUSED_AFTER_S = 5.0
"""Less than broker.session.timeout.ms: the follower is in sync when the leader is fenced, and its next fetch, which would
advance the next leader's high watermark, comes some seconds later."""
SOCKET_TIMEOUT_MS = 2000
"""A minute by default: so long the consumer would wait for the paused broker when it asks that one for the coordinator."""
READY_WITHIN_S, ANSWERED_WITHIN_S, RIGHT_WITHIN_S = 90.0, 30.0, 30.0


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Reproduce the finding. Errors: TargetError, WrongTarget."""
    seen = [f"librdkafka {libversion()[0]}"]
    with open_target(f"mixed:{spec}{f',broker={spec}' * 3}", folder=folder, config=SETTINGS) as target:
        for topic, configs in ((TOPIC, {}), (OFFSETS, {"cleanup.policy": "compact"})):
            create_topic(target.nodes, topic, partitions=1, replication_factor=3, configs=configs, replicas=BROKERS)
        for offset in range(FIRST, FIRST + ROUNDS):
            read = _read_after_kill(target, offset, seen)
            if read is None:
                return None, seen
            if read != offset:
                return True, seen
    return False, seen


def _read_after_kill(target: Target, offset: int, seen: list[str]) -> int | None:
    """Commit an offset, kill the coordinator, and return the first offset from the next one; None where there was no
    response."""
    reader = _consumer(target)
    if not await_true(lambda: _commits(reader, FIRST - 1) and _is_complete(target), READY_WITHIN_S):
        seen.append("the group has no coordinator, or a replica of its offsets is missing")
        return None
    coordinator = find_coordinator(target.nodes, Coordinated("group", GROUP))
    follower = next(id for id in reversed(BROKERS) if id != coordinator)
    if not _commits(reader, offset):
        seen.append("the offset was not committed")
        return None
    target.kill(coordinator)
    time.sleep(PAUSED_AFTER_S)
    target.pause(follower)
    seen.append(f"committed {offset}, acknowledged; coordinator {coordinator} killed, then follower {follower} paused")
    first = _committed(reader, ANSWERED_WITHIN_S)
    seen.append(f"read next, with isolation.level=read_uncommitted: {first}")
    target.resume(follower)
    if await_true(lambda: _committed(reader, ANSWERED_WITHIN_S) == offset, RIGHT_WITHIN_S):
        seen.append(f"read later: {offset}")
    reader.close()
    target.restart(coordinator)
    return first


def _consumer(target: Target) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": GROUP,
            "isolation.level": "read_uncommitted",  # makes it send OffsetFetch without require_stable
            "enable.auto.commit": False,
            "socket.timeout.ms": SOCKET_TIMEOUT_MS,
            "log_level": 0,
        }
    )


def _is_complete(target: Target) -> bool:
    return look(target.nodes, OFFSETS).complete(1)


def _commits(consumer: Consumer, offset: int) -> bool:
    try:
        (done,) = consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False) or [None]
    except KafkaException:
        return False
    return done is not None and done.error is None


def _committed(consumer: Consumer, within_s: float) -> int | None:
    """The committed offset from the coordinator, -1001 for none; None without a response in time."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=1)
        except KafkaException:
            continue
        if found.error is None:
            return found.offset
    return None
