"""Whether the system works again once all faults are over."""

from __future__ import annotations

import pytest

from linearizability.history.notation import history
from linearizability.pipeline.engine import judge_history

BEFORE = """
    0 send t-0:1@0
    1 poll t-0:1@0
    ! [20 -] fault name=kill node=1
    ! [21 -] fault name=pause node=2
"""
AFTER = "0 [70000000000 70000000005] send t-0:2 info\n"


@pytest.mark.parametrize(
    ("heals", "judged"),
    [
        (["name=pause node=2"], False),
        (["name=pause node=2", "name=kill node=2"], False),
        (["name=pause node=2", "name=kill node=1"], True),
        (["name=pause", "name=kill"], True),
        ([""], True),
    ],
)
def test_nothing_is_demanded_while_a_fault_is_on(heals: list[str], judged: bool) -> None:
    marks = "".join(f"! [{30 + number} -] heal {heal}\n" for number, heal in enumerate(heals))
    judgement = judge_history(history(BEFORE + marks + AFTER))
    assert ("no-progress" in judgement.anomalies) == judged, judgement.to_json()
