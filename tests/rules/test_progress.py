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


HEALED = """
    0 send t-0:1@0
    1 poll t-0:1@0
    ! [20 -] fault name=pause node=2
    ! [1000000000 -] heal name=pause node=2
"""


@pytest.mark.parametrize(
    ("after", "judged"),
    [
        ("0 [2000000000 -] send t-0:2\n1 [500000000000 500000000005] poll", True),
        ("0 [2000000000 -] send t-0:2\n1 [62000000000 62000000000] poll", False),
        ("0 [2000000000 -] send t-0:2\n1 [500000000000 -] poll", True),
        ("0 [2000000000 70000000000] send t-0:2 info", True),
        ("0 [2000000000 70000000000] send t-0:2 fail", True),
        ("0 [2000000000 62000000000] send t-0:2 info", False),
        ("0 [900000000 70000000000] send t-0:2 info", False),  # it began before the healing
        ("0 [2000000000 70000000000] send t-0:2@1\n1 [70000000001 70000000002] poll t-0:2@1", False),
        ("0 [2000000000 -] send t-0:2", False),  # the history may have been cut
    ],
)
def test_a_send_may_not_wait_longer_than_the_bound_since_the_healing(after: str, judged: bool) -> None:
    judgement = judge_history(history(HEALED + after))
    assert ("no-progress" in judgement.anomalies) == judged, judgement.to_json()


LATE = "0 [70000000000 70000000005] "
NEXT = "\n1 [70000000010 70000000015] "
READ = "\n2 [70000000020 70000000025] poll "


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (f"{LATE}send t-0:2 acks=0 info{READ}t-0:2@1", "valid"),  # no broker answers
        (f"{LATE}send t-0:2 info", "invalid"),
        (f"{LATE}send t-0:2 fail", "unknown"),  # a record that is too large never succeeds
        (f"{LATE}send t-0:2 fail{NEXT}send t-0:3@1{READ}t-0:3@1", "valid"),
        (f"{LATE}txn send t-0:2 fail{NEXT}send t-0:3@1{READ}t-0:3@1", "valid"),
        (f"{LATE}send t-0:2 fail{NEXT}send t-0:3 info", "invalid"),
        (
            f"{LATE}send t-0:2 info{NEXT}send t-0:3@1{READ}t-0:3@1",
            "valid",
        ),  # a leader's place was changed without a fault
        (f"{LATE}send t-0:2 info{NEXT}send t-0:3 info", "invalid"),
        (f"{LATE}send t-0:2 info\n1 [140000000000 140000000005] send t-0:3@1{READ}t-0:3@1", "invalid"),
        (
            f"1 [69000000000 69000000005] send t-0:3@1\n{LATE}send t-0:2 info{READ}t-0:3@1",
            "valid",
        ),  # what came of it is open
    ],
)
def test_what_no_broker_answers_or_may_accept_is_no_lack_of_progress(after: str, verdict: str) -> None:
    judgement = judge_history(history(HEALED + after))
    assert judgement.verdict == verdict, judgement.to_json()
