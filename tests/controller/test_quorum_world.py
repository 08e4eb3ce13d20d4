"""Raft's promises in worlds full of faults, and the planted bugs that break them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reference.controller import quorum_electing, quorum_leading, quorum_member
from reference.controller.quorum import Quorum
from reference.controller.quorum_log import IN_LINE, QuorumLog
from reference.controller.quorum_state import QuorumState, write_quorum_state
from tests.controller.quorum_world import Member, Violation, World

THREE, FIVE = (3, 1), (5, 1)


def lives(seeds: range, size: tuple[int, int], *, storm: bool = False) -> list[World]:
    found: list[World] = []
    for seed in seeds:
        world = World(seed, *size, storm=storm)
        try:
            world.live()
        except Violation as violation:
            raise Violation(f"seed {seed} of {size}: {violation}") from violation
        found.append(world)
    return found


def test_three_voters_and_an_observer() -> None:
    worlds = lives(range(150), THREE)
    # A world in which nothing happens would prove nothing.
    assert sum(len(world.truth) for world in worlds) > 30 * len(worlds)
    assert sum(len(world.leaders) for world in worlds) > 2 * len(worlds)
    assert sum(world.snapshots for world in worlds) > len(worlds)
    assert sum(world.installed for world in worlds) > len(worlds)


def test_five_voters() -> None:
    lives(range(30), FIVE)


def test_two_voters() -> None:
    lives(range(10), (2, 0))


def test_one_voter_and_two_observers() -> None:
    lives(range(10), (1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("size", [THREE, FIVE])
def test_thousands_of_runs(size: tuple[int, int]) -> None:
    lives(range(1000, 5000), size)
    lives(range(100, 9000), size, storm=True)


def test_a_run_is_its_seed() -> None:
    first, second = World(77), World(77)
    first.live()
    second.live()
    assert (first.truth, first.leaders, first.steps) == (second.truth, second.leaders, second.steps)


# ---- planted bugs

Planting = Callable[[pytest.MonkeyPatch], None]


def forget_the_vote(patch: pytest.MonkeyPatch) -> None:
    def forgetful(disk: object, folder: object, state: QuorumState) -> None:
        write_quorum_state(disk, folder, replace(state, voted=-1))  # type: ignore[arg-type]

    patch.setattr(quorum_member, "write_quorum_state", forgetful)


def commit_an_old_epochs_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quorum_leading, "next_commit", lambda current, reached, start: max(current, reached))


def skip_the_divergence_check(patch: pytest.MonkeyPatch) -> None:
    compare = QuorumLog.compare

    def lenient(log: QuorumLog, offset: int, epoch: int) -> object:
        return IN_LINE if log.start <= offset <= log.end else compare(log, offset, epoch)

    patch.setattr(QuorumLog, "compare", lenient)


def snapshot_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    def eager(world: World, member: Member, quorum: Quorum) -> tuple[int, list[str]]:
        rest = [record.name for _, record in quorum.appended(member.applied)]  # type: ignore[attr-defined]
        return quorum.log_end_offset, [*member.names, *rest]

    patch.setattr(World, "snapshot_point", eager)
    patch.setattr(Quorum, "_may_replace", lambda quorum, end_offset: True)


def vote_for_a_shorter_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quorum_electing, "is_up_to_date", lambda *arguments: True)


def fetch_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    append = QuorumLog.append_fetched
    patch.setattr(
        QuorumLog, "append_fetched", lambda log, data, epoch, now, durably: append(log, data, epoch, now, durably=False)
    )


PLANTED = [
    forget_the_vote,
    commit_an_old_epochs_record,
    skip_the_divergence_check,
    snapshot_what_is_not_committed,
    vote_for_a_shorter_log,
    fetch_before_the_flush,
]


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found(plant: Planting, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation):
        for seed in range(3000):
            lives(range(seed, seed + 1), THREE, storm=seed % 2 == 0)


def test_storms_break_no_promise() -> None:
    worlds = lives(range(100), THREE, storm=True)
    assert sum(len(world.leaders) for world in worlds) > 2 * len(worlds)
