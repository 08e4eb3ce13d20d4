"""Responses to followers that are sent late: their slices are read from the file at that time (KAFKA-18723)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linearizability.mutants.registry import MUTANTS
from linearizability.simulation import partition_oracle
from linearizability.simulation.drawing import draw
from linearizability.simulation.drawing_clusters import LATE_AT, LATE_EVERY
from linearizability.simulation.fuzzing import run_planted
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.partition_oracle import PartitionOracle
from linearizability.simulation.reception import Reception
from linearizability.simulation.world import Violation, World
from reference.node.effects import Respond
from reference.storage.log import LogSlice
from tests.simulation.test_partition_oracle import FakeLog, replica

MUTANT = "newer-epochs-appended"


class File:
    """A file that may change after a slice of it was taken."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]


class Connection:
    """A follower's connection to its leader."""

    id = 7
    is_sent_late = True

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def answer(self, data: bytes) -> None:
        self.sent.append(data)


class Answers:
    """A reception with one connection, and its responses."""

    def __init__(self) -> None:
        self.world = World(0, False)
        self.connection = Connection()
        self.reception = Reception("node 1", self.world, Random(0), lambda connection, frame: None)
        self.reception.open(cast(Any, self.connection))

    def make(self, *parts: Any) -> None:
        """Send a response of the node, and let time pass."""
        self.reception.respond(Respond(self.connection.id, [*parts]))
        self.world.run(self.world.now_us + 1_000)

    def end_of_fault(self) -> list[int]:
        self.connection.is_sent_late = False
        return self.reception.send_late()


@pytest.fixture
def answers() -> Answers:
    return Answers()


def slice_of(file: File) -> LogSlice:
    return LogSlice(cast(Any, file), 0, len(file.data))


def test_a_late_slice_has_what_the_file_holds_when_it_leaves(answers: Answers) -> None:
    file = File(b"old")
    answers.make(b"head ", slice_of(file))
    answers.make(b"next")
    assert answers.connection.sent == [], "the second answer waits for the first"
    file.data = b"new"
    assert answers.end_of_fault() == []
    assert answers.connection.sent == [b"head new", b"next"]


def test_an_answer_without_a_slice_is_not_late(answers: Answers) -> None:
    answers.make(b"head")
    assert answers.connection.sent == [b"head"]


def test_what_is_still_late_does_not_leave(answers: Answers) -> None:
    answers.make(slice_of(File(b"old")))
    assert answers.reception.send_late() == []
    assert answers.connection.sent == []


def test_a_file_that_is_shorter_than_its_slice_ends_the_connection(answers: Answers) -> None:
    file, another = File(b"old"), slice_of(File(b"more"))
    answers.make(slice_of(file))
    answers.make(another)
    file.data = b"o"
    assert answers.end_of_fault() == [answers.connection.id]
    assert answers.connection.sent == [] and another.file is None, "and all its slices are released"


def test_slices_of_a_connection_that_ends_are_released(answers: Answers) -> None:
    late = slice_of(File(b"old"))
    answers.make(late)
    answers.reception.close(answers.connection.id)
    assert late.file is None
    assert answers.end_of_fault() == []


# ---- the promise


@pytest.fixture
def following(monkeypatch: pytest.MonkeyPatch) -> Iterator[PartitionOracle]:
    monkeypatch.setattr(partition_oracle, "batches_of", lambda log, offset: log.batches[offset:])
    yield PartitionOracle("orders-0", 2, False)


def grown(oracle: PartitionOracle, epoch: int, *epochs: int) -> Any:
    """A follower in a leader epoch whose log grew from one observed batch of epoch 1 to batches of these epochs."""
    log = FakeLog(1)
    oracle.observe(2, replica(log)(2))
    log.batches = FakeLog(*epochs).batches
    grown_log = cast(Any, log)
    grown_log.leader_epoch = max(epochs)
    return replica(log, epoch=epoch)(2)


def test_a_follower_that_appends_a_newer_epoch_breaks_a_promise(following: PartitionOracle) -> None:
    with pytest.raises(Violation) as violation:
        following.require_no_newer_epoch(2, grown(following, 1, 1, 1, 2))
    assert violation.value.rule == "newer-epoch-appended"


def test_epochs_up_to_its_own_may_be_appended(following: PartitionOracle) -> None:
    following.require_no_newer_epoch(2, grown(following, 2, 1, 1, 2))


def test_a_newer_epoch_that_the_log_had_before_is_not_held_against_it(following: PartitionOracle) -> None:
    """A restarted node replays the metadata from the beginning, while its log has newer epochs."""
    log = cast(Any, FakeLog(1, 3))
    following.observe(2, replica(log)(2))
    log.leader_epoch = 3
    log.batches += [SimpleNamespace(leader_epoch=2)]
    following.require_no_newer_epoch(2, replica(log, epoch=2)(2))


# ---- drawn runs


def test_these_seeds_alone_have_late_slices() -> None:
    drawn = {seed: {fault.kind for fault in draw(seed, None, 3).faults} for seed in range(4 * LATE_EVERY)}
    late = {seed for seed, kinds in drawn.items() if "send-late" in kinds}
    assert late == {seed for seed in drawn if seed % LATE_EVERY == LATE_AT}
    assert not any(draw(seed, None, 3).is_traceable for seed in late)


@pytest.mark.parametrize("seed, coordination", [(LATE_AT, "kraft"), (57, "zookeeper")])
def test_the_bug_is_found_by_a_drawn_run_which_is_valid_without_it(seed: int, coordination: str) -> None:
    schedule = draw(seed, MUTANT, 3, coordination=coordination)
    found, _ = run_planted(schedule)
    assert found.verdict == "invalid" and MUTANTS[MUTANT].is_found_by(found.rule), found.text
    clean, _ = run_schedule(schedule)
    assert clean.verdict == "valid", clean.text
    assert clean.counts["answers sent late"] > 0
