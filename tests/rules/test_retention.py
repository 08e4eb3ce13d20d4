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
