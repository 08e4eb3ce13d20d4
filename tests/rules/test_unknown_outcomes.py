"""Records of unknown outcome: where one stood is known from who read it, and who may pass over it from what is proven."""

from __future__ import annotations

import pytest

from linearizability.history.contract import Contract
from linearizability.history.notation import history
from linearizability.history.operations import commit, drain, list_offsets, poll, send
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check, judge_history


def record(folder, start: int, start_afterwards: int | None) -> None:
    """The first of two records has no answer, is read at offset 0, and is not in the final read from `start` on; the log start is
    asked for once more, or is not."""
    contract = Contract(acks="all", cleanup="delete")
    with Recorder.open(folder, process=1, contract=contract, run="r") as producer:
        producer.info(producer.invoke("send", [send("t-0", 1)]), [send("t-0", 1)], error="TIMED_OUT")
        producer.ok(producer.invoke("send", [send("t-0", 2)]), [send("t-0", 2, offset=1)])
    with Recorder.open(folder, process=2, contract=contract, run="r") as reader:
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(0, 1), (1, 2)]})])
    with Recorder.open(folder, process=3, contract=contract, run="r") as reader:
        final = reader.invoke("drain")
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(1, 2)]})])
        reader.ok(final, [drain("t-0", start, 2, 2)])
        if start_afterwards is not None:
            reader.ok(reader.invoke("list_offsets"), [list_offsets("t-0", start_afterwards, 2)])


@pytest.mark.parametrize(
    ("start", "afterwards", "verdict"), [(1, None, "valid"), (0, 1, "unknown"), (0, None, "unknown"), (0, 0, "invalid")]
)
def test_what_retention_took_is_not_lost(tmp_path, start: int, afterwards: int | None, verdict: str) -> None:
    """A record may expire while the final read goes on: only a log start that was asked for later shows that it did not."""
    record(tmp_path, start, afterwards)
    (judgement,) = check([tmp_path])
    assert judgement.verdict == verdict, judgement.to_json()
    assert ("lost-write" in judgement.anomalies) == (verdict == "invalid")


@pytest.mark.parametrize(("others_read_it", "verdict"), [(False, "valid"), (True, "invalid")])
def test_who_reads_committed_records_may_pass_over_an_undecided_transaction(
    tmp_path, others_read_it: bool, verdict: str
) -> None:
    """Its record at offset 1 was given to one who reads uncommitted records; to one who does not only if it was committed."""
    committed = Contract(isolation="read_committed")
    with Recorder.open(tmp_path, process=1, contract=committed, run="r") as producer:
        producer.ok(producer.invoke("send", [send("t-0", 1)]), [send("t-0", 1, offset=0)])
        producer.info(producer.invoke("txn", [send("t-0", 2)]), [send("t-0", 2)], error="PRODUCER_FENCED")
        producer.ok(producer.invoke("send", [send("t-0", 3)]), [send("t-0", 3, offset=2)])
    polls = {2: (Contract(isolation="read_uncommitted"), True), 3: (committed, others_read_it), 4: (committed, False)}
    for process, (contract, sees_it) in polls.items():
        with Recorder.open(tmp_path, process=process, contract=contract, run="r") as reader:
            seen = [(0, 1), (1, 2), (2, 3)] if sees_it else [(0, 1), (2, 3)]
            reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": seen})])
    (judgement,) = check([tmp_path])
    assert judgement.verdict == verdict, judgement.to_json()
    assert ("int-poll-skip" in judgement.anomalies) == (verdict == "invalid")


NAMED = """
    0 send t-0:1@0
    0 send t-0:3@2 info
    2 send t-0:4
    1 poll t-0:1@0 t-0:4@2
"""


def test_an_offset_that_a_completion_of_unknown_outcome_names_is_evidence() -> None:
    """Value 3 was reported at offset 2, and value 4 is read there; the report alone proves no loss.

    A broker names the offset also where it gives up waiting for the replicas, and another leader may give it out again."""
    judgement = judge_history(history(NAMED))
    assert (judgement.verdict, judgement.anomalies.get("inconsistent-offsets")) == ("unknown", 1), judgement.to_json()
    assert judge_history(history(NAMED.replace("send t-0:3", "txn send t-0:3"))).verdict == "invalid"
    unclean = judge_history(history(NAMED, {"unclean_election": True}))
    assert unclean.permitted["inconsistent-offsets"] and unclean.verdict == "valid", unclean.to_json()
    assert not judgement.anomalies.get("lost-write")
    assert not judge_history(history(NAMED.replace("t-0:4@2", "t-0:4@3"))).anomalies.get("inconsistent-offsets")
    lower = judge_history(history(NAMED, {"acks": "1", "idempotence": False}))
    assert lower.permitted["inconsistent-offsets"]


def test_a_final_read_that_ends_before_a_read_passes_is_the_witness() -> None:
    """It shows first that the record is missing, so the later read beyond it proves nothing new."""
    text = "0 send t-0:1@0\n0 send t-0:2@1\n2 drain t-0 start=0 end=2 position=2\n1 poll t-0:2@1"
    judgement = judge_history(history(text))
    assert judgement.anomalies == {"lost-write": 2}
    drained = {anomaly.operations[1] for anomaly in judgement.witnesses()}
    assert len(drained) == 1 and all("the final read" in anomaly.text for anomaly in judgement.witnesses())


