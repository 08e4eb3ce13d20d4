"""Bad history files: never a wrong "valid"; the reason names the file and the line."""

from __future__ import annotations

import gzip
import json
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linearizability.history.contract import Contract
from linearizability.history.facts import MAX_OFFSET
from linearizability.history.operations import drain, poll, send
from linearizability.history.reader import read_histories
from linearizability.history.recorder import Recorder
from linearizability.history.streams import History
from linearizability.pipeline.engine import check
from tests.history.judged_histories import SENT, Clock, judge, judged_neutral, neutral, polled, record


def test_the_good_run_is_valid(tmp_path: Path) -> None:
    record(tmp_path)
    judgement = judge(tmp_path)
    assert (judgement.verdict, judgement.anomalies, judgement.facts) == ("valid", {}, 21)


Damage = Callable[[list[str]], list[str]]
DAMAGES: dict[str, tuple[Damage, str]] = {
    "torn last line": (lambda lines: [*lines[:-1], lines[-1][:9]], "torn"),
    "torn line in the middle": (lambda lines: [*lines[:5], lines[5][:30] + "\n", *lines[6:]], ":6:"),
    "cut between lines": (lambda lines: lines[:7], "closing line"),
    "doubled line": (lambda lines: [*lines[:4], lines[3], *lines[4:]], "missing or doubled"),
    "two lines swapped": (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], "missing or doubled"),
    "lost line": (lambda lines: [*lines[:3], *lines[4:]], ":4:"),
    "header only": (lambda lines: lines[:1], "closing line"),
    "no header": (lambda lines: lines[1:], "not the header"),
    "empty": (lambda lines: [], "empty"),
    "binary": (lambda lines: ["\x00\x01\x02\n", *lines], ":1:"),
    "lines after the end": (lambda lines: [*lines, lines[2]], "follow the end"),
    "foreign line": (lambda lines: [*lines[:2], '{"hello": "world"}\n', *lines[2:]], ":3:"),
    "another tool's type": (lambda lines: [line.replace('"invoke"', '"call"') for line in lines], "no type"),
    "absurd offset": (lambda lines: [line.replace('"offset":3', '"offset":1e99') for line in lines], "no offset"),
    "other value acknowledged": (
        lambda lines: [line.replace('"value":3,"offset"', '"value":77,"offset"') for line in lines],
        "other sends",
    ),
}


OF_SENDS = ("absurd offset", "other value acknowledged")
"""Damages that only a producer's file can have."""


@pytest.mark.parametrize(
    ("damage", "process"), [(name, p) for name in DAMAGES for p in (0, 1) if p == 0 or name not in OF_SENDS]
)
def test_damaged_file(tmp_path: Path, damage: str, process: int) -> None:
    path = record(tmp_path)[process]
    lines = path.read_text().splitlines(keepends=True)
    damaging, text = DAMAGES[damage]
    damaged = damaging(lines)
    assert damaged != lines
    path.write_text("".join(damaged))
    judgement = judge(tmp_path)
    assert judgement.verdict == "unknown", judgement.to_json()
    assert any(str(path) in reason and text in reason for reason in judgement.reasons), judgement.reasons


def test_what_is_there_condemns_though_something_is_missing(tmp_path: Path) -> None:
    """Two values at one offset stay wrong, whatever the torn rest held."""
    _, consumer = record(tmp_path)
    lines = consumer.read_text().replace("[[0,0],[1,1]]", "[[0,0],[1,1],[1,2]]").splitlines(keepends=True)
    consumer.write_text("".join(lines[:-1]))
    assert judge(tmp_path).verdict == "invalid"


def test_what_is_missing_is_no_anomaly(tmp_path: Path) -> None:
    """Without the producer's tail its records look like phantoms: that proves nothing."""
    producer, _ = record(tmp_path)
    producer.write_text("".join(producer.read_text().splitlines(keepends=True)[:9]))
    judgement = judge(tmp_path)
    assert judgement.anomalies["phantom-read"] > 0 and judgement.verdict == "unknown"


