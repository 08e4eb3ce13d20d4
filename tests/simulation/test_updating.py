"""Compacted topics in simulated runs: of each key the last value is found, by readers and in each replica's log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from linearizability.simulation.drawing import draw
from linearizability.simulation.fuzzing import run_planted
from linearizability.simulation.run import execute
from linearizability.simulation.schedule import Fault, Schedule, Topic, Updater
from linearizability.simulation.updating import Table, Update

WRITTEN, DELETED = Update(1, b"a", False), Update(2, b"a", True)
CONFIGS = {"cleanup.policy": "compact", "internal.segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.01"}


def table(*updates: Update, doubtful: tuple[Update, ...] = (), expires: bool = False) -> Table:
    """A table with acknowledged updates, each at the offset of its number."""
    made = Table(expires)
    for each in updates:
        made.acknowledge([each], each.number)
    made.doubt(doubtful)
    return made


@pytest.mark.parametrize(
    ("judged", "found", "start"),
    [
        (table(WRITTEN), {b"a": 1}, 0),
        (table(WRITTEN, DELETED), {b"a": 2}, 0),
        (table(WRITTEN), {}, 2),
        (table(WRITTEN, doubtful=(Update(3, b"a", False),)), {b"a": 3}, 0),
        (table(doubtful=(WRITTEN,)), {}, 0),
        (table(WRITTEN, DELETED, expires=True), {}, 0),
        (table(WRITTEN, DELETED, expires=True), {b"a": 1}, 0),
        (table(WRITTEN, doubtful=(DELETED,), expires=True), {}, 0),
    ],
)
def test_allowed_values_are_accepted(judged: Table, found: dict[bytes, int], start: int) -> None:
    assert judged.difference(found, start) == ""


@pytest.mark.parametrize(
    ("judged", "found", "text"),
    [
        (table(WRITTEN), {}, "a is not found, and update 1 was written at 1"),
        (table(WRITTEN, DELETED), {}, "a is not found, and update 2 deleted it at 2"),
        (table(WRITTEN, DELETED), {b"a": 1}, "a has update 1, and update 2 deleted it at 2"),
        (table(WRITTEN, Update(3, b"a", False), expires=True), {b"a": 1}, "a has update 1, and update 3"),
        (
            table(WRITTEN, doubtful=(Update(3, b"a", False),)),
            {},
            "update 1 was written at 1, or update 3 may have come",
        ),
        (table(), {b"b": 9}, "b has update 9"),
    ],
)
def test_forbidden_values_are_found(judged: Table, found: dict[bytes, int], text: str) -> None:
    assert text in judged.difference(found, 0)


def schedule(nodes: int, mutant: str | None = None, faults: tuple[Fault, ...] = ()) -> Schedule:
    return Schedule(
        seed=5,
        mutant=mutant,
        nodes=nodes,
        duration_ms=4_000,
        compacted=(Topic(name="latest", configs=CONFIGS),),
        clients=(Updater(topic="latest", keys=40, pause_ms=4, deletes_percent=30),),
        faults=faults,
        properties={"log.cleaner.backoff.ms": "50"},
    )


FAULTS = (
    Fault(at_ms=400, kind="crash", node=1, for_ms=100),
    Fault(at_ms=900, kind="cut", node=2, for_ms=500),
    Fault(at_ms=1_600, kind="power-loss", node=3, for_ms=200),
)


@pytest.mark.parametrize(("nodes", "faults"), [(1, ()), (3, FAULTS)])
def test_replicas_are_compacted_under_faults_and_keep_the_last_values(nodes: int, faults: tuple[Fault, ...]) -> None:
    run, trace = execute(schedule(nodes, faults=faults))
    assert (run.rule, run.text) == ("", "")
    assert run.counts["updates"] > 70 and run.counts["tables read"] > 3 and run.counts["bytes compacted"] > 5_000
    assert execute(schedule(nodes, faults=faults))[1].digest == trace.digest


@pytest.mark.parametrize("mutant", ["newest-value-lost", "tombstone-dropped-early"])
def test_a_planted_bug_of_compaction_is_found(mutant: str) -> None:
    assert run_planted(schedule(1, mutant))[0].rule == "last-value-lost"


def drawn(nodes: int) -> Iterator[Schedule]:
    return (each for seed in range(300) if (each := draw(seed, None, nodes)).compacted)


@pytest.mark.parametrize("nodes", [1, 3])
def test_some_drawn_schedules_have_a_compacted_topic(nodes: int) -> None:
    found = [*drawn(nodes)]
    assert len(found) > 20
    assert {each.compacted[0].configs["cleanup.policy"] for each in found} == {"compact", "compact,delete"}
    run, _ = execute(found[0])
    assert (run.rule, run.text) == ("", "")


def test_segments_beyond_retention_ms_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = CONFIGS | {"cleanup.policy": "compact,delete", "retention.ms": "300"}
    plan = schedule(1).model_copy(update={"compacted": (Topic(name="latest", configs=configs),), "duration_ms": 4_000})
    assert execute(plan)[0].rule == ""
    monkeypatch.setattr("reference.storage.shortening.breaching_segments", lambda *arguments, **named: 0)
    run, _ = execute(plan)
    assert run.rule == "retention-not-kept" and "is 300" not in run.text and "may be 300" in run.text


def test_a_compacted_topic_is_its_updaters_alone() -> None:
    for compacted, topics in (((), ()), ((Topic(name="latest"),), (Topic(name="latest"),))):
        with pytest.raises(ValidationError, match="compacted topics"):
            Schedule(compacted=compacted, topics=topics, clients=(Updater(topic="latest"),))


def test_a_log_with_gaps_is_not_compared_with_the_specification() -> None:
    assert not schedule(3).is_traceable
