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
from conformance.waits import RETURN
from linearizability.targets.addresses import AddressMap
from linearizability.targets.errors import TargetError
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


def test_how_it_ended_where_its_process_is_not_known(bird: Parrot, tmp_path: Path) -> None:
    """As that of an adapter: a node that takes no connections any more has ended, with the last lines of its log."""
    (tmp_path / "broker.log").write_text("terminate called\n")
    (host_, port) = addresses(bird.bootstrap)[0]
    found = opened(bird, tmp_path, runs=True)
    assert found.subject is not None
    node = SimpleNamespace(id=1, host=host_, port=port)
    target = SimpleNamespace(nodes=[node], running=lambda _: True, logs=lambda _: [tmp_path / "broker.log"])
    found.subject.target = target
    silent = "it takes connections, and does not answer ApiVersions any more"
    assert found.how_it_ended() == silent
    target.nodes = [SimpleNamespace(id=1, host="127.0.0.1", port=1)]
    target.addresses = AddressMap.parse([f"127.0.0.1:1={host_}:{port}"])
    assert found.how_it_ended() == silent
    target.nodes = [node]
    bird.refuse()
    said = ["node 1 takes no connections any more", "broker.log ends:", "terminate called"]
    assert found.how_it_ended().splitlines() == said


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


@pytest.mark.parametrize("last_asked", ["Metadata", "CreateTopics", "Fetch", "DescribeConfigs", "JoinGroup"])
def test_an_address_that_ends_at_a_probe_is_asked_nothing_more(
    last_asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request after which it does not come back is the last one, and the error says so in one sentence."""
    monkeypatch.setattr(host, "ANSWERS_WITHIN_S", 0.1)
    bird, waited = Parrot(), list[str]()

    def end(*_: object) -> None:
        bird.refuse()
        raise ConnectionError

    bird.answers[last_asked] = end

    @contextmanager
    def reach(spec: str, **_: object) -> Iterator[SimpleNamespace]:
        def revive() -> None:
            waited.extend(one.what for one in opening.waits.now())
            raise TargetError("it did not answer again")

        yield SimpleNamespace(bootstrap=bird.bootstrap, nodes=[SimpleNamespace(id=1)], revive=revive)

    opening = Host(f"addr:{bird.bootstrap}", tmp_path, TargetRecord(spec="addr:bird"), open_target=reach)
    with pytest.raises(
        TargetBroke, match="ended while the suite probed its APIs: TargetError: it did not answer again"
    ):
        opening.prepare(Group({}))
    assert waited == [RETURN] and len(opening.record.not_revived) == 1
