"""The final read goes to the log's end, not to where an open transaction lets a reader of committed records come."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from linearizability.history.contract import Contract
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check
from linearizability.targets import open_target
from linearizability.workload.drain import Unread, drain_topic

CONTRACT = Contract(replication_factor=1, min_isr=1)
PATIENCE_S = 2.0


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    with open_target("reference:1", folder=tmp_path_factory.mktemp("target")) as target:
        yield target.bootstrap


def send(producer: Producer, topic: str, value: str) -> None:
    producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0


def drained(
    bootstrap: str, topic: str, folder: Path, within_s: float, contract: Contract = CONTRACT
) -> tuple[list[Unread], dict[str, object]]:
    """The partitions that were not read to their end, and the completion of the drain."""
    with Recorder.open(folder, process=1000, contract=contract, run="r") as recorder:
        failures = drain_topic(bootstrap, topic, 1, recorder, contract, within_s=within_s)
    lines = [json.loads(line) for line in (folder / "history-01000.jsonl").read_text().splitlines()]
    (ended,) = [line for line in lines if line.get("f") == "drain" and line["type"] != "invoke"]
    return failures, ended


def polled(folder: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (folder / "history-01000.jsonl").read_text().splitlines()]
    return [line["mops"][0] for line in lines if line.get("f") == "poll" and line["type"] == "ok"]


def test_a_record_behind_an_open_transaction_is_not_taken_for_lost(bootstrap, tmp_path):
    topic = "behind-an-open-transaction"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    transacting = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    transacting.init_transactions(20)
    transacting.begin_transaction()
    send(transacting, topic, "1")
    send(Producer({"bootstrap.servers": bootstrap}), topic, "2")

    hidden, whole = tmp_path / "hidden", tmp_path / "whole"
    failures, answer = drained(bootstrap, topic, hidden, PATIENCE_S)
    assert failures == [Unread(0, f"{topic}-0: read up to 0 of 2 when the time was over", position=0)]
    assert answer["type"] == "info"
    assert next(iter(check([hidden], engine="local"))).verdict == "unknown"

    transacting.abort_transaction(20)
    failures, answer = drained(bootstrap, topic, whole, 60)
    assert (failures, answer["type"]) == ([], "ok")
    ends = [mop.get("ends") for mop in polled(whole)]
    assert ends[-1] == {f"{topic}-0": 3} and all(
        reported in (None, ends[-1]) for reported in ends
    )  # with the abort's marker


def test_the_log_start_is_asked_for_again_where_records_may_expire(bootstrap, tmp_path):
    topic = "expiring"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    send(Producer({"bootstrap.servers": bootstrap}), topic, "1")
    asked = {}
    for cleanup in ("keep", "delete"):
        folder = tmp_path / cleanup
        drained(bootstrap, topic, folder, 60, Contract(replication_factor=1, min_isr=1, cleanup=cleanup))
        lines = [json.loads(line) for line in (folder / "history-01000.jsonl").read_text().splitlines()]
        asked[cleanup] = [
            line["f"] for line in lines if line["type"] == "ok" and line["f"] in ("list_offsets", "drain")
        ]
    assert asked == {"keep": ["list_offsets", "drain"], "delete": ["list_offsets", "list_offsets", "drain"]}
