"""Consumers that begin at the log's end, and groups that begin again: neither accuses a broker."""

from __future__ import annotations

from typing import Any

import pytest

from linearizability.history.contract import Contract
from linearizability.history.notation import history
from linearizability.history.operations import commit, poll, send
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check, judge_history
from linearizability.pipeline.verdict import Judgement

SENT = "\n".join(f"0 send t-0:{value}@{value}" for value in range(6))
READ = "3 [200 210] poll t-0:0@0 t-0:1@1 t-0:2@2 t-0:3@3 t-0:4@4 t-0:5@5"
FROM_END = {"reads_from_start": False}


def judged(lines: str, contract: dict[str, Any] | None = None) -> Judgement:
    return judge_history(history(f"{SENT}\n{lines}\n{READ}", contract))


# -- from the log's end ----------------------------------------------------------------------------------------------------

PASSED_OVER = """
    1 assign t-0 group=g generation=1 member=a
    1 poll t-0:1@1
    {}
    2 assign t-0 group=g generation=2 member=b
    2 poll t-0:4@4 t-0:5@5
    2 [150 155] commit g t-0@6 generation=2 member=b
"""
"""The first member's offset is committed, or is not; the second one begins at offset 4."""


@pytest.mark.parametrize(
    ("between", "verdict"),
    [
        ("", "valid"),
        ("1 commit g t-0@2 generation=1 member=a info", "valid"),
        ("1 commit g t-0@2 generation=1 member=a", "invalid"),
        ("1 commit g t-0@2", "valid"),  # by no member: another one may have begun at the end before
    ],
)
def test_a_member_begins_at_the_log_end_until_its_group_has_committed(between: str, verdict: str) -> None:
    """GroupCoordinator answers no offset, and the consumer resets its position (SubscriptionState, `auto.offset.reset`)."""
    lines = PASSED_OVER.format(between)
    assert judged(lines, FROM_END).verdict == verdict
    assert judged(lines).verdict == "invalid"


@pytest.mark.parametrize(
    ("reported", "verdict"),
    [
        ("9 [90 95] list_offsets t-0 start=3", "valid"),  # the committed place is gone, and so is the way from there
        ("9 [90 95] list_offsets t-0 start=2\n9 [190 195] list_offsets t-0 start=2", "invalid"),
        ("9 [190 195] list_offsets t-0 start=3", "unknown"),
    ],
)
def test_a_group_whose_place_has_expired_goes_on_at_the_log_end(reported: str, verdict: str) -> None:
    lines = PASSED_OVER.format("1 commit g t-0@2 generation=1 member=a") + reported
    assert judged(lines, FROM_END | {"cleanup": "delete"}).verdict == verdict


@pytest.mark.parametrize(("keys", "verdict"), [("__consumer_offsets-3", "valid"), ("t-1", "invalid")])
def test_a_group_whose_offset_was_lost_begins_at_the_log_end(keys: str, verdict: str) -> None:
    lost = f"! [0 0] excuse number=1 cause=power-loss keys={keys} nodes=1,2"
    lines = PASSED_OVER.format("1 commit g t-0@2 generation=1 member=a") + lost
    assert judged(lines, FROM_END).verdict == verdict


@pytest.mark.parametrize(("start", "verdict"), [(2, "valid"), (1, "invalid")])
def test_a_consumer_whose_place_has_expired_goes_on_at_the_log_end(start: int, verdict: str) -> None:
    """Its next offset is 1: it is answered OFFSET_OUT_OF_RANGE where the log begins beyond, and passes over what is there, too."""
    lines = f"""
        1 assign t-0
        1 poll t-0:0@0
        9 list_offsets t-0 start={start} end=6
        1 poll t-0:5@5
        9 [190 195] list_offsets t-0 start={start} end=6
    """
    assert judged(lines, FROM_END | {"cleanup": "delete"}).verdict == verdict
    assert judged(lines, {"cleanup": "delete"}).verdict == "invalid"


def test_a_copier_that_begins_at_the_log_end_owes_nothing_below() -> None:
    lines = """
        1 subscribe t-0 group=g
        1 txn poll t-0:1@1 send u-0:10 commit g t-0@2 info
        2 subscribe t-0 group=g
        2 txn poll t-0:4@4 t-0:5@5 send u-0:30@1 commit g t-0@6
        4 poll u-0:30@1
    """
    assert judged(lines, FROM_END).verdict == "valid"
    assert "copied-past" in judged(lines).anomalies


