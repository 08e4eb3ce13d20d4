"""Versions that are advertised and not served: API-05 fails for them, and the other versions are judged all the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from conformance.judging import judge, learn_unserved
from conformance.liars import Behind
from conformance.probing import probe
from conformance.requirement import catalogue
from conformance.results import Verdict
from conformance.subject import Subject
from linearizability.mutants.wire.proxy import Answer, Exchange, Proxy, sized
from linearizability.targets import open_target
from linearizability.targets.loop import Loop
from tests.conformance.test_habits import Habit, judged

ASKED = "API-05 FET-02 FET-08 FET-18 ACK-12"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Loop, Behind]]:
    with Loop() as loop, open_target("reference:1", folder=tmp_path_factory.mktemp("sound"), config={}) as target:
        yield loop, Behind(target)


class TooLong(Habit):
    """Answers an API with eight bytes too many in some versions, as SeaweedFS does to Fetch v4."""

    def __init__(self, api: str, versions: set[int]) -> None:
        super().__init__(api, lambda answer, exchange: None)
        self.versions = versions

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        if exchange.api != self.api or exchange.version not in self.versions:
            return None
        return Answer([sized(frame + bytes(8))])


def test_the_versions_that_are_served_are_judged(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(sound, TooLong("Fetch", {4, 6}), ASKED, tmp_path)
    assert verdicts == dict.fromkeys(ASKED.split(), "pass") | {"API-05": "fail"}


def test_an_api_without_a_served_version_blocks_what_needs_it(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(sound, TooLong("DescribeCluster", set(range(9))), "API-05 MET-14", tmp_path)
    assert verdicts == {"API-05": "fail", "MET-14": "blocked API-05"}


class Mortal(Habit):
    """Ends at one version of an API, as SeaweedFS does at OffsetCommit v1, until it is started again."""

    def __init__(self, api: str, version: int) -> None:
        super().__init__(api, lambda answer, exchange: None)
        self.version = version
        self.dead = False

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        self.dead = self.dead or (exchange.api == self.api and exchange.version == self.version)
        return None

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        return Answer([], close=True) if self.dead else None


def test_a_version_that_ends_the_target_hides_no_other(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    """The versions after it are not judged, and come first when the target runs again: so the version that ends it comes last."""
    loop, behind = sound
    habit = Mortal("OffsetCommit", 3)
    with Proxy(loop, behind.target.nodes, habit) as proxy:
        known = Subject([(node.host, node.port) for node in proxy.nodes], "4.3.1", target=behind.target)
        probe(known, lambda: True)
        for verdict in (Verdict.NOT_JUDGED, Verdict.PASS):
            habit.dead = False
            judgement = judge(catalogue()["API-05"], known)
            cases = {case.name: case.verdict for case in judgement.cases}
            assert judgement.verdict is Verdict.FAIL and cases["OffsetCommit v3"] is Verdict.FAIL
            assert cases["OffsetCommit v4"] is cases["Heartbeat v0"] is verdict
            assert [case for case, seen in cases.items() if seen is Verdict.FAIL] == known.profile.lethal
    assert list(cases)[-1] == "OffsetCommit v3"
    learn_unserved(judgement, known.profile)
    assert known.profile.doubtful.keys() == {"OffsetCommit"}
