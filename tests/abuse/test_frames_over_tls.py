"""A short campaign of mutated frames over TLS, wrong outcomes that the campaign must report, and the large campaign's counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.abuse.frames import MECHANISMS, Results
from tests.abuse.frames_over_tls import STORE, OverTls, PromptReference, run
from tests.targets.secured_kafka import SecuredReference

FRAMES = 1000


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredReference]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with PromptReference(folder, folder) as opened:
        yield opened


def test_no_mutated_frame_gets_a_client_in(secured: SecuredReference) -> None:
    results = Results()
    run(secured, FRAMES, results)
    assert results.failures == []
    assert set(results.outcomes) == {f"{name} {outcome}" for name in MECHANISMS for outcome in ("in", "closed")}


@pytest.mark.parametrize(("served", "why"), [(True, "is let in by a changed message"), (False, "is not served, and has damaged nothing")])  # fmt: skip
def test_a_wrong_answer_is_seen(
    secured: SecuredReference, monkeypatch: pytest.MonkeyPatch, served: bool, why: str
) -> None:
    monkeypatch.setattr(OverTls, "is_served", lambda _: served)
    results = Results()
    run(secured, FRAMES // 5, results)
    assert any(why in each for each in results.failures)


def test_the_stored_campaign_found_nothing() -> None:
    stored = Results.read(STORE)
    assert stored.frames >= 100_000 and stored.failures == []