def test_each_client_begins_where_it_says(tmp_path) -> None:
    """A consumer that begins at the log's end accuses no group of others, and excuses none."""
    with Recorder.open(tmp_path, process=0, run="r") as producer:
        for value in range(3):
            producer.ok(producer.invoke("send", [send("t-0", value)]), [send("t-0", value, offset=value)])
    with Recorder.open(tmp_path, process=1, run="r", contract=Contract(reads_from_start=False)) as reader:
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(0, 0), (1, 1), (2, 2)]})])
    with Recorder.open(tmp_path, process=2, run="r") as member:
        for offset in (0, 2):
            member.ok(member.invoke("subscribe", keys=["t-0"], group="g", generation=1, member="m"))
            member.ok(member.invoke("poll", [poll()]), [poll({"t-0": [(offset, offset)]})])
            asked = commit("g", {"t-0": offset + 1}, 1, "m")
            member.ok(member.invoke("commit", [asked]), [asked])
    (judgement,) = check([tmp_path])
    assert judgement.anomalies["commit-past-undelivered"] == 1 and judgement.verdict == "invalid"


def test_who_commits_a_sought_position_leads_others_beyond_what_it_skipped() -> None:
    """It polled nothing itself: the position that it sought is its group's, and another member reads on there."""
    text = """
        0 send t-0:1@0
        0 send t-0:2@1
        1 subscribe t-0 group=g
        {}
        1 commit g t-0@1
        2 subscribe t-0 group=g
        2 poll t-0:2@1
    """
    assert judge_history(history(text.format("1 seek t-0"))).anomalies == {"unseen": 1}
    assert judge_history(history(text.format("1 seek t-0 to=start"))).anomalies == {"lost-write": 1}


# -- a group that begins again ---------------------------------------------------------------------------------------------

LATER = """
    2 [80 81] assign t-0 group=g generation=1 member=b
    2 [82 83] poll t-0:0@0 t-0:1@1 t-0:2@2 t-0:3@3 t-0:4@4 t-0:5@5
    2 [84 85] commit g t-0@6 generation=1 member=b
"""


@pytest.mark.parametrize(
    ("before", "verdict"),
    [
        ("1 [60 61] assign t-0 group=g generation=1 member=a", "unknown"),
        ("1 [60 61] assign t-0 group=g generation=2 member=a", "unknown"),
        (
            "1 [60 61] assign t-0 group=g generation=2 member=a\n1 [62 63] commit g t-0@0 generation=2 member=a info",
            "unknown",
        ),
        (
            "1 [60 61] assign t-0 group=g generation=2 member=a\n1 [62 63] commit g t-0@0 generation=2 member=a",
            "invalid",
        ),
        (
            "1 [60 61] commit g t-0@0 generation=1 member=a\n1 [62 63] assign t-0 group=g generation=2 member=a",
            "invalid",
        ),
        # another protocol's group takes the place of an empty one, with its offsets
        ("1 [60 61] commit g t-0@0 generation=2 member=a\n4 [62 63] commit g t-0@0", "unknown"),
    ],
)
def test_a_group_without_offsets_is_removed_and_begins_again(before: str, verdict: str) -> None:
    """GroupMetadataManager.cleanupGroupMetadata removes what is empty and has no offsets; the next one to join makes a new group."""
    judgement = judged(before + LATER)
    assert judgement.verdict == verdict, judgement.to_json()
    assert {"two-owners", "commit-of-former-generation"} & judgement.anomalies.keys()


def test_who_had_joined_before_is_of_the_former_group() -> None:
    """The group may have no offset: a commit by a member that had joined before the later generation was must be refused."""
    lines = """
        1 [60 61] assign t-0 group=g generation=1 member=a
        2 [62 63] assign t-0 group=g generation=2 member=b
        {}
        1 [66 67] commit g t-0@0 generation=1 member=a
    """
    assert judged(lines.format("")).verdict == "invalid"
    assert judged(lines.format("1 [64 65] assign t-0 group=g generation=1 member=a")).verdict == "unknown"
    assert judged(lines.format("1 [64 65] assign group=g")).verdict == "invalid"


# -- from the log's start --------------------------------------------------------------------------------------------------

HEAD_PASSED = """
    {}
    1 assign t-0 group=g generation=1 member=a
    1 [100 105] poll t-0:2@2 t-0:3@3
    1 [150 155] commit g t-0@4 generation=1 member=a
"""


@pytest.mark.parametrize(
    ("before", "contract", "verdict"),
    [
        ("", {}, "invalid"),
        ("2 [90 95] commit g t-0@2 info", {}, "valid"),  # it may have been there to begin at
        ("2 [102 103] commit g t-0@2", {}, "valid"),
        ("2 [110 115] commit g t-0@2", {}, "invalid"),
        ("1 [80 85] seek t-0", {}, "valid"),
        ("", FROM_END, "valid"),
        ("", {"cleanup": "delete"}, "valid"),  # the log may have begun there
        ("! [5 5] excuse number=1 cause=power-loss keys=t-0 nodes=1,2", {}, "valid"),
        ("! [5 5] excuse number=1 cause=power-loss keys=u-0 nodes=1,2", {}, "invalid"),
    ],
)
def test_a_group_without_an_offset_begins_at_the_log_start(before: str, contract: dict[str, Any], verdict: str) -> None:
    judgement = judged(HEAD_PASSED.format(before), contract)
    assert judgement.verdict == verdict, judgement.to_json()
    assert verdict == "valid" or judgement.anomalies["commit-past-undelivered"] == 2
