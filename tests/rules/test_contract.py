"""What the contract permits is reported and accuses no broker; the same anomaly without the permission does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linearizability.history.contract import Contract
from linearizability.history.notation import history, parse
from linearizability.history.operations import drain, poll, send
from linearizability.history.paired import derive_events
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check, judge_history
from linearizability.rules import RULES

LOST = """
    0 send t-0:1@0
    0 send t-0:2@1
    0 send t-0:3@2
    1 [40 90] drain t-0 start=0 end=2 position=2
    2 poll t-0:1@0 t-0:3@2
"""
PASSED = """
    0 send t-0:1@0
    0 send t-0:2@1
    0 send t-0:3@2
    1 poll t-0:1@0 t-0:3@2
"""
DOUBLE = """
    0 send t-0:1@0
    1 poll t-0:1@0 t-0:1@1
"""
OVERWRITTEN = """
    0 send t-0:1@0
    0 send t-0:2@0
    1 poll t-0:2@0
"""
STEPPED_BACK = """
    0 send t-0:1@5
    0 send t-0:2@4
    1 poll t-0:2@4 t-0:1@5
"""
BELOW = """
    0 [0 10] send t-0:1@5
    1 [20 30] send t-0:2@4 acks=1
    2 [40 50] poll {read}t-0:1@5
"""
DIVERGED = """
    0 send t-0:1@0
    1 poll t-0:1@0
    9 replica t-0 node=1 high_watermark=2 1@0/0 2@1/0
    9 replica t-0 node=2 high_watermark=2 1@0/0 3@1/1
"""
TORN = """
    0 txn send t-0:1@0 t-1:2@0
    0 send t-1:3@2
    1 poll t-0:1@0 t-1:3@2
"""
DIRTY = """
    0 txn send t-0:1 fail
    0 send t-0:2@1
    1 poll t-0:1@0 t-0:2@1