def test_a_clock_that_steps_back(tmp_path: Path) -> None:
    """The rules that compare times accuse no broker. The order of one process's sends needs no clock."""
    clock = Clock()
    with Recorder.open(tmp_path, run="r", clock=clock) as recorder:
        for value in range(4):
            operation = recorder.invoke("send", [send("t-0", value)])
            recorder.ok(operation, [send("t-0", value, offset=3 - value)])
            if value == 1:
                clock.now -= 500_000_000
        recorder.ok(recorder.invoke("poll"), [poll({"t-0": [(offset, 3 - offset) for offset in range(4)]})])
    judgement = judge(tmp_path)
    assert any("steps back" in reason for reason in judgement.reasons)
    doubted = {reason.split()[2] for reason in judgement.reasons if reason.endswith("the clock cannot be trusted")}
    assert doubted == {"future-read:", "nonlinearizable:", "realtime-order:"}
    assert judgement.verdict == "invalid" and judgement.anomalies["nonmonotonic-send"] == 3


def test_a_clock_that_steps_back_within_an_operation(tmp_path: Path) -> None:
    """An operation that ends before it began stops no rule, and accuses no broker."""
    clock = Clock()
    paths = record(tmp_path, clock)
    with Recorder.open(tmp_path, process=3, run="r", clock=clock) as late:
        for value in range(100, 104):
            operation = late.invoke("send", [send("t-0", value), send("t-1", value)])
            clock.now -= 50_000
            late.ok(operation, [send("t-0", value, offset=value - 90), send("t-1", value, offset=value - 100)])
    judgement = judge(tmp_path)
    assert len(paths) == 2 and judgement.verdict == "unknown", judgement.to_json()
    assert any("history-00003.jsonl:3: the clock steps back" in reason for reason in judgement.reasons)


def test_processes_that_never_answer_leave_the_verdict_to_the_others(tmp_path: Path) -> None:
    clock = Clock()
    record(tmp_path, clock)
    with Recorder.open(tmp_path, process=3, run="r", clock=clock) as silent:
        silent.invoke("send", [send("t-0", 100)])
        silent.invoke("poll", [poll()])
    judgement = judge(tmp_path)
    assert judgement.verdict == "valid" and judgement.facts == 22


def test_two_files_of_one_process(tmp_path: Path) -> None:
    producer, _ = record(tmp_path)
    (tmp_path / "history-00009.jsonl").write_text(producer.read_text())
    judgement = judge(tmp_path)
    assert any("process 1 is already in" in reason for reason in judgement.reasons)
    assert judgement.verdict == "unknown"


def test_files_of_different_clusters(tmp_path: Path) -> None:
    clock = Clock()
    record(tmp_path, clock)
    Recorder.open(tmp_path, process=3, run="r", contract=Contract(unclean_election=True), clock=clock).close()
    judgement = judge(tmp_path)
    assert judgement.verdict == "unknown" and any("unclean_election" in reason for reason in judgement.reasons)


def test_a_value_that_is_sent_twice(tmp_path: Path) -> None:
    clock = Clock()
    record(tmp_path, clock)
    with Recorder.open(tmp_path, process=3, run="r", clock=clock) as again:
        again.ok(again.invoke("send", [send("t-0", 3)]), [send("t-0", 3, offset=10)])
    judgement = judge(tmp_path)
    assert judgement.anomalies["repeated-value"] == 1 and judgement.verdict != "valid"