def test_a_record_without_an_answer_is_due_to_a_final_read_once_it_was_read(tmp_path) -> None:
    """Its request may wait at a broker that stood still; the final read lasts from 2000 to 2900."""
    for first_read, verdict in ((1500, "invalid"), (3000, "valid")):
        now, folder = [0], tmp_path / str(first_read)
        clock = lambda: 1000 * now[0]  # noqa: B023, E731
        with (
            Recorder.open(folder, process=1, run="r", clock=clock) as producer,
            Recorder.open(folder, process=2, run="r", clock=clock) as reader,
            Recorder.open(folder, process=3, run="r", clock=clock) as final,
        ):
            producer.ok(producer.invoke("send", [send("t-0", 1)]), [send("t-0", 1, offset=0)])
            producer.info(producer.invoke("send", [send("t-0", 2)]), [send("t-0", 2)], error="TIMED_OUT")
            for moment in sorted((first_read, 2000)):
                now[0] = moment
                if moment == first_read:
                    reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(0, 1), (1, 2)]})])
                else:
                    draining = final.invoke("drain")
                    final.ok(final.invoke("poll", [poll()]), [poll({"t-0": [(0, 1)]})])
                    now[0] = 2900
                    final.ok(draining, [drain("t-0", 0, 1, 1)])
        (judgement,) = check([folder])
        assert judgement.verdict == verdict, judgement.to_json()
        assert ("lost-write" in judgement.anomalies) == (verdict == "invalid")


@pytest.mark.parametrize(
    ("first", "read", "contract", "verdict"),
    [
        ("@5", "t-0:2@4 t-0:1@5", {}, "invalid"),
        (" info", "t-0:2@4 t-0:1@5", {}, "unknown"),
        (" info", "t-0:2@4 t-0:1@5", {"idempotence": False, "max_in_flight": 1}, "valid"),
    ],
)
def test_a_send_without_an_answer_is_in_no_order_with_what_its_producer_sent_then(
    first: str, read: str, contract: dict, verdict: str
) -> None:
    """librdkafka takes a new producer id after it has given up a send; a request that stood in a queue may follow."""
    text = f"0 send t-0:1{first}\n0 send t-0:2@4\n1 poll {read}"
    judgement = judge_history(history(text, contract))
    assert judgement.verdict == verdict and "nonmonotonic-send" in judgement.anomalies, judgement.to_json()
    turned = f"0 send t-0:1{first}\n0 send t-0:2@4\n0 send t-0:3@3\n1 poll t-0:3@3 {read}"
    assert judge_history(history(turned, contract)).verdict == "invalid"  # of two that were answered


TIMED_OUT_IN_A_TRANSACTION = """
    0 send t-0:1@0
    0 begin txn=a
    0 send t-0:3@2 txn=a {}
    0 end txn=a commit=true info
    2 send t-0:4@2
    1 poll t-0:1@0 t-0:4@2
"""


@pytest.mark.parametrize(("answer", "verdict"), [("info", "unknown"), ("ok", "invalid")])
def test_the_offset_of_a_send_that_timed_out_within_a_transaction_is_no_promise(answer: str, verdict: str) -> None:
    judgement = judge_history(history(TIMED_OUT_IN_A_TRANSACTION.format(answer)))
    assert (judgement.verdict, judgement.anomalies["inconsistent-offsets"]) == (verdict, 1), judgement.to_json()


SENT = "0 send t-0:1@0\n0 send t-0:2@1\n0 send t-0:3@2\n2 poll t-0:1@0 t-0:2@1 t-0:3@2\n1 assign t-0 group=g\n"


@pytest.mark.parametrize(
    ("outcome", "last", "verdict"),
    [
        ("info", "t-0:3@2", "valid"),  # it was committed
        ("info", "t-0:2@1", "valid"),  # it was aborted
        ("info", "t-0:1@0", "invalid"),
        ("fail", "t-0:3@2", "invalid"),
    ],
)
def test_a_consumer_reads_on_before_or_behind_what_an_unknown_transaction_polled(
    outcome: str, last: str, verdict: str
) -> None:
    text = f"{SENT}1 poll t-0:1@0\n1 txn poll t-0:2@1 send u-0:9 {outcome}\n1 poll {last}"
    judgement = judge_history(history(text))
    assert judgement.verdict == verdict, judgement.to_json()


@pytest.mark.parametrize(("is_known", "verdict"), [(False, "unknown"), (True, "invalid")])
def test_a_poll_without_an_answer_may_have_given_any_records(tmp_path, is_known: bool, verdict: str) -> None:
    """Nothing else was given the record at offset 1; the group commits beyond it."""
    with Recorder.open(tmp_path, process=1, run="r") as producer:
        for value in range(3):
            producer.ok(producer.invoke("send", [send("t-0", value)]), [send("t-0", value, offset=value)])
    with Recorder.open(tmp_path, process=2, run="r") as reader:
        reader.ok(reader.invoke("assign", keys=["t-0"], group="g"))
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(0, 0)]})])
        reader.info(reader.invoke("poll", [poll()]), [poll({})] if is_known else (), error="interrupted")
        reader.ok(reader.invoke("poll", [poll()]), [poll({"t-0": [(2, 2)]})])
        place = [commit("g", {"t-0": 3})]
        reader.ok(reader.invoke("commit", place), place)
    (judgement,) = check([tmp_path])
    assert judgement.verdict == verdict, judgement.to_json()
