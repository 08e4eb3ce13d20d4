"""A broker that ends when it is asked to, and runs of the suite on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import host, requirement, session
from conformance.broker import Broker
from conformance.levels import MUST
from conformance.requirement import Entry, Requirement
from conformance.results import Run, Verdict
from conformance.runner import Plan, run
from linearizability.targets import TargetError
from tests.conformance.parrot import Parrot

DEADLY = "MET-01"
"""The id of a requirement that the mortal broker does not survive."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the suite wait for nothing that a broker in this process does at once."""
    monkeypatch.setattr(host, "ANSWERS_WITHIN_S", 0.3)
    monkeypatch.setattr(session, "GRACE_S", 0.1)
    monkeypatch.setattr(requirement, "dependencies_of", lambda id: ())


class Mortal:
    """A target of one broker that ends when it is asked to, and comes back with another port unless it may not."""

    def __init__(self, *, restartable: bool) -> None:
        self.hooks = ("restart", "logs") if restartable else ("logs",)
        self.bird = Parrot()
        self.dead = False
        self.nodes = [SimpleNamespace(id=1)]
        self.restarts = 0
        self.several = False
        self.taken = ""
        """Why a watchdog ended it; empty where it ends by itself."""

    @property
    def bootstrap(self) -> str:
        return self.bird.bootstrap

    def die(self) -> None:
        self.dead = True
        self.bird.refuse()

    def running(self, node: int) -> bool:
        return not self.dead

    def exit_status(self, node: int) -> int:
        return 134

    def ended_for_memory(self, node: int) -> str:
        return self.taken if self.dead else ""

    def logs(self, node: int) -> list[Path]:
        return []

    def revive(self) -> None:
        if "restart" not in self.hooks:
            raise TargetError("it does not come back")
        self.dead, self.restarts = False, self.restarts + 1
        self.bird.accept_again()


def entry(id: str, test: Any, **fields: Any) -> Entry:
    record = Requirement(id=id, level=MUST, sentence="A sentence of its own.", source="a test", **fields)
    return Entry(requirement=record, test=test)


def judged_on(target: Mortal, folder: Path, *entries: Entry, **options: Any) -> Run:
    @contextmanager
    def open_target(spec: str, **_: Any) -> Iterator[Mortal]:
        yield target

    return run(Plan("addr:mortal", list(entries), folder, open_target=open_target, **options))


def verdicts(report: Run) -> dict[str, Verdict]:
    return {judgement.requirement.id: judgement.verdict for judgement in report.judgements}


def asks(broker: Broker) -> None:
    broker.expect_served()


def fails(broker: Broker) -> None:
    broker.expect_served()
    broker.fail("it was bad")
