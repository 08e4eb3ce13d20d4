"""What nodes report about themselves: digests of their replicas, and high watermarks."""

from __future__ import annotations

import pytest

from linearizability.history.notation import history
from linearizability.pipeline.engine import judge_history

SENT = """
    0 send t-0:1@0
    0 send t-0:2@1
    1 poll t-0:1@0 t-0:2@1
"""
BOTH = "9 replica t-0 node=1 high_watermark=2 1@0/0 2@1/0\n"


@pytest.mark.parametrize(
    ("other", "contract", "verdict"),
    [
        ("high_watermark=2 1@0/0 2@1/0", {}, "valid"),
        ("high_watermark=2", {}, "invalid"),
        ("high_watermark=2 1@0/0", {}, "invalid"),
        ("high_watermark=2 2@1/0", {}, "invalid"),
        ("high_watermark=1 1@0/0", {}, "valid"),
        ("high_watermark=0", {}, "valid"),
        ("high_watermark=-1", {}, "valid"),
        ("high_watermark=2", {"cleanup": "delete"}, "valid"),
        ("high_watermark=2 2@1/0", {"cleanup": "delete"}, "valid"),
        ("high_watermark=2 1@0/0", {"cleanup": "delete"}, "invalid"),
    ],
)
def test_a_replica_holds_what_lies_below_its_own_high_watermark(other: str, contract: dict, verdict: str) -> None:
    judgement = judge_history(history(SENT + BOTH + f"9 replica t-0 node=2 {other}", contract))
    assert judgement.verdict == verdict, judgement.to_json()
    assert ("replica-divergence" in judgement.anomalies) == (verdict == "invalid")


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        ("1@0/0 2@1/0", "valid"),
        ("3@0/0 1@0/0 2@1/0", "invalid"),
        ("1@0/0 1@0/1 2@1/0", "invalid"),
        ("1@0/0 2@1/0 5@2/0 6@2/0", "valid"),  # above the high watermark
    ],
)
def test_a_replica_holds_one_record_at_an_offset(other: str, verdict: str) -> None:
    judgement = judge_history(history(SENT + BOTH + f"9 replica t-0 node=2 high_watermark=2 {other}"))
    assert judgement.verdict == verdict, judgement.to_json()


FAULT = "! [-2 -2] fault name=kill node=2\n! [{healed} {healed}] heal name=kill node=2\n"


@pytest.mark.parametrize(
    ("other", "healed", "contract", "verdict"),
    [
        ("high_watermark=0", 35, {}, "invalid"),
        ("high_watermark=-1", 35, {}, "invalid"),
        ("high_watermark=1 1@0/0", 35, {}, "invalid"),
        ("high_watermark=0", -1, {}, "valid"),  # it may have fallen behind again when the records came
        ("high_watermark=1 1@0/0", 12, {}, "valid"),
        ("high_watermark=0", 100, {}, "valid"),  # the digest was taken before the last fault was over
        ("high_watermark=0", 47, {"acks": "1"}, "invalid"),  # they were read
        ("high_watermark=0", 35, {"acks": "1"}, "valid"),
        ("high_watermark=0", 35, {"cleanup": "delete"}, "valid"),  # they may have expired
        ("high_watermark=1 1@0/0", 35, {"cleanup": "delete"}, "invalid"),
        ("high_watermark=1 1@0/0", 35, {"cleanup": "compact"}, "valid"),
    ],
)
def test_a_replica_in_sync_holds_what_was_promised_before(
    other: str, healed: int, contract: dict, verdict: str
) -> None:
    """Its own high watermark may be an old one; that it holds nothing beyond proves nothing."""
    text = FAULT.format(healed=healed) + SENT + BOTH + f"9 replica t-0 node=2 {other}"
    judgement = judge_history(history(text, {"bound_after_healing_ms": 10_000} | contract))
    assert judgement.verdict == verdict, judgement.to_json()
    is_permitted = "cleanup" in contract and contract["cleanup"] == "compact"
    assert ("replica-divergence" in judgement.anomalies) == (verdict == "invalid" or is_permitted)


