"""Histories of other tools: what they say arrives, and what is not theirs is refused by file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from linearizability.history.edn import EdnError, Keyword, read, read_all, write
from linearizability.history.files import HistoryError
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
    assert judge_history(history).anomalies == {"phantom-read": 1}  # nobody sent 9


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
        ('{"timestamp": 1, "name": "startup_complete"}\n{"time": 2}\n', "verifiable", ":2:"),
    ],
)
def test_what_is_not_theirs_is_refused(tmp_path: Path, text: str, form: str, reason: str) -> None:
    path = tmp_path / "history"
    path.write_text(text)
    (judgement,) = check([path], form)
    assert judgement.verdict == "unknown" and any(reason in text for text in judgement.reasons), judgement.reasons
