"""Additions to some schedules: compacted topics, the client that updates one of them, and cleaners that are seldom idle.

They are drawn last, so that the rest of a seed's schedule is unchanged since before 2026-11-26.
"""

from __future__ import annotations

from linearizability.simulation.choices import Choices
from linearizability.simulation.drawing_rare import EVERY, FROM
from linearizability.simulation.schedule import GROUPS_TOPIC, TRANSACTIONS_TOPIC, Schedule, Topic, Updater

TOPIC = "latest"
BACKOFFS_MS = (50, 150, 400)
CHECKPOINT_INTERVALS = ("log.flush.offset.checkpoint.interval.ms", "log.flush.start.offset.checkpoint.interval.ms")
"""A minute by default, which is longer than a run: a truncation would then never go below a stored recovery point."""
SEGMENT_OF_COORDINATORS = 3_000
"""The largest batch, a group's metadata, must fit into a segment."""
DELETES_AT_ONCE = "1"
"""The value of delete.retention.ms: the second compaction removes a tombstone. The default, a day, is longer than any run."""


def with_compaction(choices: Choices, seed: int, schedule: Schedule) -> Schedule:
    """The schedule, with a compacted topic in one of three that have a rarity."""
    if seed % EVERY < FROM or choices.integer(0, 2) != 2:
        return schedule
    updater = Updater(
        topic=TOPIC,
        keys=choices.one_of((4, 1, 40)),
        records=choices.one_of((3, 1, 10)),
        pause_ms=choices.one_of((8, 3, 25)),
        deletes_percent=choices.one_of((30, 0, 60)),
    )
    properties = {"log.cleaner.backoff.ms": str(choices.one_of(BACKOFFS_MS))}
    if choices.integer(0, 1):
        properties |= dict.fromkeys(CHECKPOINT_INTERVALS, "200")
    return schedule.model_copy(
        update={
            "compacted": (_topic(choices),),
            "clients": (*schedule.clients, updater),
            "properties": properties | schedule.properties,
        }
    )


def with_compacted_coordinators(choices: Choices, seed: int, schedule: Schedule) -> Schedule:
    """The same schedule; in half of those that have something rare the topics of the coordinators that clients use are compacted,
    also while a coordinator loads. By default their segments are too large for that.

    It is drawn last of all, so that the rest of a seed's schedule is what it was before 2026-11-30.
    """
    names = [GROUPS_TOPIC] * schedule.has_groups + [TRANSACTIONS_TOPIC] * schedule.transacts
    if seed % EVERY < FROM or not names or choices.integer(0, 1):
        return schedule
    configs = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": str(SEGMENT_OF_COORDINATORS),
        "min.cleanable.dirty.ratio": choices.one_of(("0.01", "0.5")),
        "delete.retention.ms": DELETES_AT_ONCE,
    }
    if schedule.nodes > 1:
        configs["min.insync.replicas"] = "2"
    properties = {"log.cleaner.backoff.ms": str(choices.one_of(BACKOFFS_MS))}
    properties |= dict.fromkeys(CHECKPOINT_INTERVALS, "200")  # a compaction stays below what is flushed
    return schedule.model_copy(
        update={
            "compacted": (*schedule.compacted, *(Topic(name=name, configs=configs) for name in names)),
            "properties": properties | schedule.properties,
        }
    )


def _topic(choices: Choices) -> Topic:
    configs = {
        "cleanup.policy": choices.one_of(("compact", "compact", "compact,delete")),
        "internal.segment.bytes": str(choices.one_of((1_000, 2_000, 6_000))),
        "min.cleanable.dirty.ratio": choices.one_of(("0.01", "0.5")),
    }
    if choices.integer(0, 1):
        configs["flush.messages"] = "1"
    if choices.integer(0, 1):
        configs["delete.retention.ms"] = DELETES_AT_ONCE
    if choices.integer(0, 3) == 3:
        configs["min.compaction.lag.ms"] = "300"
    if configs["cleanup.policy"] != "compact":
        configs |= choices.one_of(({}, {"retention.bytes": "4000"}, {"retention.ms": "700"}))
    return Topic(name=TOPIC, configs=configs)
