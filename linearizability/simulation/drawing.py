"""Draw schedules: one recipe, with choices by a seed."""

from __future__ import annotations

from linearizability.simulation.choices import Choices, SeededChoices
from linearizability.simulation.drawing_clusters import several
from linearizability.simulation.drawing_compaction import with_compacted_coordinators, with_compaction
from linearizability.simulation.drawing_rare import (
    with_deaths_and_cleanings,
    with_rarities,
    with_recreation,
    with_small_portions,
)
from linearizability.simulation.drawing_voters import with_changing_voters
from linearizability.simulation.drawing_zookeeper import under_zookeeper
from linearizability.simulation.schedule import Administrator, Client, Fault, Schedule
from linearizability.simulation.workloads import consumer, producer, topic, with_workload

MAX_CLOCK_JUMP_MS = 1_200_000
"""Several jumps together stay below an hour; above, brokers would refuse correct clients' records as from the future."""


def draw(
    seed: int, mutant: str | None = None, nodes: int = 1, workload: str = "records", coordination: str = "kraft"
) -> Schedule:
    """The schedule of a seed."""
    choices = SeededChoices(seed)
    drawn = recipe(choices, seed, mutant, nodes, workload)
    if coordination == "zookeeper":
        drawn = under_zookeeper(choices, drawn)
    elif coordination == "changing-voters":
        drawn = with_changing_voters(choices, drawn)
    else:
        drawn = with_deaths_and_cleanings(choices, seed, with_compaction(choices, seed, drawn))
        drawn = with_compacted_coordinators(choices, seed, with_small_portions(choices, seed, drawn))
        return with_recreation(seed, drawn)
    return with_small_portions(choices, seed, drawn)


def recipe(
    choices: Choices, seed: int, mutant: str | None = None, nodes: int = 1, workload: str = "records"
) -> Schedule:
    """A schedule: producers, a consumer, and some faults."""
    drawn = _alone(choices, seed, mutant) if nodes == 1 else several(choices, seed, mutant, nodes)
    return with_rarities(choices, seed, with_workload(choices, drawn, workload))


def _alone(choices: Choices, seed: int, mutant: str | None) -> Schedule:
    duration_ms = choices.one_of((1_000, 2_000, 3_000))
    flushed = choices.one_of((True, False))
    topics = [topic(choices, index, flushed) for index in range(choices.integer(1, 2))]
    clients: list[Client] = [producer(choices, duration_ms) for _ in range(choices.integer(1, 3))]
    clients += [consumer(choices) for _ in range(choices.integer(1, 2))]
    if choices.integer(0, 3) == 3:
        clients.append(Administrator(topics=choices.integer(1, 4), pause_ms=choices.integer(20, 300)))
    faults = [fault for _ in range(choices.integer(0, 5)) for fault in _faults(choices, duration_ms)]
    return Schedule(
        seed=seed,
        mutant=mutant,
        duration_ms=duration_ms,
        topics=tuple(topics),
        clients=tuple(clients),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ms)),
    )


def _faults(choices: Choices, duration_ms: int) -> list[Fault]:
    """One fault, or two that belong together."""
    at_ms = choices.integer(1, duration_ms)
    kind = choices.one_of(
        (
            "crash",
            "power-loss",
            "stop",
            "crash",
            "power-loss",
            "reset",
            "flaky",
            "flaky",
            "pause",
            "disk-full",
            "read-only",
            "slow",
            "clock-jump",
            "stop+power-loss",
            "disk-full+crash",
            "flush-fails+power-loss",
        )
    )
    down_ms = choices.one_of((20, 1, 200, 600))
    match kind:
        case "crash" | "power-loss" | "stop":
            return [Fault(at_ms=at_ms, kind=kind, for_ms=down_ms)]
        case "stop+power-loss":
            return [
                Fault(at_ms=at_ms, kind="stop", for_ms=down_ms + 2),
                Fault(at_ms=at_ms + 1, kind="power-loss", for_ms=down_ms),
            ]
        case "disk-full+crash":
            room = choices.one_of((0, 100, 1_000))
            later_ms = choices.integer(1, 100)
            return [
                Fault(at_ms=at_ms, kind="disk-full", for_ms=later_ms + 300, amount=room),
                Fault(at_ms=at_ms + later_ms, kind="crash", for_ms=down_ms),
            ]
        case "flush-fails+power-loss":
            later_ms = choices.integer(20, 600)
            return [
                Fault(at_ms=at_ms, kind="flush-fails", for_ms=choices.integer(1, later_ms)),
                Fault(at_ms=at_ms + later_ms, kind="power-loss", for_ms=down_ms),
            ]
        case "reset":
            return [Fault(at_ms=at_ms, kind="reset", amount=choices.one_of((100, 50)))]
        case "flaky":
            amount = choices.one_of((5, 20))
            return [Fault(at_ms=at_ms, kind="flaky", for_ms=choices.integer(50, 800), amount=amount)]
        case "pause":
            return [Fault(at_ms=at_ms, kind="pause", for_ms=choices.one_of((100, 700, 2_500)))]
        case "disk-full":
            amount = choices.one_of((0, 100, 1_000))
            return [Fault(at_ms=at_ms, kind="disk-full", for_ms=choices.integer(50, 800), amount=amount)]
        case "read-only":
            return [Fault(at_ms=at_ms, kind="read-only", for_ms=choices.integer(50, 800))]
        case "slow":
            return [Fault(at_ms=at_ms, kind="slow", for_ms=choices.integer(50, 800), amount=choices.integer(1, 300))]
        case _:
            amount = choices.integer(-MAX_CLOCK_JUMP_MS, MAX_CLOCK_JUMP_MS)
            return [Fault(at_ms=at_ms, kind="clock-jump", amount=amount)]
