"""Histories in a Kafka topic: written line by line, read by this process and by PySpark's data source, judged the same.

A group's offsets are read and committed while its coordinator moves.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from linearizability.history.contract import Contract
from linearizability.history.operations import poll, send
from linearizability.history.recorder import Recorder
from linearizability.history.topic import HistoryTopic, read_stretch, stretches, write_files
from linearizability.history.topic_group import TopicGroup
from linearizability.pipeline.engine import check
from linearizability.targets import Target, open_target
from linearizability.targets.cluster import ClusterTarget, write_properties
from linearizability.workload.cluster import create_topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.offset_commit import OffsetCommitRequest
from reference.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.confusions.wire import Mishap, Wire
from tests.history.judged_histories import record as record_good
from tests.history.test_commands import run
from tests.history.test_excerpt import record as record_bad

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[Target]:
    with open_target("reference:1", folder=tmp_path_factory.mktemp("broker")) as target:
        yield target


def new_topic(broker: Target, name: str) -> HistoryTopic:
    create_topic(broker.nodes, name, partitions=3, replication_factor=1, configs={})
    return HistoryTopic.parse(f"kafka:{broker.bootstrap}/{name}")


@pytest.fixture(scope="module")
def both(broker, tmp_path_factory) -> tuple[HistoryTopic, Path, Path]:
    """A topic with a good and a bad history, and the folders that these were exported from."""
    topic, home = new_topic(broker, "both"), tmp_path_factory.mktemp("both")
    (home / "good").mkdir()
    record_good(home / "good")
    bad = record_bad(home / "bad")
    for path in bad.glob("*.jsonl"):
        path.write_text(path.read_text().replace('"run":"r"', '"run":"bad/../one"'))
    assert run("export", home / "good", bad, str(topic), "--to", "topic").return_value == 0
    return topic, home / "good", bad


def test_lines_come_back_as_the_files_that_they_were(both, tmp_path: Path) -> None:
    topic, good, bad = both
    folders = {home for each in stretches(topic) for home in write_files(read_stretch(topic, each), tmp_path)}
    assert {home.name for home in folders} == {"r", "bad_.._one"}
    for source, name in ((good, "r"), (bad, "bad_.._one")):
        for path in [*source.glob("*.jsonl"), source / "files.txt"]:
            assert (tmp_path / name / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_topic_is_judged_like_the_folders(both, engine: str) -> None:
    topic, good, bad = both
    said = {
        j.id: (j.verdict, j.anomalies, j.facts) for j in check([Path(str(topic))], engine=engine, master="local[2]")
    }
    (first,), (second,) = check([good], engine="local"), check([bad], engine="local")
    assert said == {each.id: (each.verdict, each.anomalies, each.facts) for each in (first, second)}
    assert {verdict for verdict, *_ in said.values()} == {"valid", "invalid"}


def test_a_line_that_is_lost_leaves_the_verdict_unknown(broker, tmp_path: Path) -> None:
    topic = new_topic(broker, "torn")
    for path in record_good(tmp_path):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert run("export", tmp_path, str(topic), "--to", "topic").return_value == 0
    (judgement,) = check([Path(str(topic))], engine="local")
    assert judgement.verdict == "unknown" and "closing line" in judgement.reasons[0]


def test_a_file_that_is_not_in_the_topic_leaves_the_verdict_unknown(broker, tmp_path: Path) -> None:
    topic = new_topic(broker, "short")
    record_good(tmp_path)[1].unlink()
    assert run("export", tmp_path, str(topic), "--to", "topic").return_value == 0
    (judgement,) = check([Path(str(topic))], engine="local")
    assert judgement.verdict == "unknown" and "files.txt names this file" in "".join(judgement.reasons)


def test_an_empty_topic_is_unknown(broker) -> None:
    result = run("check", str(new_topic(broker, "empty")), "--engine", "local")
    assert result.return_value == 2 and "the topic is empty" in result.stdout


@pytest.mark.parametrize("text", ["kafka:", "kafka:host/topic", "kafka:host:1/", "kafka:h:1/a/b"])
def test_a_wrong_name_is_wrong_usage(text: str) -> None:
    result = run("check", text)
    assert result.exception is not None and "is not kafka:HOST:PORT/TOPIC" in str(result.exception)


def test_a_broker_that_is_not_there_is_an_engine_error(monkeypatch) -> None:
    monkeypatch.setattr("linearizability.history.topic.ANSWERS_WITHIN_S", 1)
    result = run("check", "kafka:127.0.0.1:1/histories", "--engine", "local", "--json")
    assert result.return_value == 3 and json.loads(result.stdout)["verdict"] == "error"


@pytest.fixture(scope="module")
def secured(tmp_path_factory) -> Iterator[tuple[ClusterTarget, Path]]:
    """A broker that authenticates over TLS, and the properties of its clients."""
    folder = tmp_path_factory.mktemp("secured")
    with open_target("reference:1", folder=folder, protocol="SASL_SSL") as target:
        assert isinstance(target, ClusterTarget) and target.listener is not None
        properties = folder / "client.properties"
        write_properties(properties, target.listener.client)
        yield target, properties


def test_a_topic_of_a_secured_broker(secured: tuple[ClusterTarget, Path], tmp_path: Path) -> None:
    target, properties = secured
    create_topic(target.nodes, "histories", partitions=2, replication_factor=1, configs={})
    name = f"kafka:{target.members[0].node.address}/histories"
    record_good(tmp_path)
    given = ("--client-config", properties)
    written = run("export", tmp_path, name, "--to", "topic", *given)
    assert written.return_value == 0 and f"lines written to {name}" in written.stdout
    judged = run("check", name, "--json", *given)
    assert judged.return_value == 0 and json.loads(judged.stdout.splitlines()[-1])["valid"] == 1
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(
        properties.read_text().replace('password=\\"', 'password=\\"x').replace('password="', 'password="x')
    )
    refused = run("check", name, "--client-config", wrong)
    assert refused.return_value == 3 and name in refused.stderr and "SASL" in refused.stderr, refused.stderr


def test_a_topic_of_a_secured_broker_is_watched(secured: tuple[ClusterTarget, Path], tmp_path: Path) -> None:
    target, properties = secured
    name = f"kafka:{target.members[0].node.address}/watched"
    create_topic(target.nodes, "watched", partitions=1, replication_factor=1, configs={})
    with Recorder.open(tmp_path, process=1, contract=Contract(), run="r") as recorder:
        recorder.ok(recorder.invoke("send", [send("t-0", 3)]), [send("t-0", 3, offset=0)])
        recorder.ok(recorder.invoke("poll", [poll()]), [poll({"t-0": [(0, 4)]})])
    given = ("--client-config", properties)
    assert run("export", tmp_path, name, "--to", "topic", *given).return_value == 0
    watched = run("watch", name, "--every", "0.1", "--json", *given)
    assert watched.return_value == 1, watched.stderr
    anomaly, summary = map(json.loads, watched.stdout.splitlines())
    assert anomaly["rule"] == "inconsistent-offsets" and summary["ended"] and not summary["defects"]
    for place, reason in ((tmp_path, "no topic is given"), ("kafka:x", "is not kafka:HOST:PORT/TOPIC")):
        refused = run("watch", place, *given)
        assert isinstance(refused.exception, typer.BadParameter) and reason in str(refused.exception)


def test_a_broker_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linearizability.history.topic.ANSWERS_WITHIN_S", 1.0)
    refused = run("check", "kafka:127.0.0.1:1/t")
    said = "kafka:127.0.0.1:1/t: Failed to get metadata: Local: Broker transport failure"
    assert refused.return_value == 3 and refused.stderr.splitlines()[-1] == said, refused.stderr


def test_client_properties_are_served_or_refused(secured: tuple[ClusterTarget, Path], tmp_path: Path) -> None:
    _, properties = secured
    record_good(tmp_path)
    for files, more, reason in (
        ([tmp_path], [], "no topic is given"),
        (["kafka:127.0.0.1:1/t"], ["--engine", "spark"], "Spark's workers have no way"),
    ):
        refused = run("check", *files, "--client-config", properties, *more)
        assert isinstance(refused.exception, typer.BadParameter) and reason in str(refused.exception)


READ = """
import sys
from linearizability.history.topic import HistoryTopic
from linearizability.history.topic_group import TopicGroup
print(TopicGroup(HistoryTopic.parse(sys.argv[1]), "g").place())
"""


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_coordinator_that_is_none_yet_is_asked_again(tmp_path: Path, error: ErrorCode) -> None:
    """In a process of its own: librdkafka's admin client dies of the first error."""
    with open_target("reference:1", folder=tmp_path) as target, Wire(target.nodes[0]) as wire:
        create_topic(target.nodes, "lines", partitions=2, replication_factor=1, configs={})
        topic = f"kafka:{wire.bootstrap}/lines"
        refused = wire.befall(OffsetCommitRequest, Mishap.REFUSED, error)
        TopicGroup(HistoryTopic.parse(topic), "g").commit({1: 0})
        asked = wire.befall(OffsetFetchRequest, Mishap.REFUSED, error)
        done = subprocess.run(
            [sys.executable, "-c", READ, topic], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stdout) == (0, "{0: 0, 1: 0}\n"), done.stderr
        assert refused.met.is_set() and asked.met.is_set()
