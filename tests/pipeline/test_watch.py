"""`tidegauge history watch`: a history that grows is judged in a window, and what shows there is reported once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tidegauge
from linearizability.history.contract import Contract
from linearizability.history.excuses import EXCUSE, OVER
from linearizability.history.growing import GrowingFolder
from linearizability.history.operations import poll, send
from linearizability.history.recorder import FORMAT, Recorder
from linearizability.history.topic import HistoryTopic, publish
from linearizability.pipeline.watch import NS_A_S, Watch, is_watched
from linearizability.rules import RULES
from linearizability.simulation.history_recorder import ClientHistory
from linearizability.testing import reference_broker
from tests.history.judged_histories import Clock
from tests.rules.sound_log import Defect, Play


def run(arguments: list[str], capsys) -> tuple[int, list[str], str]:
    with pytest.raises(SystemExit) as ended:
        tidegauge.main(arguments)
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out.splitlines(), said.err


def looked(watch: Watch, source: GrowingFolder) -> list[str]:
    for name, line in source.lines():
        watch.feed(name, line)
    return [anomaly.rule for anomaly in watch.look()]


def test_an_anomaly_is_reported_once_and_what_is_over_is_forgotten(tmp_path: Path) -> None:
    clock, watch, source = Clock(), Watch(60 * NS_A_S), GrowingFolder(tmp_path)
    with Recorder.open(tmp_path, process=1, contract=Contract(), run="r", clock=clock) as recorder:
        assert looked(watch, source) == []
        for number in range(50):
            clock.now += NS_A_S
            recorder.ok(recorder.invoke("send", [send("t-0", number)]), [send("t-0", number, offset=number)])
        recorder.ok(recorder.invoke("poll", [poll()]), [poll({"t-0": [(49, 49)]})])
        assert looked(watch, source) == []
        recorder.ok(recorder.invoke("poll", [poll()]), [poll({"t-0": [(48, 9999)]})])
        assert looked(watch, source) == []  # what excuses it may be read later
        assert "inconsistent-offsets" in looked(watch, source)
        assert looked(watch, source) == []
        held = watch.held
        for number in range(50, 300):
            clock.now += NS_A_S
            recorder.ok(recorder.invoke("send", [send("t-0", number)]), [send("t-0", number, offset=number)])
            assert looked(watch, source) == []
        assert watch.held <= held + 100 and not watch.ended
    assert looked(watch, source) == [] and watch.ended


def test_what_says_where_a_consumer_reads_on_is_not_forgotten(tmp_path: Path) -> None:
    """It subscribed long ago, and reads a record again: its group may have rebalanced."""
    clock, watch, source = Clock(), Watch(60 * NS_A_S), GrowingFolder(tmp_path)
    with (
        Recorder.open(tmp_path, process=1, run="r", clock=clock) as producer,
        Recorder.open(tmp_path, process=2, run="r", clock=clock) as member,
    ):
        member.ok(member.invoke("subscribe", keys=["t-0"], group="g"))
        for number in range(20):
            clock.now += 10 * NS_A_S
            producer.ok(producer.invoke("send", [send("t-0", number)]), [send("t-0", number, offset=number)])
            again = [(number - 1, number - 1)] if number == 15 else []
            member.ok(member.invoke("poll", [poll()]), [poll({"t-0": [*again, (number, number)]})])
            assert looked(watch, source) == []
        assert watch.held < 40
    assert looked(watch, source) == []


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    Play(0).histories[0].write(tmp_path, "r")
    (path,) = tmp_path.glob("*.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    source = GrowingFolder(tmp_path)
    first = [line for _, line in source.lines()]
    path.write_bytes(whole)
    assert b"".join([*first, *(line for _, line in source.lines())]) == whole


def reported(histories: Sequence[ClientHistory]) -> list[str]:
    """All that a watch of a third of the time reports when it looks ten times."""
    lines: list[tuple[int, str, bytes]] = []
    for each in histories:
        header = {"type": "header", "format": FORMAT, "run": "r", "process": each.process}
        header["contract"] = each.contract.model_dump()
        lines += [
            (event.get("time", 0), str(each.process), json.dumps(event).encode()) for event in (header, *each.events)
        ]
    lines.sort(key=lambda line: line[0])
    latest = lines[-1][0]
    watch, found = Watch(latest // 3), []
    for look in range(1, 11):
        while lines and lines[0][0] <= look * latest / 10:
            _, name, line = lines.pop(0)
            watch.feed(name, line)
        found += [anomaly.rule for anomaly in watch.look()]
    assert not watch.defects
    return found


def test_sound_histories_are_not_accused_and_broken_ones_are() -> None:
    for seed in range(40):
        assert reported(Play(seed).histories) == [], seed
    broken = [play for seed in range(20) if (play := Play(seed, Defect.OTHER)).is_broken]
    assert sum(bool(reported(play.histories)) for play in broken) > 2


def lines_of(process: int, *events: dict[str, Any]) -> list[bytes]:
    header = {"type": "header", "format": FORMAT, "run": "r", "process": process, "contract": Contract().model_dump()}
    return [json.dumps(each).encode() for each in (header, *events)]


def done(process: int, number: int, f: str, begun: int, ended: int, mop: dict[str, Any]) -> list[dict[str, Any]]:
    """A whole operation."""
    common = {"process": process, "operation": number, "f": f}
    asked = {"op": f} if f == "poll" else {name: value for name, value in mop.items() if name != "offset"}
    return [
        common | {"type": "invoke", "time": begun, "mops": [asked]},
        common | {"type": "ok", "time": ended, "mops": [mop]},
    ]


def fed(watch: Watch, name: str, lines: list[bytes]) -> None:
    for line in lines:
        watch.feed(name, line)


TWO_RECORDS = [
    *done(1, 0, "send", 10, 20, send("t-0", 3, offset=0)),
    *done(1, 1, "poll", 40, 50, poll({"t-0": [(0, 4)]})),
]


@pytest.mark.parametrize("is_excused", [False, True])
def test_what_excuses_an_anomaly_may_be_read_later(is_excused: bool) -> None:
    """A loss of power at time 30 permits another record; its mark is in a file that is read after the client's."""
    watch = Watch(NS_A_S)
    fed(watch, "clients", lines_of(1, *TWO_RECORDS))
    assert watch.look() == []
    mark = {
        "type": "mark",
        "f": EXCUSE,
        "time": 5,
        "number": 1,
        "cause": "power-loss",
        "keys": ["t-0"],
        "nodes": [1, 2],
    }
    over = {"type": "mark", "f": OVER, "time": 45, "number": 1}
    fed(watch, "faults", lines_of(9, *([mark, over] if is_excused else [])))
    assert [anomaly.rule for anomaly in watch.look() if anomaly.rule == "inconsistent-offsets"] == (
        [] if is_excused else ["inconsistent-offsets"]
    )


