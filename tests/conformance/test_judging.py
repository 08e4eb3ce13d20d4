"""How one requirement is judged: the verdict over its cases, a deadline that is too short, and the configuration of topics."""

from __future__ import annotations

import time
from typing import Any

import pytest

from conformance.broker import Broker
from conformance.judging import judge
from conformance.levels import MUST
from conformance.requirement import Entry, Requirement
from conformance.results import Verdict
from conformance.subject import Subject
from conformance.target_profile import TargetProfile
from conformance.wire import Failed


def entry(test: Any, **fields: Any) -> Entry:
    record = Requirement(id="PRD-01", level=MUST, sentence="A sentence of its own.", source="a test", **fields)
    return Entry(requirement=record, test=test)


@pytest.mark.parametrize("waits", [False, True])
def test_a_case_that_begins_too_late_is_not_judged_and_what_does_not_come_is_a_failure(waits: bool) -> None:
    def test(broker: Broker) -> None:
        with broker.case("takes all the time"):
            if waits:
                broker.eventually(lambda: broker.deadline.left_s(1) < 0, "what never comes")
        time.sleep(0.3)
        with broker.case("begins too late"):
            broker.deadline.left_s(1)

    judgement = judge(entry(test, deadline_s=0.2), Subject([("127.0.0.1", 1)], "4.3.1"))
    first = Verdict.FAIL if waits else Verdict.PASS
    assert [case.verdict for case in judgement.cases] == [first, Verdict.NOT_JUDGED]
    assert judgement.verdict is first


@pytest.mark.parametrize("waits", [False, True])
def test_many_answers_that_take_long_together_are_no_failure(waits: bool) -> None:
    """As from a broker that is far away. A state that is waited for, and does not come, is a failure."""

    def test(broker: Broker) -> None:
        if waits:
            broker.eventually(lambda: broker.deadline.left_s(1) < 0, "what never comes")
        for _ in range(10):
            broker.deadline.left_s(1)  # as each request does
            time.sleep(0.05)

    judgement = judge(entry(test, deadline_s=0.3), Subject([("127.0.0.1", 1)], "4.3.1"))
    assert judgement.verdict is (Verdict.FAIL if waits else Verdict.NOT_JUDGED), judgement.reason
    assert judgement.timed_out


def test_topics_are_pinned_to_the_defaults_that_the_broker_does_not_have() -> None:
    described = {
        "log.message.timestamp.type": "LogAppendTime",
        "message.max.bytes": "1000012",
        "log.message.timestamp.after.max.ms": "3600000",
        "log.message.timestamp.before.max.ms": "86400000",
        "log.retention.bytes": None,
        "log.roll.hours": "1",
        "log.roll.jitter.hours": "0",
        "log.roll.ms": None,
    }
    assert TargetProfile(configs=described).pinned == {
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.type": "CreateTime",
        "segment.ms": "604800000",
    }


def test_a_case_that_fails_in_a_basic_step_does_not_hide_one_of_the_requirement_itself() -> None:
    def test(broker: Broker) -> None:
        with broker.case("setup"):
            failure = Failed("no topic")
            failure.built_on = "BAS-02"
            raise failure
        with broker.case("own"):
            broker.fail("it was bad")

    subject = Subject([("127.0.0.1", 1)], "4.3.1")
    assert judge(entry(test), subject).built_on == ""


@pytest.mark.parametrize(
    ("since", "api", "resembles", "said"),
    [
        ("3.8", "TxnOffsetCommit", True, True),
        ("3.8", "TxnOffsetCommit", False, False),
        ("3.3", "TxnOffsetCommit", True, False),
        ("4.0", "ConsumerGroupHeartbeat", True, False),
    ],
)
def test_a_failure_says_where_an_earlier_release_may_be_followed(
    since: str, api: str, resembles: bool, said: bool
) -> None:
    subject = Subject([("127.0.0.1", 1)], "4.4.0", resembles_only=resembles)
    reason = judge(entry(lambda broker: broker.fail("taken"), since=since, needs={"apis": {api: 0}}), subject).reason
    assert reason == "taken" + f"; Kafka owes this since {since}, and 4.4.0 is a guess here" * said