LIES = {
    "one offset for two records": (0, [(0, 1), (1, 2)], (3, 3), "invalid", "offset-reuse"),
    "another offset than the log has": (7, [(0, 1), (1, 2)], (3, 3), "invalid", "duplicate"),
    "an offset beyond all logs": (MAX_OFFSET, [(0, 1), (1, 2)], (3, 3), "invalid", "duplicate"),
    "a record at two offsets": (1, [(0, 1), (1, 2), (2, 2)], (3, 3), "invalid", "duplicate"),
    "a log end below what was acknowledged": (1, [(0, 1)], (1, 1), "invalid", "lost-write"),
    "a log end above the log": (1, [(0, 1), (1, 2)], (9, 3), "unknown", "not-delivered"),
    "a record that is not there": (1, [(0, 1), (1, 2), (9, 77)], (10, 10), "invalid", "phantom-read"),
}
"""The offset acknowledged for record 2, what was read, the final read's log end and position; verdict, and the rule why."""


@pytest.mark.parametrize("lie", LIES)
def test_a_broker_that_lies_about_offsets(tmp_path: Path, lie: str) -> None:
    offset, read, (end, position), verdict, rule = LIES[lie]
    with Recorder.open(tmp_path, run="r", clock=Clock()) as recorder:
        for value, reported in ((1, 0), (2, offset)):
            recorder.ok(recorder.invoke("send", [send("t-0", value)]), [send("t-0", value, offset=reported)])
        final = recorder.invoke("drain")
        recorder.ok(recorder.invoke("poll", [poll()]), [poll({"t-0": read})])
        recorder.ok(final, [drain("t-0", start=0, end=end, position=position)])
    judgement = judge(tmp_path)
    assert judgement.verdict == verdict and rule in judgement.anomalies, judgement.to_json()
    assert offset < MAX_OFFSET or "nonlinearizable" not in judgement.anomalies


