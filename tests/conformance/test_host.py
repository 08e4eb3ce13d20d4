"""Whether a target answers: one that hangs is given time, and one that has ended is not waited for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance import host
from conformance.host import Host, TargetBroke, addresses
from conformance.plan import Group
from conformance.results import TargetRecord
from conformance.subject import Subject
from tests.conformance.parrot import Parrot

FOR_EVER_S = 3600.0
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def bird() -> Iterator[Parrot]:
    with closing(Parrot()) as bird:
        yield bird


def opened(bird: Parrot, folder: Path, *, runs: bool) -> Host:
    """A target of one node that the suite has started; `runs`: what the target reports of its process."""
    target = SimpleNamespace(nodes=[SimpleNamespace(id=1)], running=lambda node: runs)
    subject = Subject(addresses(bird.bootstrap), "4.3.1", bird.ranges(), target=target)
    return Host("exec:bird", folder, TargetRecord(spec="exec:bird"), subject=subject)


def test_one_whose_process_has_ended_is_not_waited_for(
    bird: Parrot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "ANSWERS_WITHIN_S", FOR_EVER_S)
    assert opened(bird, tmp_path, runs=True).answers()
    assert not opened(bird, tmp_path, runs=False).answers()


def test_one_that_takes_no_connections_does_not_hang(
    bird: Parrot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "ANSWERS_WITHIN_S", 0.1)
    monkeypatch.setattr(host, "HANGS_AFTER_S", FOR_EVER_S)
    bird.refuse()
    assert not opened(bird, tmp_path, runs=True).answers()


def test_one_that_ends_at_the_first_questions_and_does_not_start_again(tmp_path: Path) -> None:
    """As on a full disk: the run reports it, and does not break off."""
    bird = Parrot()
    starts: list[str] = []

    def end(*_: object) -> None:
        bird.refuse()
        raise ConnectionError

    def revive() -> None:
        raise OSError("no hook")

    bird.answers["CreateTopics"] = end

    @contextmanager
    def start(spec: str, **_: object) -> Iterator[SimpleNamespace]:
        starts.append(spec)
        if len(starts) > 1:
            raise OSError("No space left on device")
        nodes = [SimpleNamespace(id=1)]
        yield SimpleNamespace(bootstrap=bird.bootstrap, nodes=nodes, running=lambda node: False, revive=revive)

    opening = Host("exec:bird", tmp_path, TargetRecord(spec="exec:bird"), "4.3.1", open_target=start)
    with pytest.raises(TargetBroke, match="did not start: No space left on device"):
        opening.prepare(Group({}))
    assert len(starts) == 2 and opening.subject is None
