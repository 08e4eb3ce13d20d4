"""Copies are judged by what happened: transactions of unknown outcome count once their output was read."""

import pytest

from linearizability.history.notation import history
from linearizability.pipeline.engine import judge_history

INPUT = """
    0 send t-0:1@0
    0 send t-0:2@1
    0 send t-0:3@2
    1 subscribe t-0 group=g
    2 subscribe t-0 group=g
    3 subscribe t-0 group=h
"""
RULES = ("exactly-once", "copied-past", "copy-order")


def found(text: str, **contract: object) -> dict[str, int]:
    anomalies = judge_history(history(INPUT + text, contract)).anomalies
    return {rule: anomalies[rule] for rule in RULES if rule in anomalies}


SURE = "1 txn poll t-0:1@0 t-0:2@1 send u-0:10@0 commit g t-0@2\n"
UNKNOWN = "2 txn poll t-0:2@1 t-0:3@2 send u-0:20 commit g t-0@3 info\n"


def test_an_unknown_transaction_counts_when_its_output_is_read():
    assert found(SURE + UNKNOWN) == {}
    assert found(SURE + UNKNOWN + "4 poll u-0:10@0 u-0:20@1") == {"exactly-once": 1}


def test_groups_copy_each_for_itself():
    assert found(SURE + "3 txn poll t-0:1@0 t-0:2@1 send u-0:30@1 commit h t-0@2") == {}


def test_what_failed_consumed_nothing():
    failed = "2 txn poll t-0:1@0 t-0:2@1 send u-0:30 commit g t-0@2 fail\n"
    assert found(failed + SURE) == {}
    assert found(failed + "1 txn poll t-0:3@2 send u-0:10@0 commit g t-0@3") == {}, "it began there"
    first = "1 txn poll t-0:1@0 send u-0:9@0 commit g t-0@1\n"
    assert found(first + failed + "1 txn poll t-0:3@2 send u-0:10@1 commit g t-0@3") == {"copied-past": 1}


def test_an_unknown_transaction_may_have_consumed_what_another_passed():
    first, last = (f"1 txn poll t-0:{n}@{n - 1} send u-0:{n}0@{n} commit g t-0@{n}\n" for n in (1, 3))
    unknown = "2 txn poll t-0:2@1 send u-0:20 commit g t-0@2 info\n"
    assert found(first + unknown + last) == {}


@pytest.mark.parametrize(("sink", "anomalies"), [("u-0", {"copy-order": 1}), ("u-1", {})])
def test_order_is_kept_in_each_output(sink: str, anomalies: dict[str, int]):
    first = "1 txn poll t-0:1@0 send u-0:10@5 commit g t-0@1\n"
    assert found(first + f"2 txn poll t-0:2@1 send {sink}:20@4 commit g t-0@2") == anomalies


def test_what_the_group_consumed_outside_of_transactions_is_not_passed_over():
    first, last = (f"1 txn poll t-0:{n}@{n - 1} send u-0:{n}0@{n} commit g t-0@{n}\n" for n in (1, 3))
    assert found(first + "1 poll t-0:2@1\n1 commit g t-0@2\n" + last) == {}
    assert found(first + "1 poll t-0:2@1\n" + last) == {"copied-past": 1}, "it was polled, and never committed"
    assert found(first + "3 poll t-0:2@1\n3 commit h t-0@2\n" + last) == {"copied-past": 1}, "by another group"


def test_order_is_kept_across_a_transaction_that_overlaps():
    first = "0 send t-0:4@3\n1 txn poll t-0:1@0 t-0:3@2 send u-0:10@9 commit g t-0@3\n"
    between = "2 txn poll t-0:2@1 send u-0:20@4 commit g t-0@2\n"
    assert found(first + between + "1 txn poll t-0:4@3 send u-0:40@5 commit g t-0@4") == {"copy-order": 1}
    assert found(first + between + "1 txn poll t-0:4@3 send u-0:40@10 commit g t-0@4") == {}


def test_steps_of_a_transaction_are_one():
    steps = """
        1 begin txn=a
        1 poll t-0:1@0 txn=a
        1 send u-0:10@0 txn=a
        1 commit g t-0@1 txn=a
        1 end txn=a commit=true
        2 begin txn=b
        2 poll t-0:1@0 txn=b
        2 send u-0:20@1 txn=b
        2 commit g t-0@1 txn=b
    """
    assert found(steps + "2 end txn=b commit=false") == {}
    assert found(steps + "2 end txn=b commit=true") == {"exactly-once": 1}


def test_what_may_be_lost_may_be_copied_again():
    again = "2 txn poll t-0:1@0 send u-0:20@1 commit g t-0@1\n"
    assert judge_history(history(INPUT + SURE + again, {})).verdict == "invalid"
    lossy = judge_history(history(INPUT + SURE + again, {"min_isr": 2, "replicas_losing_unflushed_data": 2}))
    assert "exactly-once" in lossy.permitted and lossy.verdict != "invalid"


def test_what_was_polled_and_not_committed_is_consumed_again():
    """A transaction that commits no offset, or one below the record, leaves the record to the group."""
    both = "1 txn poll t-0:1@0 t-0:2@1 send u-0:10@0{}\n2 txn poll t-0:2@1 send u-0:20@1 commit g t-0@2"
    assert found(both.format(" commit g t-0@2")) == {"exactly-once": 1}
    assert found(both.format(" commit g t-0@1")) == {}
    assert found(both.format("")) == {}
    later = "1 txn poll t-0:1@0 send u-0:10@5{}\n2 txn poll t-0:2@1 send u-0:20@4 commit g t-0@2"
    assert found(later.format(" commit g t-0@1")) == {"copy-order": 1}
    assert found(later.format("")) == {}


@pytest.mark.parametrize(
    ("acks", "contract", "anomalies"),
    [("all", {}, 1), ("1", {}, 0), ("all", {"unclean_election": True}, 1)],
)
def test_what_may_have_been_lost_may_be_copied_past(acks: str, contract: dict[str, bool], anomalies: int):
    """The offset of a lost record may have been given to one that no consumer is given, as the end of a transaction."""
    text = f"""
        0 send t-0:1@0
        0 send t-0:2@1 acks={acks}
        0 send t-0:3@2
        1 subscribe t-0 group=g
        1 txn poll t-0:1@0 send u-0:10@0 commit g t-0@1
        1 txn poll t-0:3@2 send u-0:30@1 commit g t-0@3
        3 poll u-0:10@0 u-0:30@1
    """
    judgement = judge_history(history(text, contract))
    assert judgement.anomalies.get("copied-past", 0) == anomalies
    assert "commit-past-undelivered" in judgement.anomalies
    assert (judgement.verdict == "invalid") == (acks == "all" and not contract), judgement.to_json()
