"""Clocks that step back, coordinators that were deposed, and what a watch has forgotten: none of them accuses a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from linearizability.history.contract import Contract
from linearizability.history.facts import FactsBuilder, Flag
from linearizability.history.notation import history, parse
from linearizability.history.operations import list_offsets, poll, replica, send
from linearizability.history.recorder import Recorder
from linearizability.history.streams import FileSummary, History, unify
from linearizability.pipeline.engine import check, judge_history
from linearizability.pipeline.verdict import Judgement
from linearizability.pipeline.watch import WatchedFile


class Process:
    """One client; each of its operations begins at the given time of its clock, and lasts 5 ns."""

    def __init__(self, folder: Path, process: int, contract: Contract) -> None:
        self.now = 0
        self.recorder = Recorder.open(folder, process=process, run="r", contract=contract, clock=lambda: self.now)

    def sends(self, time: int, value: int, offset: int) -> None:
        self._acts(time, "send", send("t-0", value), send("t-0", value, offset=offset))

    def polls(self, time: int, *records: tuple[int, int]) -> None:
        self._acts(time, "poll", poll(), poll({"t-0": records}))

    def asks_for_the_start(self, time: int, start: int) -> None:
        self._acts(time, "list_offsets", list_offsets("t-0"), list_offsets("t-0", start, 4))

    def digests(self, time: int, node: int, *values: int) -> None:
        records = [(offset, value, 0) for offset, value in enumerate(values)]
        self._acts(time, "replica", None, replica("t-0", node, records, len(values)))

    def _acts(self, time: int, f: str, asked: dict | None, done: dict) -> None:
        self.now = time
        operation = self.recorder.invoke(f, [asked] if asked else [])
        self.now = time + 5
        self.recorder.ok(operation, [done])

    def ends(self) -> None:
        self.recorder.close()


def judged(folder: Path, *processes: Process) -> Judgement:
    for process in processes:
        process.ends()
    (judgement,) = check([folder])
    return judgement


@pytest.mark.parametrize(("second_poll", "verdict"), [(110, "invalid"), (50, "unknown")])
def test_a_poll_by_a_clock_that_stepped_back_may_have_passed_over_what_had_expired(
    tmp_path: Path, second_poll: int, verdict: str
) -> None:
    """It may have been long after the last report of the log's start."""
    contract = Contract(cleanup="delete")
    producer, consumer, asker, other = (Process(tmp_path, number, contract) for number in range(4))
    for value in range(3):
        producer.sends(10 + 10 * value, value, value)
    consumer.polls(100, (0, 0))
    consumer.polls(second_poll, (2, 2))
    asker.asks_for_the_start(120, 1)
    asker.asks_for_the_start(1200, 1)
    other.polls(1300, (1, 1), (2, 2))
    judgement = judged(tmp_path, producer, consumer, asker, other)
    assert judgement.verdict == verdict, judgement.to_json()


@pytest.mark.parametrize(("again", "verdict"), [(900, "invalid"), (80, "unknown")])
def test_an_excuse_covers_any_time_of_a_clock_that_stepped_back(tmp_path: Path, again: int, verdict: str) -> None:
    """The record at offset 1 is lost to the power, and another one is given its place; by the clock that was long after."""
    producer, consumer, nemesis, other = (Process(tmp_path, number, Contract()) for number in range(4))
    producer.sends(10, 0, 0)
    producer.sends(850, 9, 1)
    producer.sends(again, 1, 1)
    consumer.polls(1000, (0, 0))
    nemesis.now = 30
    nemesis.recorder.mark("excuse", number=1, cause="power-loss", keys=["t-0"], nodes=[1, 2])
    nemesis.now = 50
    nemesis.recorder.mark("excuse-over", number=1)
    other.polls(2000, (0, 0), (1, 1))
    judgement = judged(tmp_path, producer, consumer, nemesis, other)
    assert judgement.verdict == verdict and "inconsistent-offsets" in judgement.anomalies, judgement.to_json()


