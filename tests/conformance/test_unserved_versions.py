"""Versions that are advertised and not served: API-05 speaks of them, and the other versions are judged all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.liars import Behind
from linearizability.mutants.wire.proxy import Answer, Exchange, sized
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
    _, verdicts = judged(sound, TooLong("Fetch", {4, 5}), ASKED, tmp_path)
    assert verdicts == dict.fromkeys(ASKED.split(), "pass") | {"API-05": "fail"}


def test_an_api_without_a_served_version_blocks_what_needs_it(sound: tuple[Loop, Behind], tmp_path: Path) -> None:
    _, verdicts = judged(sound, TooLong("DescribeCluster", set(range(9))), "API-05 MET-14", tmp_path)
    assert verdicts == {"API-05": "fail", "MET-14": "blocked API-05"}
