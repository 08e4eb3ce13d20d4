"""Adds rare elements to two of five schedules: look-ups by time, deleted records, disks that write in any order, several
directories, processes that are killed between two changes of their disks.

Drawn after everything else, so that the rest of a seed's schedule stays the same.
"""

from __future__ import annotations

from linearizability.simulation.choices import Choices, SeededChoices
from linearizability.simulation.schedule import ANY_ORDER, Client, Fault, Recreator, Schedule, Seeker

EVERY, FROM = 5, 3
"""Seeds whose remainder by the first is at least the second have some of it. Seeds 0 to 2 do not: stored trials know a mutant's
schedules by these (`bench fuzz`)."""
DIRECTORIES = 2
MOST_MOVES = 4
MOST_CRASHES = 3
CHANGES_BEFORE_DEATH = (2, 1, 3, 4, 5, 7, 10, 14)
"""Most steps change the disk one to three times, and truncations, new segments and checkpoints more often."""
QUICK_SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "600",
    "metadata.max.retention.bytes": "1",
}
"""Frequent snapshots, of which only the newest is kept."""
RECREATES = (10, 4)
"""Seeds with this remainder by the first have a topic that is created again and again."""
MOST_ENDS = 4
HIGH_WATERMARK_INTERVAL = "replica.high.watermark.checkpoint.interval.ms"
MOST_CHANGES_AT_START = 9
"""So many make the metadata log with its first segment; one node alone goes on and registers, in 22 changes."""


def with_rarities(choices: Choices, seed: int, schedule: Schedule) -> Schedule:
    """Return the schedule with some rare elements."""
    if seed % EVERY < FROM:
        return schedule
    if choices.integer(0, 1):
        schedule = _with_seekers(choices, schedule)
    if choices.integer(0, 1):
        schedule = _with_any_order(choices, schedule)
    if schedule.nodes > 1 and choices.integer(0, 3) == 3:
        schedule = _with_directories(choices, schedule)
    if choices.integer(0, 1):
        schedule = _with_crashes_in_steps(choices, schedule)
    return schedule


def with_deaths_and_cleanings(choices: Choices, seed: int, schedule: Schedule) -> Schedule:
    """The same schedule; in some of those that have something rare the last node dies as it starts for the first time, or the
    metadata log begins with a snapshot, which members that come back must fetch.

    It is drawn last of all, so that the rest of a seed's schedule is what it was before 2026-11-27.
    """
    if seed % EVERY < FROM:
        return schedule
    changes: dict[str, object] = {}
    if choices.integer(0, 2) == 2:
        changes["first_start_dies_at"] = choices.integer(1, MOST_CHANGES_AT_START)
    if schedule.nodes > 1 and choices.integer(0, 2) == 2:
        changes["properties"] = schedule.properties | QUICK_SNAPSHOTS
    return schedule.model_copy(update=changes)


def with_small_portions(choices: Choices, seed: int, schedule: Schedule) -> Schedule:
    """The same schedule; in one of three of those that have something rare nodes work in small portions.

    It is drawn last of all, so that the rest of a seed's schedule is what it was before 2026-11-30.
    """
    if seed % EVERY < FROM or choices.integer(0, 2) != 2:
        return schedule
    return schedule.model_copy(update={"small_portions": True})


def with_recreation(seed: int, schedule: Schedule) -> Schedule:
    """The same schedule; for some seeds with a topic that is deleted and created again, and nodes that are down meanwhile.

    It is drawn from a stream of its own, and all else of these seeds' schedules is what it was before.
    """
    every, remainder = RECREATES
    if seed % every != remainder:
        return schedule
    choices = SeededChoices(seed, "recreation")
    configs = choices.one_of(({}, {"flush.messages": "1"}, {"internal.segment.bytes": "1000"}))
    recreator = Recreator(
        configs=configs,
        batches=choices.one_of((20, 3, 50)),
        pause_ms=choices.one_of((10, 3, 25)),
    )
    ends = [_end_beside_deletion(choices, schedule) for _ in range(choices.integer(1, MOST_ENDS))]
    drawn = {
        "clients": (*schedule.clients, recreator),
        "properties": schedule.properties | {HIGH_WATERMARK_INTERVAL: choices.one_of(("1000", "300"))},
    }
    return _with_faults(schedule.model_copy(update=drawn), [*schedule.faults, *ends])


