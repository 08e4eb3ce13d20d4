"""Where records may leave the log, only who was told later where it begins knows that a record had not left it."""

from __future__ import annotations

import pytest

from linearizability.history.notation import history
from linearizability.pipeline.engine import judge_history

PASSED = """
    0 send t-0:1@0
    0 send t-0:2@1
    0 send t-0:3@2
    1 [100 110] poll t-0:3@2
"""


@pytest.mark.parametrize(
    ("told", "verdict", "anomalies"),
    [
        ("", "unknown", {"unseen": 2}),
        ("2 [50 60] list_offsets t-0 start=0", "unknown", {"unseen": 2}),
        ("2 [200 210] list_offsets t-0 start=0", "invalid", {"lost-write": 2}),
        ("2 [200 210] state t-0 node=1 log_start=0", "invalid", {"lost-write": 2}),
        ("2 [200 210] list_offsets t-0 start=1", "invalid", {"lost-write": 1}),
        ("2 [200 210] list_offsets t-0 start=2", "valid", {}),
    ],
)
def test_what_was_passed_over_is_lost_if_it_was_still_there(told: str, verdict: str, anomalies: dict[str, int]) -> None:
    judgement = judge_history(history(PASSED + told, {"cleanup": "delete"}))
    assert (judgement.verdict, judgement.anomalies) == (verdict, anomalies), judgement.to_json()
    assert judge_history(history(PASSED + told)).verdict == "invalid"


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
    ("told", "verdict"),
    [
        ("", "unknown"),
        ("4 [50 60] list_offsets t-0 start=0", "unknown"),
        ("4 [200 210] list_offsets t-0 start=0", "invalid"),
        ("4 [200 210] state t-0 node=1 log_start=1", "invalid"),
        ("4 [200 210] list_offsets t-0 start=2", "valid"),
    ],
)
def test_what_was_skipped_may_have_expired_below_the_log_start_only(
    rule: str, events: str, told: str, verdict: str
) -> None:
    judgement = judge_history(history(f"{events}\n{told}", {"cleanup": "delete"}))
    assert judgement.verdict == verdict, judgement.to_json()
    assert judgement.anomalies[rule] == 1
    assert judge_history(history(events)).verdict == "invalid"
    assert judge_history(history(events, {"cleanup": "compact"})).verdict == "valid"
