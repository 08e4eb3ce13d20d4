"""The campaign of mutated frames lets nothing in that it should not, and sees when something is."""

from __future__ import annotations

import pytest

from linearizability.mutants.registry import planted
from tests.abuse.frames import MECHANISMS, Results, load, run

FRAMES = 4000


def test_no_mutated_frame_gets_a_client_in() -> None:
    results = Results()
    run(FRAMES, results)
    assert results.failures == []
    assert set(results.outcomes) >= {f"{name} {outcome}" for name in MECHANISMS for outcome in ("in", "closed")}


@pytest.mark.parametrize("bug", ["unsigned-token-taken", "any-proof-taken"])
def test_a_planted_bug_is_seen(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results()
    if bug == "any-proof-taken":
        monkeypatch.setattr("reference.node.sasl_mechanisms.hmac.compare_digest", lambda one, other: True)
        run(FRAMES, results)
    else:
        with planted(bug):
            run(FRAMES, results)
    assert any("is let in by a changed message" in each for each in results.failures)


def test_the_stored_campaign_found_nothing() -> None:
    stored = load()
    assert stored.frames >= 1_000_000 and stored.failures == []
