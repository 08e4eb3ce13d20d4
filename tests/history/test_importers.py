"""Histories of other tools: their events are imported, and foreign or damaged input is refused by file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from linearizability.history import paired
from linearizability.history.contract import Contract
from linearizability.history.edn import EdnError, Keyword, read, read_all, write
from linearizability.history.files import HistoryError
from linearizability.history.importers import IMPORTERS
from linearizability.history.importers.jepsen import event, operation
from linearizability.history.paired import derive_events
from linearizability.history.reader import read_histories
from linearizability.pipeline.engine import check, judge_history
from tests.rules.test_labelled import documents

JEPSEN = """{:type :invoke, :f :txn, :value [[:poll] [:send 3 10]], :process 0, :time 1, :index 0}
{:type :ok, :f :txn, :value [[:poll {3 [[0 9]]}] [:send 3 [1 10]]], :process 0, :time 2, :index 1}
{:type :invoke, :f :assign, :value [3], :process 1, :time 3, :index 2}
{:type :ok, :f :assign, :value [3], :process 1, :time 4, :index 3}
{:type :info, :f :start-partition, :value nil, :process :nemesis, :time 5, :index 4}
{:type :invoke, :f :poll, :value [[:poll]], :process 1, :time 6, :index 5}
{:type :ok, :f :poll, :value [[:poll {3 [[0 9] [1 10]]}]], :process 1, :time 7, :index 6, :rebalance-log [{:keys [3]}]}
"""


def test_edn() -> None:
    text = '#jepsen.history.Op{:a [1 -2N 3.5 nil true], "b" #{:x/y} ; comment\n :c \\a, [1 2] "\\"\\n" #_ gone :d sym}'
    assert read(text) == {
        "a": [1, -2, 3.5, None, True],
        "b": ["x/y"],
        "c": "a",
        (1, 2): '"\n',
        "d": "sym",
    }
    assert read_all("1 2\n[3]") == [1, 2, [3]]
    value = {Keyword("f"): Keyword("txn"), Keyword("value"): [[Keyword("send"), 1, [0, "x\n"]], None, False, 2.5]}
    assert read(write(value)) == value


@pytest.mark.parametrize("text", ["{:a}", "[1", "]", "{:a 1]", '"open', "[" * 200, "1 2"])
def test_what_is_not_edn(text: str) -> None:
    with pytest.raises(EdnError):
        read(text)


@pytest.mark.parametrize("whole", [False, True])
def test_jepsen(tmp_path: Path, whole: bool) -> None:
    path = tmp_path / "history.edn"
    path.write_text(f"[{JEPSEN}]" if whole else JEPSEN)
    (history,) = read_histories([path])
    assert not isinstance(history, HistoryError) and not history.defects
    assert history.tally.acknowledged == 1 and history.tally.observed == 3 and len(history.marks) == 1
    assert judge_history(history).anomalies == {"phantom-read": 1}  # no client sent 9


def test_every_labelled_history_survives_the_way_to_edn_and_back() -> None:
    for document in documents()[::10]:
        events = document["history"]
        again = [event(read(write(operation(e, e["index"])))) for e in events]
        ours, theirs = (derive_events("x", form) for form in (again, events))
        assert ours.facts.equals(theirs.facts) and not ours.defects


REGISTER_LOG = """INFO  jepsen.util - 0	:invoke	:write	3
INFO  jepsen.util - 0	:ok	:write	3
something else
INFO  jepsen.util - 1	:invoke	:read	nil
INFO  jepsen.util - 1	:ok	:read	{read}
INFO  jepsen.util - 2	:invoke	:cas	[3 4]
INFO  jepsen.util - 2	:info	:cas	:timed-out
INFO  jepsen.util - 3	:invoke	:read	nil
INFO  jepsen.util - 3	:ok	:read	4
"""


@pytest.mark.parametrize(("value", "verdict"), [("3", "valid"), ("nil", "invalid"), ("4", "invalid")])
def test_register_log(tmp_path: Path, value: str, verdict: str) -> None:
    path = tmp_path / "etcd.log"
    path.write_text(REGISTER_LOG.replace("{read}", value))
    (judgement,) = check([path])
    assert judgement.verdict == verdict, judgement.to_json()


@pytest.mark.parametrize(("value", "verdict"), [("1", "valid"), ("2", "invalid")])
def test_register_edn(tmp_path: Path, value: str, verdict: str) -> None:
    path = tmp_path / "r.edn"
    path.write_text(
        "[{:process 0, :type :invoke, :f :write, :value 1} {:process 0, :type :ok, :f :write, :value 1}\n"
        "{:process 1, :type :invoke, :f :read, :value nil}"
        f"{{:process 1, :type :ok, :f :read, :value {value}}}]"
    )
    (judgement,) = check([path])
    assert judgement.verdict == verdict, judgement.to_json()


KNOSSOS = """{:process 0, :type :invoke, :f :write, :value 1}
{:process 0, :type :ok, :f :write, :value 1} ; a comment that opens [ ( {
;; and a line of its own
{:process 1, :type :invoke, :f :read, :value nil}
{:process 1, :type :ok, :f :read, :value VALUE}
"""


@pytest.mark.parametrize(
    "shape",
    [
        "{0}", ";; Knossos [cas-register\n{0}", "[\n{0}]", "({0})", "; a list\n\n(\n{0}\n)",
        "{{:process :nemesis, :type :info, :f :start, :value nil}}\n{0}",
    ],
)  # fmt: skip
@pytest.mark.parametrize(("value", "verdict"), [("1", "valid"), ("2", "invalid")])
def test_knossos_files_with_lists_and_comments(tmp_path: Path, shape: str, value: str, verdict: str) -> None:
    path = tmp_path / "r.edn"
    path.write_text(shape.format(KNOSSOS.replace("VALUE", value)))
    (judgement,) = check([path])
    assert judgement.verdict == verdict, judgement.to_json()


STORE = """{:process 0, :type :invoke, :f :FIRST, :key "6", :value "x"}
{:process 0, :type :ok, :f :FIRST, :key "6", :value "x"}
{:process 1, :type :invoke, :f :get, :key "6", :value nil}
{:process 1, :type :ok, :f :get, :key "6", :value "x"}
{:process 2, :type :invoke, :f :LAST, :key "3", :value "y"}
{:process 2, :type :ok, :f :LAST, :key "3", :value "y"}
"""


@pytest.mark.parametrize(("first", "last"), [("append", "put"), ("put", "append"), ("put", "put")])
def test_a_key_value_store_with_append_is_refused_by_name(tmp_path: Path, first: str, last: str) -> None:
    path = tmp_path / "c10-ok.txt"
    path.write_text(STORE.replace("FIRST", first).replace("LAST", last))
    (judgement,) = check([path])
    appends = "append" in (first, last)
    assert judgement.verdict == ("unknown" if appends else "valid"), judgement.to_json()
    assert any("'append' makes a value grow" in reason for reason in judgement.reasons) == appends


def verifiable(folder: Path, consumed: list[int]) -> Path:
    def line(**fields: Any) -> str:
        return json.dumps({"timestamp": 1_700_000_000_000 + fields.pop("at"), **fields}) + "\n"

    folder.mkdir()
    sent = [
        line(at=10 + v, name="producer_send_success", key=None, value=str(v), topic="t", partition=0, offset=v)
        for v in range(4)
    ]
    ended = line(at=99, name="shutdown_complete")
    (folder / "producer.json").write_text(line(at=0, name="startup_complete") + "".join(sent) + ended)
    read = [
        line(at=50 + v, name="record_data", key=None, value=str(v), topic="t", partition=0, offset=v) for v in consumed
    ]
    assigned = line(at=40, name="partitions_assigned", partitions=[{"topic": "t", "partition": 0}])
    (folder / "consumer.json").write_text(line(at=30, name="startup_complete") + assigned + "".join(read) + ended)
    return folder


def test_verifiable_tools(tmp_path: Path) -> None:
    (good,) = check([verifiable(tmp_path / "good", [0, 1, 2, 3])], "verifiable")
    assert (good.verdict, good.facts) == ("valid", 8)
    (bad,) = check([verifiable(tmp_path / "bad", [0, 1, 3])], "verifiable")
    assert bad.verdict == "invalid" and bad.anomalies["lost-write"] == 1
    (alone,) = check([verifiable(tmp_path / "one", [0]) / "producer.json"])
    assert alone.verdict == "unknown" and "no record was read" in alone.reasons


@pytest.mark.parametrize(
    ("text", "form", "reason"),
    [
        ("{:type :invoke, :f :txn, :value [[:push 1]], :process 0}\n", "jepsen", "micro-operation"),
        ("{:type :invoke, :f :txn\n", "jepsen", ":1:"),
        (JEPSEN + "{:type\n", "jepsen", ":8:"),
        ("{:process 0, :type :invoke, :f :append, :value 1}\n", "knossos", "append"),
        ("{:process 0, :type :invoke, :f :read, :value 1}\n", "jepsen", "register"),
        ('{"timestamp": 1, "name": "startup_complete"}\n{"time": 2}\n', "verifiable", ":2:"),
    ],
)
def test_what_is_not_theirs_is_refused(tmp_path: Path, text: str, form: str, reason: str) -> None:
    path = tmp_path / "history"
    path.write_text(text)
    (judgement,) = check([path], form)
    assert judgement.verdict == "unknown" and any(reason in text for text in judgement.reasons), judgement.reasons


def test_what_stands_before_a_torn_line_is_evidence(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    path.write_text(JEPSEN.replace("[1 10]]}]", "[1 10] [1 11]]}]") + "{:type :in")
    (judgement,) = check([path])
    assert judgement.verdict == "invalid" and "inconsistent-offsets" in judgement.anomalies
    assert any(f"{path}:8:" in reason for reason in judgement.reasons)


@pytest.mark.parametrize("form", ["jepsen", "jepsen-log", "verifiable"])
def test_files_are_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """The importer yields facts long before the file ends, so a file may have any length."""
    monkeypatch.setattr(paired, "ROWS_A_BATCH", 50)
    path = tmp_path / "history"
    read = {"topic": "t", "partition": 0, "name": "record_data", "timestamp": 1}
    lines = {
        "jepsen": lambda n: (
            "{:type :invoke, :f :poll, :value [[:poll]], :process 1}\n"
            f"{{:type :ok, :f :poll, :value [[:poll {{0 [[{n} {n}]]}}]], :process 1}}\n"
        ),
        "jepsen-log": lambda n: (
            f"INFO  jepsen.util - 0\t:invoke\t:write\t{n}\nINFO  jepsen.util - 0\t:ok\t:write\t{n}\n"
        ),
        "verifiable": lambda n: json.dumps(read | {"value": str(n), "offset": n}) + "\n",
    }[form]
    path.write_text("".join(map(lines, range(3000))))
    (stream,) = IMPORTERS[form](path, Contract())
    batches = iter(stream)
    rows, seen = next(batches).num_rows, open_file_position(path)
    assert rows == 50 and seen < path.stat().st_size / 2
    assert rows + sum(batch.num_rows for batch in batches) == 3000


def open_file_position(path: Path) -> int:
    """How far this process has come in a file that it has open."""
    for link in Path("/proc/self/fd").iterdir():
        if link.exists() and link.resolve() == path:
            return int((Path("/proc/self/fdinfo") / link.name).read_text().split()[1])
    raise AssertionError(f"{path} is not open")


def events_of_tool(folder: Path, **files: list[dict[str, Any]]) -> Path:
    """Files of the verifiable tools; each event names its time `at`, in milliseconds."""
    folder.mkdir()
    for name, events in files.items():
        said = ({"timestamp": event["at"], "topic": "t", "partition": 0} | event for event in events)
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in said))
    return folder


def acked(at: int, value: int, **more: Any) -> dict[str, Any]:
    return {"at": at, "name": "producer_send_success", "value": str(value), "offset": value} | more


def consumed(at: int, value: int, **more: Any) -> dict[str, Any]:
    return {"at": at, "name": "record_data", "value": str(value), "offset": value} | more


def test_a_send_that_failed_may_be_read_in_any_partition(tmp_path: Path) -> None:
    """The tool does not report for which partition the record of a failed send was meant."""
    failed = {"at": 12, "name": "producer_send_error", "topic": "t", "value": "7"}
    ended = {"at": 90, "name": "shutdown_complete"}
    sent = [acked(10, 0), failed, acked(13, 1), ended]
    read = [consumed(50, 0), consumed(51, 1), consumed(52, 7, partition=3, offset=0), ended]
    (judgement,) = check([events_of_tool(tmp_path / "v", producer=sent, consumer=read)], "verifiable")
    assert (judgement.verdict, judgement.anomalies) == ("valid", {}), judgement.to_json()


def test_a_tool_that_was_killed_leaves_something_unsaid(tmp_path: Path) -> None:
    """The record that no line shows as sent may be the last one that it sent."""
    ended = {"at": 90, "name": "shutdown_complete"}
    read = [consumed(50, 0), consumed(51, 1), ended]
    folder = events_of_tool(tmp_path / "v", producer=[acked(10, 0)], consumer=read)
    (judgement,) = check([folder], "verifiable")
    assert judgement.verdict == "unknown" and judgement.anomalies == {"phantom-read": 1}
    assert any("producer:1: " in reason and "shutdown_complete" in reason for reason in judgement.reasons)


def test_a_tool_whose_clock_steps_back(tmp_path: Path) -> None:
    ended = {"at": 90, "name": "shutdown_complete"}
    sent = [acked(10, 0), acked(9, 1), ended]
    folder = events_of_tool(tmp_path / "v", producer=sent, consumer=[consumed(50, 0), consumed(51, 1), ended])
    (judgement,) = check([folder], "verifiable")
    assert judgement.verdict == "unknown" and any("steps back" in reason for reason in judgement.reasons)


def test_the_operations_of_the_tools_are_apart_however_many_there_are(tmp_path: Path) -> None:
    sent, read = ([event(10 + n, n) for n in range(3)] for event in (acked, consumed))
    (history,) = read_histories([events_of_tool(tmp_path / "v", consumer=read, producer=sent)], "verifiable")
    assert not isinstance(history, HistoryError)
    assert history.facts.column("operation").to_pylist() == [0, 1, 2, 1 << 32, (1 << 32) + 1, (1 << 32) + 2]


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (REGISTER_LOG.replace(":ok\t:write", ":o#\t:write"), "2: an operation's line is damaged"),
        (REGISTER_LOG.rstrip("\n"), "the last line is torn"),
    ],
)
def test_a_damaged_line_of_a_log_is_not_left_out(tmp_path: Path, damaged: str, reason: str) -> None:
    path = tmp_path / "jepsen.log"
    path.write_text(damaged.replace("{read}", "3"))
    (judgement,) = check([path])
    assert judgement.verdict == "unknown" and any(reason in text for text in judgement.reasons), judgement.to_json()


def test_what_the_tools_say_after_their_end(tmp_path: Path) -> None:
    """The producer prints a summary, and the consumer's shutdown hook a line. A record after `shutdown_complete` is a defect."""
    ended = {"at": 90, "name": "shutdown_complete"}
    sent = [acked(10, 0), ended, {"at": 91, "name": "tool_data", "sent": 1, "acked": 1}]
    read = [consumed(50, 0), ended, {"at": 91, "name": "shutdown_requested"}]
    (judgement,) = check([events_of_tool(tmp_path / "good", producer=sent, consumer=read)], "verifiable")
    assert judgement.verdict == "valid", judgement.to_json()
    (judgement,) = check(
        [events_of_tool(tmp_path / "bad", producer=[*sent, acked(95, 1)], consumer=read)], "verifiable"
    )
    assert judgement.verdict == "unknown" and any("shutdown_complete" in reason for reason in judgement.reasons)


@pytest.mark.parametrize(("revoked", "verdict"), [(True, "valid"), (False, "invalid")])
def test_an_eager_rebalance_takes_the_position(tmp_path: Path, revoked: bool, verdict: str) -> None:
    """A consumer that lost a partition and got it again may read from the last commit on."""
    ended = {"at": 90, "name": "shutdown_complete"}
    moved = [{"at": 53, "name": "partitions_revoked"}, {"at": 54, "name": "partitions_assigned"}]
    moved = [event | {"partitions": [{"topic": "t", "partition": 0}]} for event in moved]
    read = [consumed(51, 0), consumed(52, 1), *(moved if revoked else []), consumed(55, 1), ended]
    folder = events_of_tool(tmp_path / "v", producer=[acked(10, 0), acked(11, 1), ended], consumer=read)
    (judgement,) = check([folder], "verifiable")
    assert judgement.verdict == verdict, judgement.to_json()