"""

CASES: list[tuple[str, str, dict[str, Any], str]] = [
    ("lost-write", LOST, {}, "invalid"),
    ("lost-write", LOST, {"acks": "1"}, "valid"),
    ("nonmonotonic-send", STEPPED_BACK, {"max_in_flight": 1}, "invalid"),
    ("nonmonotonic-send", STEPPED_BACK, {"max_in_flight": 1, "acks": "1"}, "valid"),
    ("lost-write", LOST, {"unclean_election": True}, "valid"),
    ("lost-write", LOST, {"min_isr": 2, "replicas_losing_unflushed_data": 2}, "valid"),
    ("lost-write", LOST, {"min_isr": 2, "replicas_losing_unflushed_data": 1}, "invalid"),
    ("lost-write", PASSED, {"cleanup": "compact"}, "valid"),
    ("lost-write", PASSED, {}, "invalid"),
    ("duplicate", DOUBLE, {}, "invalid"),
    ("duplicate", DOUBLE, {"idempotence": False}, "valid"),
    ("inconsistent-offsets", OVERWRITTEN, {}, "invalid"),
    ("inconsistent-offsets", OVERWRITTEN, {"acks": "1", "idempotence": False, "max_in_flight": 5}, "valid"),
    ("realtime-order", BELOW.format(read=""), {}, "valid"),  # a leader that was deposed may have answered, and lost it
    ("realtime-order", BELOW.format(read="t-0:2@4 "), {}, "invalid"),
    ("nonlinearizable", BELOW.format(read=""), {}, "valid"),
    ("nonlinearizable", BELOW.format(read="t-0:2@4 "), {}, "invalid"),
    ("torn-transaction", TORN, {}, "invalid"),
    ("torn-transaction", TORN, {"cleanup": "compact"}, "valid"),
    ("torn-transaction", TORN, {"unclean_election": True}, "valid"),
    ("replica-divergence", DIVERGED, {"unclean_election": True}, "invalid"),
    ("replica-divergence", DIVERGED, {"min_isr": 2, "replicas_losing_unflushed_data": 2}, "invalid"),
    ("G1a", DIRTY, {}, "invalid"),
    ("G1a", DIRTY, {"isolation": "read_uncommitted"}, "valid"),
    ("G1a", DIRTY, {"min_isr": 2, "replicas_losing_unflushed_data": 2}, "valid"),
]


@pytest.mark.parametrize(("rule", "text", "contract", "verdict"), CASES)
def test_contract(rule: str, text: str, contract: dict[str, Any], verdict: str) -> None:
    judgement = judge_history(history(text, contract))
    assert judgement.anomalies.get(rule), judgement.to_json()
    assert bool(judgement.permitted.get(rule)) == (verdict == "valid"), judgement.to_json()
    assert judgement.verdict == verdict, judgement.to_json()


def test_readers_that_begin_in_the_middle_prove_no_loss() -> None:
    late = """
        0 send t-0:1@0
        0 send t-0:2@1
        1 poll t-0:2@1
    """
    assert judge_history(history(late)).anomalies == {"lost-write": 1}
    assert judge_history(history(late, {"reads_from_start": False})).anomalies == {"unseen": 1}


@pytest.mark.parametrize(
    ("before", "verdict"),
    [
        ("1 assign t-0", "invalid"),
        ("1 seek t-0", "unknown"),
        ("2 seek t-0", "invalid"),
        ("1 seek t-0 to=start", "invalid"),
        ("1 seek t-1", "invalid"),
        ("2 subscribe t-0 group=g\n2 seek t-0\n2 poll t-0:2@1\n1 subscribe t-0 group=g", "unknown"),
        ("2 subscribe t-0 group=h\n2 seek t-0\n2 poll t-0:2@1\n1 subscribe t-0 group=g", "invalid"),
    ],
)
def test_who_seeks_a_position_proves_no_loss_below(before: str, verdict: str) -> None:
    """Nor do others of its group, whose offset it may have committed."""
    judgement = judge_history(history(f"0 send t-0:1@0\n0 send t-0:2@1\n{before}\n1 poll t-0:2@1"))
    assert judgement.verdict == verdict, judgement.to_json()


def test_a_group_may_commit_beyond_what_a_member_chose_not_to_read() -> None:
    text = """
        0 send t-0:1@0
        0 send t-0:2@1
        0 send t-0:3@2
        1 subscribe t-0 group=g
        1 poll t-0:1@0
        {}
        1 poll t-0:3@2
        1 commit g t-0@3
        2 poll t-0:1@0 t-0:2@1
    """
    sought = judge_history(history(text.format("1 seek t-0")))
    assert sought.verdict == "valid" and sought.permitted["commit-past-undelivered"], sought.to_json()
    assert judge_history(history(text.format("1 seek t-0 to=committed"))).verdict == "invalid"


def test_a_final_read_begins_again_at_the_log_start(tmp_path: Path) -> None:
    final = [drain("t-0", 0, 1, 1)]
    with Recorder.open(tmp_path, process=0, run="r") as recorder:
        recorder.ok(recorder.invoke("send", [send("t-0", 1)]), [send("t-0", 1, offset=0)])
        for asked in ([drain("t-0", 0, 1, 0)], []):
            draining = recorder.invoke("drain", asked)
            recorder.ok(recorder.invoke("poll", [poll()]), [poll({"t-0": [(0, 1)]})])
            recorder.ok(draining, final)
    (judgement,) = check([tmp_path])
    assert judgement.verdict == "valid" and not judgement.anomalies, judgement.to_json()


@pytest.mark.parametrize(
    ("of_run", "of_send", "verdict"), [("all", "1", "valid"), ("1", "all", "invalid"), ("all", "all", "invalid")]
)
def test_acks_of_one_send_count_for_that_send(of_run: str, of_send: str, verdict: str) -> None:
    """The acks of the lost record's own send decide, not those of the contract."""
    lost = f"0 send t-0:1@0\n0 send t-0:2@1 acks={of_send}\n0 send t-0:3@2\n2 poll t-0:1@0 t-0:3@2"
    judgement = judge_history(history(lost, {"acks": of_run}))
    assert judgement.anomalies["lost-write"] == 1
    assert judgement.verdict == verdict, judgement.to_json()


