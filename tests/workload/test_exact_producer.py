"""An exact producer records the outcomes that are proven, no more and no less."""

import json
from collections.abc import Iterator

import pytest

from linearizability.history.contract import Contract
from linearizability.workload import exact_producer
from linearizability.workload.client_run import ClientRun, ClientTask
from linearizability.workload.exact_producer import PartitionSender, Session, SessionLost
from linearizability.workload.profile import Producing
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import ProducerEpoch, ProducerId

NO_ANSWER = None


@pytest.fixture
def sender(tmp_path, monkeypatch):
    """Makes a partition's sender whose attempts have the given results."""
    monkeypatch.setattr(exact_producer, "PAUSE_S", 0.001)
    monkeypatch.setattr(exact_producer, "LAST_TRIES_S", 0.05)

    def make(idempotence: bool, *results: tuple[int | None, int]) -> PartitionSender:
        does = Producing(idempotence=idempotence, rate_per_s=1000)
        task = ClientTask(
            run="test",
            number=1,
            bootstrap="127.0.0.1:9",
            topic="t",
            partitions=1,
            seed=1,
            history=tmp_path,
            contract=Contract(),
            does=does,
        )
        sender = PartitionSender(ClientRun(task), 0)
        script: Iterator[tuple[int | None, int]] = iter(results)
        sent: list[tuple[Session, list[int]]] = []

        def attempt(values):
            sent.append((Session(**vars(sender.session)), list(values)))
            result = next(script, None)
            if result is None:
                sender.client_run.stopping.set()
                return NO_ANSWER, -1
            return result

        monkeypatch.setattr(sender, "_attempt", attempt)
        sender.sent = sent  # type: ignore[attr-defined]
        return sender

    return make


def outcomes(tmp_path, process: int = 1000) -> list[tuple[str, int | None, str | None]]:
    """Of each completion: type, offset, error."""
    lines = (tmp_path / f"history-{process:05d}.jsonl").read_text().splitlines()
    return [
        (e["type"], e.get("mops", [{}])[0].get("offset"), e.get("error"))
        for e in map(json.loads, lines)
        if e["type"] in ("ok", "fail", "info")
    ]


def send_batches(sender: PartitionSender, count: int = 1, size: int = 2) -> None:
    with sender.client_run.recorder() as recorder:
        for number in range(count):
            sender._send(recorder, range(number * size, (number + 1) * size))


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ((ErrorCode.NONE, 7), [("ok", 7, None), ("ok", 8, None)]),
        ((ErrorCode.NOT_ENOUGH_REPLICAS, -1), [("fail", None, "NOT_ENOUGH_REPLICAS")] * 2),
        ((ErrorCode.MESSAGE_TOO_LARGE, -1), [("fail", None, "MESSAGE_TOO_LARGE")] * 2),
        ((ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1), [("info", None, "NOT_ENOUGH_REPLICAS_AFTER_APPEND")] * 2),
        ((ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), [("info", None, "NOT_LEADER_OR_FOLLOWER")] * 2),
        ((ErrorCode.REQUEST_TIMED_OUT, -1), [("info", None, "REQUEST_TIMED_OUT")] * 2),
        ((1234, -1), [("info", None, "error 1234")] * 2),
        ((NO_ANSWER, -1), [("info", None, "NO_ANSWER")] * 2),
    ],
)
def test_one_attempt_without_idempotence(sender, tmp_path, answer, outcome):
    send_batches(sender(False, answer))
    assert outcomes(tmp_path) == outcome


def test_an_idempotent_batch_is_sent_again_under_the_same_numbers(sender, tmp_path):
    one = sender(
        True, (NO_ANSWER, -1), (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (ErrorCode.NONE, 3), (ErrorCode.NONE, 5)
    )
    one.session = Session(ProducerId(9), ProducerEpoch(0), sequence=0)
    send_batches(one, count=2)
    assert outcomes(tmp_path) == [("ok", 3, None), ("ok", 4, None), ("ok", 5, None), ("ok", 6, None)]
    assert [(session.sequence, len(values)) for session, values in one.sent] == [(0, 2), (0, 2), (0, 2), (2, 2)]
    assert one.sent[0] == one.sent[1] == one.sent[2]


def test_a_duplicate_was_appended_before_at_an_unknown_offset(sender, tmp_path):
    send_batches(sender(True, (NO_ANSWER, -1), (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 99)))
    assert outcomes(tmp_path) == [("ok", None, None)] * 2


def test_a_refusal_after_an_attempt_without_an_answer_proves_nothing(sender, tmp_path):
    one = sender(True, (NO_ANSWER, -1), (ErrorCode.NOT_ENOUGH_REPLICAS, -1))
    send_batches(one)
    assert outcomes(tmp_path) == [("info", None, "NO_ANSWER")] * 2
    assert one.client_run.stopping.is_set()


def test_a_lost_session_ends_the_incarnation_and_leaves_the_batch_uncertain(sender, tmp_path):
    one = sender(True, (NO_ANSWER, -1), (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1))
    with pytest.raises(SessionLost, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        send_batches(one)
    assert outcomes(tmp_path) == [("info", None, "NO_ANSWER")] * 2


def test_after_a_lost_session_another_process_number_goes_on(sender, tmp_path, monkeypatch):
    one = sender(True, (ErrorCode.UNKNOWN_PRODUCER_ID, -1), (ErrorCode.NONE, 0))
    monkeypatch.setattr(one, "_new_session", lambda: Session(ProducerId(9), ProducerEpoch(0), sequence=0))
    monkeypatch.setattr(one, "_find_leader", lambda: object())
    one.run()
    assert one.broken is None
    first, second = outcomes(tmp_path, 1000), outcomes(tmp_path, 1001)
    assert {kind for kind, _, _ in first} == {"fail"}
    assert second[0][:2] == ("ok", 0)
    values = [values[0] for _, values in one.sent]
    assert values[0] >> 32 == 1000 and values[1] >> 32 == 1001


def test_an_error_of_a_sender_is_not_hidden(sender, monkeypatch):
    one = sender(True)
    monkeypatch.setattr(one, "_produce", lambda recorder: 1 / 0)
    one.run()
    assert isinstance(one.broken, ZeroDivisionError)


def test_channels_that_all_broke_at_once_break_the_client(sender, monkeypatch):
    """A disk that is full ends all of them in one moment, before the test looks."""
    monkeypatch.setattr(PartitionSender, "run", lambda self: setattr(self, "broken", OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        exact_producer.run(sender(False).client_run)
