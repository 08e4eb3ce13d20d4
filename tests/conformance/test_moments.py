"""Checks that must run while a frozen follower is in the ISR: one that has left it accuses no broker, and no failure is lost."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from conformance.broker import Broker
from conformance.cluster_state import State
from conformance.judging import judge
from conformance.levels import MUST
from conformance.moments import Moment, in_time
from conformance.requirement import Entry, Requirement
from conformance.results import Judgement, Verdict
from conformance.subject import Subject
from linearizability.client.requests import Topic

TOPIC = Topic("topic", UUID(int=1), 1)
HOLDS, FAILS, TOO_SLOW = "holds", "fails", "too slow"


def judged(test: Callable[[Broker], None]) -> Judgement:
    record = Requirement(id="REP-01", level=MUST, sentence="A sentence.", source="a test")
    return judge(Entry(requirement=record, test=test), Subject([("127.0.0.1", 1)], "4.3.1"))


def tried(*attempts: str, failures: int) -> Judgement:
    """The judgement where these are the outcomes of the attempts, one after the other."""
    left = list(attempts)

    def test(broker: Broker) -> None:
        def once() -> bool:
            outcome = left.pop(0)
            if outcome == FAILS:
                broker.fail(f"the high watermark is {5 - len(left)}")
            return outcome == HOLDS

        in_time(broker, once, failures=failures)

    return judged(test)


@pytest.mark.parametrize(
    ("attempts", "failures", "verdict", "reason"),
    [
        ((HOLDS,), 2, Verdict.PASS, ""),
        ((TOO_SLOW, TOO_SLOW, TOO_SLOW, HOLDS), 1, Verdict.PASS, ""),
        ((FAILS,), 1, Verdict.FAIL, "the high watermark is 5"),
        ((FAILS, FAILS), 2, Verdict.FAIL, "the high watermark is 5"),
        ((FAILS, HOLDS), 2, Verdict.TOLERATED, "it holds in one attempt, and not in another: the high watermark is 4"),
        ((TOO_SLOW,) * 4, 2, Verdict.NOT_JUDGED, "the machine was too slow 4 times for what must be done while"),
        (
            (TOO_SLOW, FAILS, TOO_SLOW, TOO_SLOW),
            2,
            Verdict.NOT_JUDGED,
            "another attempt failed: the high watermark is 3",
        ),
    ],
)
def test_no_failure_is_lost(attempts: tuple[str, ...], failures: int, verdict: Verdict, reason: str) -> None:
    judgement = tried(*attempts, failures=failures)
    assert judgement.verdict is verdict and reason in judgement.reason, judgement.reason
    assert bool(judgement.reason) is bool(reason)


def test_what_was_seen_of_a_follower_that_had_left_the_isr_accuses_no_broker() -> None:
    """The controller fences the frozen follower before the moment is over, twice; then the high watermark is the log end."""
    in_sync = [{1}, {1}, {1, 2}]

    def test(broker: Broker) -> None:
        def once() -> bool:
            isr = in_sync.pop(0)
            nodes: Any = SimpleNamespace(state=lambda topic: State(1, 0, (1, 2), frozenset(isr)))
            seen = 1 if 2 in isr else 3
            if not Moment().keeps(nodes, TOPIC, 2):
                return False
            broker.expect_equal("the high watermark", seen, 1)
            return True

        in_time(broker, once, failures=2)

    judgement = judged(test)
    assert (judgement.verdict, judgement.reason, in_sync) == (Verdict.PASS, "", [])


def test_a_moment_that_is_over_keeps_no_follower() -> None:
    nodes: Any = SimpleNamespace(state=lambda topic: State(1, 0, (1, 2), frozenset({1, 2})))
    assert Moment().keeps(nodes, TOPIC, 2)
    assert not Moment(began_s=Moment().began_s - 60).keeps(nodes, TOPIC, 2)