def _end_beside_deletion(choices: Choices, schedule: Schedule) -> Fault:
    """A process ends: at some time or, of several nodes, in half of the cases soon after it has deleted its replica."""
    ends = ("crash", "crash", "stop") if schedule.nodes == 1 else ("crash", "power-loss", "crash", "stop")
    fault = Fault(
        at_ms=choices.integer(1, schedule.duration_ms),
        kind=choices.one_of(ends),
        node=choices.one_of(schedule.node_ids),
        for_ms=choices.one_of((200, 50, 800)),
    )
    if schedule.nodes == 1 or choices.integer(0, 1):
        return fault
    wait_ms = choices.one_of((150, 0, 60, 250, 400))
    return fault.model_copy(update={"after": "GiveUpReplica", "role": "actor", "wait_ms": wait_ms})


def _with_seekers(choices: Choices, schedule: Schedule) -> Schedule:
    deletes = choices.integer(0, 1) == 1
    topics = [each.model_copy(update={"deletes": deletes and not each.is_output}) for each in schedule.topics]
    seekers: list[Client] = [Seeker(pause_ms=choices.one_of((40, 10, 150))) for _ in range(choices.integer(1, 2))]
    return schedule.model_copy(update={"topics": tuple(topics), "clients": (*schedule.clients, *seekers)})


def _with_any_order(choices: Choices, schedule: Schedule) -> Schedule:
    """Let each power loss leave what the disk happened to write, in any order. Add one if there is none."""
    faults = [
        each.model_copy(update={"amount": ANY_ORDER}) if each.kind == "power-loss" else each for each in schedule.faults
    ]
    if all(each.kind != "power-loss" for each in faults):
        node = choices.one_of(schedule.node_ids)
        at_ms = choices.integer(1, schedule.duration_ms)
        faults.append(Fault(at_ms=at_ms, kind="power-loss", node=node, for_ms=200, amount=ANY_ORDER))
    return _with_faults(schedule, faults)


def _with_directories(choices: Choices, schedule: Schedule) -> Schedule:
    """Each node has two log directories; replicas are moved between them, and now and then the second one fails."""
    faults: list[Fault] = []
    for _ in range(choices.integer(1, MOST_MOVES)):
        topic = choices.one_of(schedule.topics)
        faults.append(
            Fault(
                at_ms=choices.integer(1, schedule.duration_ms),
                kind="move",
                node=choices.one_of(schedule.node_ids),
                topic=topic.name,
                partition=choices.integer(0, topic.partitions - 1),
                amount=choices.integer(0, 1),
            )
        )
    if choices.integer(0, 1):
        node, at_ms = choices.one_of(schedule.node_ids), choices.integer(1, schedule.duration_ms)
        later_ms = choices.one_of((200, 600, 2_000))
        faults.append(Fault(at_ms=at_ms, kind="directory-fails", node=node))
        faults.append(Fault(at_ms=at_ms + later_ms, kind="crash", node=node, for_ms=200))
    drawn = schedule.model_copy(update={"log_directories": DIRECTORIES})
    return _with_faults(drawn, [*schedule.faults, *faults])


def _with_crashes_in_steps(choices: Choices, schedule: Schedule) -> Schedule:
    faults = [
        Fault(
            at_ms=choices.integer(1, schedule.duration_ms),
            kind="crash-in-step",
            node=choices.one_of(schedule.node_ids),
            for_ms=1_000,
            amount=choices.one_of(CHANGES_BEFORE_DEATH),
        )
        for _ in range(choices.integer(1, MOST_CRASHES))
    ]
    return _with_faults(schedule, [*schedule.faults, *faults])


def _with_faults(schedule: Schedule, faults: list[Fault]) -> Schedule:
    return schedule.model_copy(update={"faults": tuple(sorted(faults, key=lambda fault: fault.at_ms))})