TIME_IS_UNKNOWN = """
    0 send t-0:1 info
    1 send t-0:2@0
    2 poll t-0:2@0 t-0:1@1
"""


def test_a_send_without_an_answer_may_take_effect_at_any_later_time() -> None:
    """acks=0: when the client received no answer, the clock orders nothing, in none of the rules."""
    for contract in ({"acks": "0"}, {}):
        judgement = judge_history(history(TIME_IS_UNKNOWN, contract))
        assert judgement.anomalies == {}, judgement.to_json()
    assert judge_history(history("0 send t-0:1 info\n1 poll t-0:1@0", {"acks": "0"})).verdict == "valid"
    assert judge_history(history("0 send t-0:1 info\n1 poll t-0:1@0")).verdict == "unknown"
    answered = judge_history(history(TIME_IS_UNKNOWN.replace("1 info", "1")))
    assert {"realtime-order", "nonlinearizable", "G0-realtime"} <= set(answered.anomalies)


def test_a_send_with_lower_acks_among_others_is_no_anomaly() -> None:
    """The contract of the run is acks=all; one send asked for less, and what it received may be undone."""
    events = parse("0 send t-0:1@1\n1 send t-0:2@0")
    for acks, verdict in (("0", "valid"), ("1", "valid"), ("all", "invalid")):
        for event in events[:2]:
            event["mops"][0]["acks"] = acks
        judgement = judge_history(derive_events("lower", events))
        assert {"realtime-order", "nonlinearizable"} <= set(judgement.anomalies)
        assert (judgement.verdict == "invalid") == (verdict == "invalid"), judgement.to_json()


@pytest.mark.parametrize(
    ("drains", "verdict", "anomalies"), [(False, "unknown", {"unseen": 1}), (True, "invalid", {"lost-write": 1})]
)
def test_unseen_leaves_the_verdict_unknown_and_a_drain_decides(
    tmp_path: Path, drains: bool, verdict: str, anomalies: dict[str, int]
) -> None:
    """No consumer was given the acknowledged record at the log's end: only a final read to that end proves that it is lost."""
    with Recorder.open(tmp_path, process=0, run="r") as producer, Recorder.open(tmp_path, process=1, run="r") as reader:
        for value in range(2):
            producer.ok(producer.invoke("send", [send("t-0", value)]), [send("t-0", value, offset=value)])
        final = reader.invoke("drain") if drains else None
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(0, 0)]})])
        if final is not None:
            reader.ok(final, [drain("t-0", 0, 2, 2)])
    (judgement,) = check([tmp_path])
    assert (judgement.verdict, judgement.anomalies) == (verdict, anomalies), judgement.to_json()


def test_what_vanished_after_it_was_read_is_lost() -> None:
    gone = """
        0 send t-0:1@0
        0 send t-0:2@1
        1 poll t-0:1@0 t-0:2@1
        2 drain t-0 start=0 end=1 position=1
        3 [30 33] poll t-0:1@0
    """
    judgement = judge_history(history(gone))
    assert judgement.anomalies == {"lost-write": 2}  # process 2 itself polled nothing
    assert judgement.verdict == "invalid"


G1C = {"G1c", "G1c-process", "G1c-realtime"}


@pytest.mark.parametrize("rule", sorted(G1C))
def test_cycles_of_reads_are_those_of_committed_reads(rule: str) -> None:
    """A consumer of uncommitted records may be given what commits later, or never."""
    careless = history(RULES[rule].example, {"isolation": "read_uncommitted"})
    assert not G1C & set(judge_history(careless).anomalies)


