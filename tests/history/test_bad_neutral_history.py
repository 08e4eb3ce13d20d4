"""Bad histories in the neutral form: never a wrong "valid"."""

from __future__ import annotations

from pathlib import Path

import pytest

from linearizability.history.operations import poll, send
from linearizability.history.reader import read_histories
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check, judge_history
from tests.history.judged_histories import SENT, judge, judged_neutral, neutral, polled, record


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([], "empty"),
        ([{"process": 0, "type": "ok", "f": "send", "time": 1}], "did not invoke"),
        ([{"process": 0, "type": "invoke", "f": "sned", "time": 1}], "no operation"),
        ([{"process": 0, "type": "invoke", "f": "send", "time": "noon"}], "nanoseconds"),
        ([{"process": 0, "type": "invoke", "f": "poll", "time": 1}] * 2, "last operation is open"),
        (["text"], "event 0"),
    ],
)
def test_neutral_nonsense(tmp_path: Path, history: list[object], reason: str) -> None:
    (judgement,) = check([neutral(tmp_path / "n.jsonl.gz", {"id": "x", "history": history})])
    assert judgement.verdict == "unknown" and any(reason in text for text in judgement.reasons), judgement.reasons


def test_a_neutral_file_that_is_cut(tmp_path: Path) -> None:
    path = neutral(tmp_path / "n.jsonl.gz", {"id": "x", "history": []}, {"id": "y", "history": []})
    path.write_bytes(path.read_bytes()[:-20])
    judgements = list(check([path]))
    assert judgements and all(judgement.verdict == "unknown" for judgement in judgements)


def test_sends_without_reads_and_reads_without_sends(tmp_path: Path) -> None:
    with Recorder.open(tmp_path / "a", run="a") as recorder:
        recorder.ok(recorder.invoke("send", [send("t-0", 1)]), [send("t-0", 1, offset=0)])
    with Recorder.open(tmp_path / "b", run="b") as recorder:
        recorder.ok(recorder.invoke("poll"), [poll({})])
    first, second = (judge_history(history) for history in read_histories([tmp_path / "a", tmp_path / "b"]))
    assert first.verdict == "unknown" and "no record was read" in first.reasons
    assert second.verdict == "unknown" and "no send was acknowledged" in second.reasons


def indexed(events: list[dict[str, object]]) -> list[dict[str, object]]:
    return [event | {"index": index} for index, event in enumerate(events)]


def test_neutral_events_that_are_missing_doubled_or_reordered(tmp_path: Path) -> None:
    """The index counts all of them."""
    whole = indexed([*SENT, *polled(10, 0), *polled(20, 1)])
    assert judged_neutral(tmp_path, whole).verdict == "valid"
    for damaged in (whole[:6] + whole[8:] + indexed(polled(30, 1))[:1], whole[2:], [*whole, *whole[6:]]):
        judgement = judged_neutral(tmp_path, damaged)
        assert judgement.verdict == "unknown", judgement.to_json()
        assert any("n.jsonl.gz:1: event" in text and "missing, doubled" in text for text in judgement.reasons)
    reordered = judged_neutral(tmp_path, [*whole[:4], *whole[6:], *whole[4:6]])
    assert reordered.verdict == "unknown" and "nonmonotonic-poll" not in reordered.anomalies


def test_without_an_index_a_process_whose_time_steps_back_is_read_no_further(tmp_path: Path) -> None:
    judgement = judged_neutral(tmp_path, [*SENT, *polled(20, 1), *polled(10, 0)])
    assert judgement.verdict == "unknown", judgement.to_json()
    assert any("event 6: the time of process 1 steps back" in reason for reason in judgement.reasons)


@pytest.mark.parametrize(("numbers", "verdict"), [((2, 3), "invalid"), ((8, 7), "unknown"), ((8, 8), "unknown")])
def test_a_process_numbers_its_operations_upwards(tmp_path: Path, numbers: tuple[int, int], verdict: str) -> None:
    """Their order is that of the numbers: a later read of a lower offset must not look like an earlier one."""
    sends = [event | {"operation": number} for event, number in zip(SENT, (0, 0, 1, 1), strict=True)]
    polls = [polled(10, 1), polled(20, 0)]
    reads = [event | {"operation": number} for events, number in zip(polls, numbers, strict=True) for event in events]
    judgement = judged_neutral(tmp_path, [*sends, *reads])
    assert judgement.verdict == verdict, judgement.to_json()
    assert verdict == "invalid" or any("the numbers must rise" in reason for reason in judgement.reasons)


def test_the_operations_of_a_file_are_numbered_upwards(tmp_path: Path) -> None:
    _, consumer = record(tmp_path)
    consumer.write_text(consumer.read_text().replace('"operation":3', '"operation":1'))
    judgement = judge(tmp_path)
    assert judgement.verdict == "unknown"
    assert any(f"{consumer}:7: " in reason and "the numbers must rise" in reason for reason in judgement.reasons)
