"""Quorums whose voters change under drawn faults: nothing that was committed is lost, and two known mistakes are found."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from linearizability.simulation.voter_agreement import VoterAgreement
from linearizability.simulation.world import Violation
from reference.controller import quorum_changing
from reference.controller.quorum_leading import Leader
from reference.controller.quorum_member import Member
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import TimestampMs
from tests.controller.quorum_members import Members, topic
from tests.controller.test_quorum_changing import addition, removal

NODES = 5
STEPS = 60
SEEDS = range(8)
SEEDS_FOR_MISTAKES = 200


class Lost(Exception):
    """A committed record is lost, or two nodes disagree about one."""


class Trial:
    """Five nodes, of which three are voters, under steps drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self._members = Members(3, NODES - 3, changing=True)
        self._members.start(*range(NODES))
        self._committed: list[str] = []
        self._number = 0
        self._voters = VoterAgreement()
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        """Errors: Lost, Violation."""
        self._members.pass_time(3000)
        steps = [self._append] * 4 + [self._add, self._remove] * 3
        steps += [self._cut, self._cut, self._heal, self._restart, self._replace_disk, self._wait, self._wait]
        for _ in range(STEPS):
            self._chance.choice(steps)()
            self._members.pass_time(self._chance.choice((10, 50, 200, 1500)))
            self._check()
        self._heal()
        self._members.pass_time(10_000, step=50)
        self._check()

    def _leaders(self) -> list[int]:
        return [id for id, quorum in self._members.quorums.items() if quorum.is_leader]

    def _append(self) -> None:
        for leader in self._leaders():
            self._number += 1
            try:
                self._members[leader].append([topic(self._number)], self._members.now)
                self.counts["appended"] += 1
            except KafkaError as error:
                assert error.code == ErrorCode.NOT_CONTROLLER

    def _add(self) -> None:
        for leader in self._leaders():
            self._members.ask(leader, addition(self._members, self._chance.randrange(NODES)), "add")

    def _remove(self) -> None:
        for leader in self._leaders():
            id = self._chance.choice(self._members[leader].voters.ids)
            directory = self._members[leader].voters.directory_of(id)
            self._members.ask(leader, removal(self._members, id, voter_directory_id=directory), "remove")

    def _cut(self) -> None:
        """Some nodes are cut off from the others."""
        side = {id for id in range(NODES) if self._chance.random() < 0.5}
        self._members.reaches = lambda sender, receiver: (sender in side) == (receiver in side)

    def _heal(self) -> None:
        self._members.reaches = lambda sender, receiver: True

    def _restart(self) -> None:
        id = self._chance.randrange(NODES)
        self._members.lose_power(id)
        self._members.start(id)

    def _replace_disk(self) -> None:
        """A node that is no voter begins with an empty disk."""
        voting = {id for quorum in self._members.quorums.values() for id in quorum.voters.ids}
        spare = [id for id in range(NODES) if id not in voting]
        if spare:
            id = self._chance.choice(spare)
            self._members.lose_power(id)
            self._members.replace_disk(id)
            self._members.start(id)

    def _wait(self) -> None:
        self._members.pass_time(self._chance.choice((500, 3000)), step=50)

    def _check(self) -> None:
        """All nodes agree on the committed records, a ready leader of the newest epoch has all of them, and each node uses the
        voters of its log. Errors: Lost, Violation."""
        for id, quorum in self._members.quorums.items():
            self._voters.follow(id, quorum)
            found = self._members.names(id)
            shorter = min(len(found), len(self._committed))
            if found[:shorter] != self._committed[:shorter]:
                raise Lost(f"node {id}: {found} against {self._committed}")
            if len(found) > len(self._committed):
                self._committed = found
            if quorum.is_ready and self._is_newest(id) and len(found) < len(self._committed):
                raise Lost(f"leader {id}: {found} of {self._committed}")
        answers, self._members.answers = self._members.answers, []
        self.counts.update(f"{token} {response.error_code}" for token, response in answers)
        self.counts["committed"] = len(self._committed)

    def _is_newest(self, id: int) -> bool:
        return all(self._members[id].epoch >= quorum.epoch for quorum in self._members.quorums.values())


def test_what_is_committed_stays_while_voters_come_and_go() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        trial = Trial(seed)
        trial.run()
        counts.update(trial.counts)
    assert counts["add 0"] > 10 and counts["remove 0"] > 10 and counts["committed"] > 50, counts


def two_changes_at_once(leader: Leader, what: str, now: TimestampMs) -> None:
    if not leader.is_ready:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    leader.change = None


def change_before_the_epoch_is_committed(leader: Leader, what: str, now: TimestampMs) -> None:
    if leader.change is not None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


@pytest.mark.parametrize("wrong", [two_changes_at_once, change_before_the_epoch_is_committed])
def test_voters_that_change_too_early_are_found(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_changing, "check_order", wrong)
    assert _found(Violation) == "voters-changed-too-early"


@pytest.mark.slow
def test_two_changes_at_once_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_changing, "check_order", two_changes_at_once)
    monkeypatch.setattr(VoterAgreement, "follow", lambda self, number, quorum: None)
    assert _found(Lost), "no seed shows it"


@pytest.mark.slow
def test_a_removed_leader_that_counts_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Leader.advance_high_watermark

    def wrong(self: Leader, now: TimestampMs) -> None:
        with monkeypatch.context() as counting:
            counting.setattr(Member, "is_voter", True)
            right(self, now)

    monkeypatch.setattr(Leader, "advance_high_watermark", wrong)
    assert _found(Lost), "no seed shows it"


def _found(error: type[Exception]) -> str:
    """The violated rule, or the message, of the first seed that fails; empty if none fails."""
    for seed in range(SEEDS_FOR_MISTAKES):
        try:
            Trial(seed).run()
        except error as found:
            print(f"seed {seed}: {found}")
            return found.rule if isinstance(found, Violation) else str(found)
    return ""