def test_a_transaction_lasts_until_its_last_poll() -> None:
    """It sent before the other one began, and read the other's record after that had committed: no cycle."""
    stepwise = history(
        """
        0 [0 1] begin txn=a
        0 [2 3] send t-0:1@0 txn=a
        1 [10 11] begin txn=b
        1 [12 13] send t-1:2@0 txn=b
        1 [14 20] end txn=b commit=true
        0 [30 31] poll t-1:2@0 txn=a
        0 [32 40] end txn=a commit=true
        """
    )
    judgement = judge_history(stepwise)
    assert not G1C & set(judgement.anomalies) and not stepwise.defects, judgement.to_json()


@pytest.mark.parametrize(
    ("acks", "read", "extra", "contract", "verdict"),
    [
        ("1", "2 [20 30] poll t-0:1@0", "", {}, "invalid"),
        ("0", "2 [20 30] poll t-0:1@0", "", {}, "invalid"),
        ("1", "2 [20 50] poll t-0:1@0", "", {}, "valid"),  # it may have been committed after the final read
        ("1", "2 [20 30] poll u-0:9@9", "", {}, "valid"),
        ("1", "2 [20 30] poll t-0:1@0", "! [25 25] fault name=kill node=1", {}, "unknown"),
        ("1", "2 [20 30] poll t-0:1@0", "! [95 95] fault name=kill node=1", {}, "invalid"),
        ("1", "2 [20 30] poll t-0:1@0", "! [5 5] excuse number=1 cause=power-loss keys=t-0 nodes=1,2", {}, "valid"),
        ("1", "2 [20 30] poll t-0:1@0", "! [5 5] excuse number=1 cause=power-loss keys=t-1 nodes=1,2", {}, "invalid"),
        ("1", "2 [20 30] poll t-0:1@0", "", {"unclean_election": True}, "valid"),
    ],
)
def test_what_was_read_is_kept_whatever_the_acks(
    acks: str, read: str, extra: str, contract: dict[str, Any], verdict: str
) -> None:
    """The record is not in the final read of its partition."""
    text = f"""
        {extra}
        0 [0 10] send t-0:1@0 acks={acks}
        1 [0 10] send u-0:9@9
        {read}
        3 [32 35] poll u-0:9@9
        4 [40 90] drain t-0 start=0 end=0 position=0
    """
    given = {"bound_after_healing_ms": 10_000} | contract
    judgement = judge_history(history(text, given))
    assert judgement.verdict == verdict, judgement.to_json()


@pytest.mark.parametrize(
    ("final", "other", "verdict"),
    [
        ([], None, "unknown"),
        ([(2, 3)], None, "valid"),
        ([], "info", "valid"),  # it may lie behind, under the same key
        ([], "fail", "unknown"),
        ([(3, 4)], "ok", "valid"),
        ([(2, 3)], "ok", "unknown"),
    ],
)
def test_compaction_keeps_the_last_record_of_all(
    tmp_path: Path, final: list[tuple[int, int]], other: str | None, verdict: str
) -> None:
    """Of the first three records, and maybe a fourth, the final read returns these."""
    contract = Contract(cleanup="compact")
    with Recorder.open(tmp_path, process=0, run="r", contract=contract) as producer:
        for value in (1, 2, 3):
            producer.ok(producer.invoke("send", [send("t-0", value)]), [send("t-0", value, offset=value - 1)])
        if other is not None:
            last = producer.invoke("send", [send("t-0", 4)])
            getattr(producer, other)(last, [send("t-0", 4, offset=3)] if other == "ok" else [send("t-0", 4)])
    with Recorder.open(tmp_path, process=1, run="r", contract=contract) as reader:
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(0, 1)]})])
        drained = reader.invoke("drain")
        if final:
            reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": final})])
        reader.ok(drained, [drain("t-0", 0, 4, 4)])
    (judgement,) = check([tmp_path])
    assert judgement.verdict == verdict, judgement.to_json()
    assert "lost-write" in judgement.anomalies