def test_a_file_of_a_topic_that_is_behind_is_waited_for() -> None:
    watch = Watch(NS_A_S, in_order=False)
    fed(watch, "faults", lines_of(9, {"type": "mark", "f": "note", "time": 1}))
    fed(watch, "clients", lines_of(1, *TWO_RECORDS))
    assert [watch.look() for _ in range(3)] == [[]] * 3
    watch.feed("faults", b'{"type": "end"}')
    assert [anomaly.rule for anomaly in watch.look()]


@pytest.mark.parametrize("steps_back", [False, True])
def test_a_clock_that_steps_back_accuses_no_broker(steps_back: bool) -> None:
    """A record is read before it is sent."""
    watch = Watch(NS_A_S)
    fed(watch, "reader", lines_of(2, *done(2, 0, "poll", 10, 20, poll({"t-0": [(0, 3)]}))))
    marks = [{"type": "mark", "f": "note", "time": time} for time in ((28, 27) if steps_back else (27, 28))]
    fed(watch, "producer", lines_of(1, *marks, *done(1, 0, "send", 30, 40, send("t-0", 3, offset=0))))
    assert watch.look() == []
    assert ("future-read" in [anomaly.rule for anomaly in watch.look()]) == (not steps_back)


def test_what_rests_on_absence_is_not_watched() -> None:
    watched = {name for name, rule in RULES.items() if is_watched(rule)}
    assert "inconsistent-offsets" in watched
    assert not watched & {"lost-write", "unseen", "torn-transaction", "phantom-read", "committed-offset-regression"}


def test_the_command_ends_with_the_run(tmp_path: Path, capsys) -> None:
    for number, verdict, code in ((3, "unknown", 2), (4, "invalid", 1)):
        folder = tmp_path / str(number)
        with Recorder.open(folder, process=1, contract=Contract(), run="r") as recorder:
            recorder.ok(recorder.invoke("send", [send("t-0", 3)]), [send("t-0", 3, offset=0)])
            recorder.ok(recorder.invoke("poll", [poll()]), [poll({"t-0": [(0, number)]})])
        ended, lines, _ = run(["history", "watch", str(folder), "--json"], capsys)
        said = json.loads(lines[-1])
        assert (ended, said["verdict"], said["ended"]) == (code, verdict, True), lines
        assert run(["history", "watch", str(folder)], capsys)[1][-1].startswith(f"verdict: {verdict}: ")


def test_a_topic_is_watched(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "history"
    with Recorder.open(folder, process=1, contract=Contract(), run="r") as recorder:
        recorder.ok(recorder.invoke("send", [send("t-0", 3)]), [send("t-0", 3, offset=0)])
        recorder.ok(recorder.invoke("poll", [poll()]), [poll({"t-0": [(0, 4)]})])
    with reference_broker() as broker:
        topic = f"kafka:{broker.bootstrap}/histories"
        publish(folder, HistoryTopic.parse(topic))
        code, lines, _ = run(["history", "watch", topic, "--minutes", "0.02", "--json"], capsys)
    assert code == 1 and json.loads(lines[0])["rule"] == "inconsistent-offsets", lines
    assert json.loads(lines[-1])["defects"] == []


def test_bad_input_is_named(tmp_path: Path, capsys) -> None:
    assert run(["history", "watch", str(tmp_path / "none")], capsys)[0] == 64
    assert run(["history", "watch", "kafka:x"], capsys)[0] == 64
    (tmp_path / "history-1.jsonl").write_text('{"type": "end"}\n')
    code, lines, _ = run(["history", "watch", str(tmp_path)], capsys)
    assert code == 2 and "history-1.jsonl:1: not the header" in lines[0]
    for run_name in ("a", "b"):
        Play(0).histories[run_name == "b"].write(tmp_path, run_name)
    code, _, errors = run(["history", "watch", str(tmp_path)], capsys)
    assert code == 3 and "one run is watched" in errors