@pytest.mark.parametrize(
    ("contents", "reason"),
    [(b"", "empty"), (b"hello\n", "any form"), (b'{"a": 1}\n', "any form"), (b"\x1f\x8bnot gzip", "cannot be read")],
)
def test_foreign_files(tmp_path: Path, contents: bytes, reason: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(contents)
    (judgement,) = check([path])
    assert judgement.verdict == "unknown" and reason in judgement.reasons[0] and str(path) in judgement.reasons[0]


def test_an_empty_folder(tmp_path: Path) -> None:
    assert judge(tmp_path).verdict == "unknown"


OF_EVERYTHING = [
    *SENT,
    {"process": "nemesis", "f": "fault", "type": "mark", "time": 5, "name": "kill", "node": 1},
    *({"process": 2, "type": kind, "f": "begin", "time": 6, "txn": "a", "producer": "p", "epoch": 1} for kind in ("invoke", "ok")),
    *({"process": 1, "type": kind, "f": "subscribe", "time": 7, "keys": ["t-0"], "group": "g", "generation": 1} for kind in ("invoke", "ok")),
    *polled(8, 0, 1),
    *(
        {"process": 1, "type": kind, "f": f, "time": 10, "mops": [{"op": f, "key": "t-0", "group": "g", **more}]}
        for f, more in (
            ("commit", {"offsets": {"t-0": 1}, "generation": 1, "member": "m"}),
            ("committed", {"offsets": {"t-0": 1}}),
            ("list_offsets", {"start": 0, "end": 2}),
            ("drain", {"start": 0, "end": 2, "position": 2}),
            ("state", {"node": 1, "high_watermark": 2, "epoch": 1}),
            ("replica", {"node": 1, "high_watermark": 2, "records": [[0, 1, 1], [1, 2, 1]]}),
        )
        for kind in ("invoke", "ok")
    ),
    *({"process": 3, "type": kind, "f": "cas", "time": 11, "key": "x", "value": [1, 2]} for kind in ("invoke", "info")),
    {"process": 2, "type": "invoke", "f": "send", "time": 12, "txn": "a", "mops": [send("t-0", 3, acks="all")]},
]  # fmt: skip
"""Each kind of operation once; the last one never ends."""

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.sampled_from([-1, 0, 1, 2**31, 2**35, 2**62, 2**70]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["op", "key", "a"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


def places(value: object, *path: object) -> list[tuple[object, ...]]:
    """The path of each part of a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, item in inner for place in places(item, *path, name))]


def put(value: object, path: tuple[object, ...], new: object) -> object:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)  # type: ignore[call-overload]
    copy[path[0]] = put(copy[path[0]], path[1:], new)  # type: ignore[index]
    return copy


@pytest.mark.parametrize("form", ["neutral", "native"])
@given(data=st.data())
def test_anything_in_any_place_gives_a_verdict(form: str, data: st.DataObject) -> None:
    numbered = [
        event | {"operation": n // 2 if n < 4 else (n - 1) // 2, "n": n + 1} for n, event in enumerate(OF_EVERYTHING)
    ]
    marked = [{k: v for k, v in event.items() if event["f"] != "fault" or k != "operation"} for event in numbered]
    header = {"type": "header", "format": "tidegauge-history/1", "run": "r", "process": 0, "contract": {}}
    lines = [header, *marked, {"type": "end", "n": len(marked) + 1}]
    document: object = lines if form == "native" else {"id": "x", "history": OF_EVERYTHING, "options": {"contract": {}}}
    chosen = put(document, data.draw(st.sampled_from(places(document)[1:])), data.draw(ANYTHING))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history-00000.jsonl"
        documents = chosen if form == "native" else [chosen]
        path.write_text("".join(json.dumps(line) + "\n" for line in documents))  # type: ignore[union-attr]
        judgements = list(check([path], form, "local"))
    assert judgements and all(judgement.verdict in ("valid", "invalid", "unknown") for judgement in judgements)


def test_a_step_of_a_transaction_that_cannot_begin_is_reported_once(tmp_path: Path) -> None:
    steps = [
        at
        for at, event in enumerate(OF_EVERYTHING)
        if event["type"] == "invoke" and "txn" in event and event.get("mops")
    ]
    assert steps
    for at in steps:
        document = put({"id": "x", "history": OF_EVERYTHING}, ("history", at, "mops", 0), None)
        (judgement,) = check([neutral(tmp_path / f"{at}.jsonl", document)], "neutral", "local")
        assert judgement.verdict == "unknown"
        assert sum(f"event {at}:" in reason for reason in judgement.reasons) == 1


def test_what_stands_behind_the_property(tmp_path: Path) -> None:
    """Unharmed, the history of everything is read to its end."""
    (history,) = read_histories([neutral(tmp_path / "n.jsonl.gz", {"id": "x", "history": OF_EVERYTHING})])
    assert isinstance(history, History) and not history.defects and history.tally.invocations == len(OF_EVERYTHING) // 2


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"f": "send", "mops": [{"op": "send", "value": 9}]}, "'key' is missing"),
        ({"f": "send", "mops": [send("t-0", 9, acks="2")]}, "acks='2'"),
        ({"f": "cas", "key": "x", "value": None}, "NoneType"),
        ({"f": "send", "mops": "abc"}, "str"),
    ],
)
def test_an_operation_that_never_ends_and_is_none(tmp_path: Path, event: dict[str, object], reason: str) -> None:
    """Its line is named; the good operations beside it are kept."""
    path = record(tmp_path)[0]
    lines = path.read_text().splitlines(keepends=True)
    line = {"type": "invoke", "n": 21, "time": 10**9, "process": 1, "operation": 10} | event
    path.write_text("".join([*lines[:-1], json.dumps(line) + "\n", lines[-1].replace('"n":21', '"n":22')]))
    judgement = judge(tmp_path)
    assert judgement.verdict == "unknown" and judgement.facts == 21, judgement.to_json()
    assert any(f"{path}:22: " in text and reason in text for text in judgement.reasons), judgement.reasons


@pytest.mark.parametrize("field", ["process", "operation", "epoch"])
def test_numbers_that_no_column_holds(tmp_path: Path, field: str) -> None:
    """The process of a neutral history is a name, and may be anything; operations and epochs are numbers of limited size."""
    for number in (1 << 40, 1 << 70, 1.5, "p"):
        sent = [event | {"process": 7, "operation": n // 2} | {field: number} for n, event in enumerate(SENT)]
        judgement = judged_neutral(tmp_path, [*sent, *polled(10, 0, 1)])
        if field == "process":
            assert (judgement.verdict, judgement.facts, judgement.reasons) == ("valid", 4, []), judgement.to_json()
        else:
            assert judgement.verdict == "unknown", judgement.to_json()
            assert any(f"{number!r} is no" in reason for reason in judgement.reasons)


def test_a_packed_file_that_is_damaged_in_the_middle(tmp_path: Path) -> None:
    path = record(tmp_path)[0]
    packed = bytearray(gzip.compress(path.read_bytes()))
    packed[12] ^= 0xFF
    with pytest.raises(zlib.error):
        gzip.decompress(packed)
    path.with_suffix(".jsonl.gz").write_bytes(packed)
    path.unlink()
    judgement = judge(tmp_path)
    assert judgement.verdict == "unknown" and any("cannot be read" in reason for reason in judgement.reasons)


def test_what_is_named_like_a_file_and_is_none(tmp_path: Path) -> None:
    record(tmp_path)
    (tmp_path / "history-00008.jsonl").mkdir()
    (tmp_path / "history-00009.jsonl").symlink_to(tmp_path / "nowhere")
    judgement = judge(tmp_path)
    assert judgement.verdict == "unknown"
    assert any("history-00008.jsonl" in reason for reason in judgement.reasons)
    assert any("history-00009.jsonl" in reason for reason in judgement.reasons)


def test_brackets_without_end(tmp_path: Path) -> None:
    (tmp_path / "deep").write_text("[" * 200_000 + "]" * 200_000 + "\n")
    (judgement,) = check([tmp_path / "deep"])
    assert judgement.verdict == "unknown" and str(tmp_path / "deep") in judgement.reasons[0]


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    """What it held, the final read above all, is unknown."""
    clock = Clock()
    files = record(tmp_path, clock)
    with Recorder.open(tmp_path, process=3, run="r", clock=clock) as last:
        last.ok(last.invoke("poll", [poll()]), [poll({"t-0": [(value, value) for value in range(10)]})])
    assert judge(tmp_path).verdict == "valid"
    gone = tmp_path / "history-00003.jsonl"
    (tmp_path / "history-00003.jsonl.gz").write_bytes(gzip.compress(gone.read_bytes()))
    gone.unlink()
    assert judge(tmp_path).verdict == "valid"
    (tmp_path / "history-00003.jsonl.gz").unlink()
    judgement = judge(tmp_path)
    assert judgement.verdict == "unknown" and any(str(gone) in reason for reason in judgement.reasons)
    (judgement,) = check(files[:1])
    assert any(str(files[1]) in reason for reason in judgement.reasons)


def test_the_list_of_files_is_gone_and_with_it_a_file(tmp_path: Path) -> None:
    """Without the list nothing shows that there was a consumer, which may have read anything."""
    record(tmp_path)
    (tmp_path / "files.txt").unlink()
    whole = judge(tmp_path)
    (tmp_path / "history-00002.jsonl").unlink()
    for judgement in (whole, judge(tmp_path)):
        assert judgement.verdict == "unknown"
        assert "files.txt: the list of all files of the run was recorded beside these" in judgement.reasons[0]


def test_files_of_a_recorder_that_keeps_no_list_need_none(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history-00001.jsonl", process=1, run="r", contract=Contract()) as recorder:
        operation = recorder.invoke("send", [send("t-0", 0)])
        recorder.ok(operation, [send("t-0", 0, offset=0)])
        final = recorder.invoke("drain")
        operation = recorder.invoke("poll", [poll()])
        recorder.ok(operation, [poll({"t-0": [(0, 0)]})])
        recorder.ok(final, [drain("t-0", start=0, end=1, position=1)])
    assert judge(tmp_path).verdict == "valid"
