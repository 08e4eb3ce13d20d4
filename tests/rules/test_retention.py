"""Where records may leave the log, a report of where it begins counts from when it was asked for."""

from __future__ import annotations

from collections import Counter

import pytest

from linearizability.history.notation import history
from linearizability.pipeline.engine import judge_history
from tests.rules.retained_histories import play

PASSED = """
    0 send t-0:1@0
    0 send t-0:2@1
    0 send t-0:3@2
    1 [100 110] poll t-0:3@2
"""


@pytest.mark.parametrize(
    ("reported", "verdict", "anomalies"),
    [
        ("", "unknown", {"unseen": 2}),
        ("2 [50 60] list_offsets t-0 start=0", "unknown", {"unseen": 2}),
        ("2 [200 210] list_offsets t-0 start=0", "invalid", {"lost-write": 2}),
        ("2 [200 210] state t-0 node=1 log_start=0", "invalid", {"lost-write": 2}),
        ("2 [200 210] list_offsets t-0 start=1", "invalid", {"lost-write": 1, "unseen": 1}),
        ("2 [200 210] list_offsets t-0 start=2", "unknown", {"unseen": 2}),
        ("2 [50 60] list_offsets t-0 start=1", "unknown", {"unseen": 1}),
        ("2 [50 60] list_offsets t-0 start=2", "valid", {}),
        ("2 [50 60] list_offsets t-0 start=2\n2 [200 210] list_offsets t-0 start=2", "valid", {}),
        ("2 [50 60] list_offsets t-0 start=0\n2 [200 210] list_offsets t-0 start=0", "invalid", {"lost-write": 2}),
        ("2 [50 60] list_offsets t-0 start=0\n2 [200 210] list_offsets t-0 start=2", "unknown", {"unseen": 2}),
    ],
)
def test_what_was_passed_over_is_lost_if_it_was_still_there(
    reported: str, verdict: str, anomalies: dict[str, int]
) -> None:
    judgement = judge_history(history(PASSED + reported, {"cleanup": "delete"}))
    assert (judgement.verdict, judgement.anomalies) == (verdict, anomalies), judgement.to_json()
    assert judge_history(history(PASSED + reported)).verdict == "invalid"


SKIPPED = """
    0 send t-0:1@0
    0 send t-0:2@1
    0 send t-0:3@2
    1 poll t-0:1@0
    1 [100 110] poll t-0:3@2
    3 [120 130] poll t-0:1@0 t-0:2@1 t-0:3@2
"""
COMMITTED = """
    0 send t-0:1@0
    0 send t-0:2@1
    0 send t-0:3@2
    1 subscribe t-0 group=g
    1 poll t-0:1@0
    1 subscribe t-0 group=g
    1 poll t-0:3@2
    3 poll t-0:2@1
    1 [100 110] commit g t-0@3
"""
COPIED = """
    0 send t-0:1@0
    0 send t-0:2@1
    0 send t-0:3@2
    1 subscribe t-0 group=g
    1 txn poll t-0:1@0 send u-0:10@0 commit g t-0@1
    2 subscribe t-0 group=g
    2 [100 110] txn poll t-0:3@2 send u-0:30@1 commit g t-0@3
    3 [120 130] poll t-0:2@1 u-0:10@0 u-0:30@1
"""


@pytest.mark.parametrize(
    ("rule", "events"), [("poll-skip", SKIPPED), ("commit-past-undelivered", COMMITTED), ("copied-past", COPIED)]
)
@pytest.mark.parametrize(
    ("reported", "verdict"),
    [
        ("", "unknown"),
        ("4 [50 60] list_offsets t-0 start=0", "unknown"),
        ("4 [200 210] list_offsets t-0 start=0", "invalid"),
        ("4 [200 210] state t-0 node=1 log_start=1", "invalid"),
        ("4 [200 210] list_offsets t-0 start=2", "unknown"),
        ("4 [50 60] list_offsets t-0 start=2", "valid"),
        ("4 [50 60] list_offsets t-0 start=1\n4 [200 210] list_offsets t-0 start=1", "invalid"),
    ],
)
def test_what_was_skipped_may_have_expired_below_the_log_start_only(
    rule: str, events: str, reported: str, verdict: str
) -> None:
    judgement = judge_history(history(f"{events}\n{reported}", {"cleanup": "delete"}))
    assert judgement.verdict == verdict, judgement.to_json()
    assert judgement.anomalies[rule] == 1
    assert judge_history(history(events)).verdict == "invalid"
    assert judge_history(history(events, {"cleanup": "compact"})).verdict == "valid"


@pytest.mark.parametrize("block", range(2))
def test_no_planted_loss_hides_behind_a_log_start_that_was_reported_later(block: int) -> None:
    """A loss that a consumer came by is found, or unknown; what retention took from a sound log accuses no broker."""
    found = Counter[str]()
    for seed in range(120 * block, 120 * block + 120):
        sound, broken = play(seed, loses=False), play(seed, loses=True)
        judgement = judge_history(sound.history)
        assert judgement.verdict != "invalid", (seed, sound.text, judgement.to_json())
        if broken.lost is not None:
            judgement = judge_history(broken.history)
            found[judgement.verdict] += 1
            assert judgement.verdict != "valid", (seed, broken, judgement.to_json())
    assert found["invalid"] > 4, found