@pytest.mark.parametrize(("other", "verdict"), [("1@0/0", "valid"), ("1@0/0 3@1/0", "invalid"), ("2@1/1", "invalid")])
def test_a_compacted_replica_may_lack_records_and_holds_no_others(other: str, verdict: str) -> None:
    text = SENT + BOTH + f"9 replica t-0 node=2 high_watermark=2 {other}"
    judgement = judge_history(history(text, {"cleanup": "compact"}))
    assert "replica-divergence" in judgement.anomalies and judgement.verdict == verdict, judgement.to_json()


SAME = ("1@0/0 2@1/0", "1@0/0 2@1/0")
DIFFERENT = ("1@0/0 2@1/0", "1@0/0 3@1/1")


@pytest.mark.parametrize(("first", "second", "verdict"), [(SAME, DIFFERENT, "invalid"), (DIFFERENT, SAME, "valid")])
@pytest.mark.parametrize("processes", [(8, 9), (9, 8)])
def test_the_last_digest_is_the_latest(
    first: tuple[str, str], second: tuple[str, str], verdict: str, processes: tuple[int, int]
) -> None:
    """Whatever the numbers of the processes that took them."""
    text = SENT
    for process, digests, at in ((processes[0], first, 100), (processes[1], second, 200)):
        for node, held in enumerate(digests):
            text += (
                f"{process} [{at + 10 * node} {at + 10 * node + 5}] replica t-0 node={node} high_watermark=2 {held}\n"
            )
    judgement = judge_history(history(text))
    assert judgement.verdict == verdict, judgement.to_json()


@pytest.mark.parametrize(
    "states",
    [
        "8 [0 10] state t-0 node=1 {n}=9\n9 [5 30] state t-0 node=1 {n}=8\n8 [20 40] state t-0 node=1 {n}=3",
        "8 [0 10] state t-0 node=1 {n}=9\n9 [5 90] state t-0 node=1 {n}=9\n8 [20 40] state t-0 node=1 {n}=3",
    ],
)
@pytest.mark.parametrize("name", ["high_watermark", "last_stable_offset", "log_start"])
def test_a_state_that_overlaps_both_hides_no_regression(states: str, name: str) -> None:
    judgement = judge_history(history(SENT + states.format(n=name).replace("\n", " epoch=2\n") + " epoch=2"))
    assert judgement.anomalies == {f"{name.replace('_', '-')}-regression": 1}, judgement.to_json()


def test_states_reported_at_the_same_time_may_differ() -> None:
    judgement = judge_history(
        history(
            SENT
            + """
            8 [0 10] state t-0 node=1 high_watermark=9 epoch=2
            9 [5 20] state t-0 node=1 high_watermark=3 epoch=2
            8 [30 40] state t-0 node=1 high_watermark=3 epoch=3
            9 [30 40] state t-0 node=2 high_watermark=3 epoch=2
            """
        )
    )
    assert judgement.verdict == "valid" and not judgement.anomalies, judgement.to_json()


def test_a_regression_without_leader_epochs_is_unknown() -> None:
    judgement = judge_history(
        history(
            SENT
            + """
            9 [100 110] state t-0 node=1 high_watermark=2
            9 [120 130] state t-0 node=1 high_watermark=1
            """
        )
    )
    assert judgement.verdict == "unknown" and "the leader epoch" in judgement.reasons[0], judgement.to_json()


@pytest.mark.parametrize(
    ("other", "contract", "verdict"),
    [
        ("1@0/0 2@1/0", {}, "valid"),
        ("1@0/0 3@1/1", {}, "unknown"),
        ("1@0/0 3@1/1", {"cleanup": "compact"}, "unknown"),
        ("1@0/0 3@2/1", {"cleanup": "compact"}, "valid"),
    ],
)
def test_replicas_that_differ_without_a_high_watermark_are_unknown(other: str, contract: dict, verdict: str) -> None:
    digests = f"9 replica t-0 node=1 high_watermark=-1 1@0/0 2@1/0\n9 replica t-0 node=2 high_watermark=-1 {other}"
    judgement = judge_history(history(SENT + digests, contract))
    assert judgement.verdict == verdict, judgement.to_json()
