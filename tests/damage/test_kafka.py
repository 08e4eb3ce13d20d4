"""The damage campaign on folders of Apache Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linearizability.bench.commands import app
from linearizability.damage.kafka import _said

LOG = """\
[2026-11-26 02:21:24,574] INFO [Broker id=1] Fine (kafka.server.BrokerServer)
[2026-11-26 02:21:25,000] ERROR Error while reading checkpoint file (kafka.log.LogManager)
java.io.IOException: Malformed line in /data/replication-offset-checkpoint
\tat kafka.log.LogManager.load(LogManager.scala:460)
[2026-11-26 02:21:25,001] INFO Loading (kafka.log.LogManager)
not of the error
[2026-11-26 02:21:25,002] WARN plain-0: short (kafka.log.LogManager)
"""


def test_an_error_of_kafkas_log_has_the_lines_of_its_stack_trace() -> None:
    (level, text), warning = _said(LOG)
    assert level == "error" and "replication-offset-checkpoint" in text and "LogManager.scala:460" in text
    assert warning == ("warning", "plain-0: short (kafka.log.LogManager)")


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.kafka
def test_kafka_is_started_on_a_damaged_folder_of_each_end(tmp_path: Path) -> None:
    store = tmp_path / "results.json"
    arguments = ["damage", "--target", "kafka:4.3.1:1", "--trials", "1", "--store", str(store), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert json.loads(done.stdout.splitlines()[-1])["trials"] == 2, done.output
    assert json.loads(store.read_text())["kafka:4.3.1:1"]["run"] == {"clean": 1, "killed": 1}
