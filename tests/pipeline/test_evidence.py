"""A history that shows nothing is not valid, and numbers that cannot be offsets are no evidence."""

from __future__ import annotations

import pytest

from linearizability.history.notation import history
from linearizability.pipeline.engine import judge_history

SENT = """
    0 send t-0:1@0
    1 poll t-0:1@0
"""


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("0 [0 -] read key=x\n1 [0 -] write key=x value=1", "unknown"),
        ("0 read key=x info\n1 write key=x value=1 fail", "unknown"),
        ("0 [0 -] read key=x\n1 write key=x value=1", "valid"),
        ("0 write key=x value=1\n0 send t-0:1 info", "unknown"),
        (f"0 write key=x value=1\n{SENT}", "valid"),
    ],
)
def test_what_was_answered_counts(text: str, verdict: str) -> None:
    judgement = judge_history(history(text))
    assert judgement.verdict == verdict, judgement.to_json()


@pytest.mark.parametrize(
    "line",
    [
        "2 poll t-0:1@-5",
        "2 poll t-0:1@-1",
        "2 list_offsets t-0 start=-9 end=-9",
        "2 committed g t-0@-7",
        "2 replica t-0 node=1 high_watermark=1 1@-1/0",
    ],
)
def test_a_negative_offset_is_not_read_as_unknown(line: str) -> None:
    judgement = judge_history(history(SENT + line))
    assert judgement.verdict == "unknown" and "offset" in judgement.reasons[0], judgement.to_json()


def test_none_known_is_no_negative_offset() -> None:
    assert judge_history(history(SENT + "2 committed g t-0@-1\n2 list_offsets t-0 start=-1 end=-1")).verdict == "valid"