@pytest.mark.parametrize(
    ("apart", "second", "anomalies"),
    [
        (False, 510, {}),
        (False, 400, {}),
        (True, 510, {}),
        (True, 400, {"replica-divergence": 1}),
    ],
)
def test_the_last_digest_of_a_replica_is_that_of_the_last_operation(
    tmp_path: Path, apart: bool, second: int, anomalies: dict[str, int]
) -> None:
    """Digests by several processes, of which a clock stepped back, leave it unknown."""
    producer, consumer, first, another = (Process(tmp_path, number, Contract()) for number in range(4))
    producer.sends(10, 0, 0)
    producer.sends(20, 1, 1)
    consumer.polls(100, (0, 0), (1, 1))
    consumer.polls(90 if apart else 110)
    later = another if apart and second > 500 else first
    (another if apart and second < 500 else first).digests(500, 1, 0, 7)
    later.digests(second, 1, 0, 1)
    first.digests(second + 10, 2, 0, 1)
    judgement = judged(tmp_path, producer, consumer, first, another)
    assert judgement.anomalies == anomalies, judgement.to_json()
    assert judgement.verdict == ("unknown" if apart or second < 500 else "valid"), judgement.to_json()


@pytest.mark.parametrize(
    ("fault", "joined", "verdict"),
    [
        ("! [0 -] fault name=cut", "", "unknown"),
        ("", "", "invalid"),
        ("! [0 -] fault name=cut", "1 [15 16] assign t-0 group=g generation=3 member=a", "invalid"),
    ],
)
def test_a_member_that_joins_a_former_coordinator_again_is_answered_what_that_knew(
    fault: str, joined: str, verdict: str
) -> None:
    """GroupCoordinator answers a follower that joins in the state Stable at once, with the generation that it knows, and no
    write; another coordinator has gone on with the others. In a generation that is newer than all commits that cannot be."""
    text = f"""
        {fault}
        0 [0 1] send t-0:0@0
        0 [2 3] send t-0:1@1
        1 [4 5] assign t-0 group=g generation=1 member=a
        3 [5 6] poll t-0:0@0 t-0:1@1
        1 [6 7] commit g t-0@1 generation=1 member=a
        2 [8 9] assign t-0 group=g generation=2 member=b
        2 [12 13] commit g t-0@2 generation=2 member=b
        {joined}
        1 [20 21] committed g t-0@1
    """
    lines = "\n".join(line for line in text.splitlines() if line.strip())
    assert judge_history(history(lines)).verdict == verdict


def test_a_watch_remembers_that_it_is_not_known_where_a_consumer_reads_on() -> None:
    """A poll whose records are unknown was over long before. It may have returned the records below the offset read next."""
    events = parse("1 subscribe t-0 group=g\n1 poll info\n1 [1000 1010] poll t-0:2@2")
    for number, event in enumerate(events):
        event["operation"] = number // 2
        if event["type"] == "info":
            event["mops"] = []
    summary = FileSummary("f", "r", 1)
    file = WatchedFile("f", summary)
    for event in events:
        file.take(event, summary)
    file.forget(500)
    builder, watched = FactsBuilder("r"), History("r")
    file.derive(builder, watched, 2000)
    flags = unify([builder.take()]).column("flags").to_pylist()
    assert any(flag & Flag.SOUGHT for flag in flags), flags


def test_a_consumer_whose_poll_has_no_end_may_read_on_anywhere(tmp_path: Path) -> None:
    """The poll may have given it the record between: its answer was lost, and the consumer went on."""
    producer, consumer, other = (Process(tmp_path, number, Contract()) for number in range(3))
    for value in range(3):
        producer.sends(10 + 10 * value, value, value)
    consumer.polls(100, (0, 0))
    consumer.recorder.invoke("poll", [poll()])
    consumer.polls(200, (2, 2))
    other.polls(300, (0, 0), (1, 1), (2, 2))
    judgement = judged(tmp_path, producer, consumer, other)
    assert judgement.verdict == "valid", judgement.to_json()
