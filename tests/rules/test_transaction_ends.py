"""When a transaction's records and offsets are in force, what became of it, and what proves that of unknown outcomes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from linearizability.history.contract import Contract
from linearizability.history.notation import history
from linearizability.history.operations import drain, poll, send
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check, judge_history
from linearizability.pipeline.verdict import Judgement
from linearizability.rules import RULES, transactions

pytestmark = pytest.mark.xdist_group("spark")
ENDS = """
    0 send t-0:1@0
    0 begin txn=a
    0 send t-0:2@1 txn=a
"""


def test_offsets_of_a_transaction_are_committed_by_its_end() -> None:
    text = """
        0 send t-0:1@0
        2 poll t-0:1@0
        1 commit g t-0@3
        1 begin txn=a
        1 commit g t-0@5 txn=a
        2 committed g t-0@3
        1 end txn=a commit=true
        2 committed g t-0@{}
    """
    assert judge_history(history(text.format(5))).verdict == "valid"
    assert "committed-offset-regression" in judge_history(history(text.format(3))).anomalies
    unstable = {"isolation": "read_uncommitted"}  # the end is answered before the marker is written
    assert judge_history(history(text.format(3), unstable)).verdict == "valid"
    assert judge_history(history(text.format(-1), unstable)).verdict == "invalid"


@pytest.mark.parametrize(
    ("marks", "asks", "bound", "verdict"),
    [
        ("", "2", 0, "invalid"),
        ("! [5 5] fault name=cut", "2", 0, "unknown"),
        ("! [5 5] fault name=cut", "1", 0, "invalid"),  # it has joined at the coordinator that answers
        ("! [95 95] fault name=cut", "2", 0, "invalid"),
        ("! [5 5] fault name=cut\n! [15 15] heal name=cut", "2", 1, "unknown"),
        ("! [5 5] fault name=cut\n! [15 15] heal name=cut", "2", 0, "invalid"),
    ],
)
def test_a_former_coordinator_answers_with_the_offset_that_it_knew(
    marks: str, asks: str, bound: int, verdict: str
) -> None:
    text = f"""
        0 [0 1] send t-0:1@0
        1 [2 3] subscribe t-0 group=g generation=1 member=m
        1 [10 11] poll t-0:1@0
        1 [20 25] commit g t-0@0 generation=1 member=m
        1 [30 35] commit g t-0@1 generation=1 member=m
        {asks} [40 45] committed g t-0@{{}}
    """
    for answer in (0, -1):
        judgement = judge_history(history(f"{marks}\n{text.format(answer)}", {"bound_after_healing_ms": bound}))
        assert judgement.verdict == verdict, judgement.to_json()


@pytest.mark.parametrize(
    ("began", "ended", "lost"),
    [(3000, 3100, False), (1900, 3100, False), (100, 5_000_000_000, False), (100, 200, True)],
)
def test_a_final_read_owes_the_records_of_transactions_that_had_ended(
    tmp_path: Path, began: int, ended: int, lost: bool
) -> None:
    """It lasts from 2000 to 2900, in µs; the record is read before by one who reads uncommitted records."""
    now = [0]

    def at(microseconds: int, act: Callable[[], int | None]) -> int:
        now[0] = 1000 * microseconds
        return act() or 0

    careless = Contract(isolation="read_uncommitted")
    with (
        Recorder.open(tmp_path, process=0, run="r", clock=lambda: now[0]) as producer,
        Recorder.open(tmp_path, process=1, run="r", clock=lambda: now[0]) as reader,
        Recorder.open(tmp_path, process=2, run="r", contract=careless, clock=lambda: now[0]) as other,
    ):
        at(1, lambda: producer.ok(producer.invoke("begin", txn="a")))
        at(2, lambda: producer.ok(producer.invoke("send", [send("t-0", 1)], txn="a"), [send("t-0", 1, offset=0)]))
        at(3, lambda: other.ok(other.invoke("poll", [poll()]), [poll({"t-0": [(0, 1)]})]))
        end = at(began, lambda: producer.invoke("end", txn="a", commit=True))
        if ended < 2000:
            at(ended, lambda: producer.ok(end))
        final = at(2000, lambda: reader.invoke("drain"))
        at(2900, lambda: reader.ok(final, [drain("t-0", 0, 0, 0)]))
        if ended >= 2000:
            at(ended, lambda: producer.ok(end))
    (judgement,) = check([tmp_path])
    assert ("lost-write" in judgement.anomalies) == lost, judgement.to_json()


def ended(*ends: str, read: bool) -> Judgement:
    """The transaction of ENDS, ended so, and whether its record was read by one who reads committed records."""
    tail = "\n".join(f"0 end txn=a {end}" for end in ends)
    rest = f"0 send t-0:3@4\n1 poll t-0:1@0 {'t-0:2@1' if read else ''} t-0:3@4"
    return judge_history(history(f"{ENDS}{tail}\n{rest}"))


@pytest.mark.parametrize(
    ("ends", "if_read", "if_not"),
    [
        (["commit=true"], "valid", "invalid"),
        (["commit=false"], "invalid", "valid"),
        (["commit=true info"], "valid", "valid"),
        (["commit=true fail"], "invalid", "valid"),
        (["commit=true info", "commit=true fail"], "valid", "valid"),
        (["commit=true info", "commit=true"], "valid", "invalid"),
        (["commit=true fail", "commit=true"], "valid", "invalid"),
        (["commit=true fail", "commit=false"], "invalid", "valid"),
        (["commit=true info", "commit=false"], "valid", "valid"),
        (["commit=false fail", "commit=false"], "invalid", "valid"),
    ],
)
def test_what_became_of_a_transaction(ends: list[str], if_read: str, if_not: str) -> None:
    for read, verdict in ((True, if_read), (False, if_not)):
        judgement = ended(*ends, read=read)
        assert judgement.verdict == verdict, judgement.to_json()


def test_who_begins_again_has_given_up_what_failed() -> None:
    again = history(f"{ENDS}0 end txn=a commit=true fail\n0 begin txn=a\n0 send t-0:3@2 txn=a\n0 end txn=a commit=true")
    assert not again.defects
    assert (
        "G1a" in judge_history(history(f"{ENDS}0 end txn=a commit=true fail\n0 begin txn=b\n1 poll t-0:2@1")).anomalies
    )


@pytest.mark.parametrize(("commit", "owed"), [("true", True), ("false", False)])
def test_a_send_belongs_to_the_transaction_in_which_it_began(tmp_path: Path, commit: str, owed: bool) -> None:
    """Its answer is recorded after the transaction's end."""
    with Recorder.open(tmp_path, process=0, run="r") as producer, Recorder.open(tmp_path, process=1, run="r") as reader:
        producer.ok(producer.invoke("begin", txn="a"))
        late = producer.invoke("send", [send("t-0", 1)], txn="a")
        producer.ok(producer.invoke("end", txn="a", commit=commit == "true"))
        producer.ok(late, [send("t-0", 1, offset=0)])
        producer.ok(producer.invoke("send", [send("t-0", 2)]), [send("t-0", 2, offset=2)])
        final = reader.invoke("drain")
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(2, 2)]})])
        reader.ok(final, [drain("t-0", 0, 3, 3)])
    (judgement,) = check([tmp_path])
    assert ("lost-write" in judgement.anomalies) == owed, judgement.to_json()


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize(("f", "isolation", "proves"), [
    ("txn", "read_committed", True), ("txn", "read_uncommitted", False), ("send", "read_committed", False)
])  # fmt: skip
@pytest.mark.parametrize("second", ["t-0", "t-1"])
def test_one_record_proves_another(
    tmp_path: Path, engine: str, f: str, isolation: str, proves: bool, second: str
) -> None:
    """Only of one transaction, and only if it was given to a reader of committed records. No reader was given value 2."""
    contract = Contract.model_validate({"isolation": isolation})
    mops = [send("t-0", 1), send(second, 2)]
    with Recorder.open(tmp_path, process=0, run="r", contract=contract) as producer:
        producer.info(producer.invoke(f, mops), mops, error="TIMED_OUT")
        producer.ok(producer.invoke("send", [send(second, 3)]), [send(second, 3, offset=6)])
    with Recorder.open(tmp_path, process=1, run="r", contract=contract) as reader:
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(0, 1)]})])
    with Recorder.open(tmp_path, process=2, run="r", contract=contract) as reader:
        final = reader.invoke("drain")
        given = [(0, 1), (6, 3)] if second == "t-0" else [(6, 3)]
        reader.ok(reader.invoke("poll", [poll()]), [poll({second: given})])
        reader.ok(final, [drain(second, 0, 7, 7)])
    (judgement,) = check([tmp_path], engine=engine, master="local[2]")
    assert ("lost-write" in judgement.anomalies) == proves, judgement.to_json()
    assert judgement.verdict == ("invalid" if proves else "valid"), judgement.to_json()


def test_who_names_no_member_may_be_the_one_that_others_name() -> None:
    sent = "0 send t-0:1@0\n1 poll t-0:1@0\n1 subscribe t-0 group=g generation=4 {}\n{} commit g t-0@1 generation=4 {}"
    for one, process, other, two_owners in (
        ("", 1, "", False),
        ("", 1, "member=m", False),
        ("member=m", 1, "", False),
        ("member=m", 1, "member=m", False),
        ("member=m", 2, "member=n", True),
        ("", 2, "", True),
    ):
        judgement = judge_history(history(sent.format(one, process, other)))
        assert ("two-owners" in judgement.anomalies) == two_owners, (one, process, other)


@pytest.mark.parametrize("rule", ["G1c-process", "G1c-realtime"])
def test_cycles_that_are_too_many_to_look_for_leave_the_verdict_unknown(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = history(RULES[rule].example)
    monkeypatch.setattr(transactions, "MAX_PRECEDENCE", 1)
    judgement = judge_history(example)
    assert judgement.anomalies[rule] == 1 and rule not in judgement.permitted, judgement.to_json()
    assert judgement.verdict == "unknown" and any(
        reason.startswith(f"1 × {rule}: cycles") for reason in judgement.reasons
    )
