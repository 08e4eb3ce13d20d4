"""Reference brokers that a real ZooKeeper coordinates: each is killed in turn, the controller too, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient  # pyright: ignore[reportMissingTypeStubs]
from typer.testing import CliRunner

from linearizability.commands import app
from linearizability.targets import WrongTarget, open_target
from linearizability.targets.artifacts import java, kafka_jars
from linearizability.targets.hosts import Host
from linearizability.targets.kafka_start import class_path
from linearizability.targets.ports import free_ports
from linearizability.targets.reference import TIDEGAUGE, ZooKeeperReferenceCluster
from linearizability.targets.wire import Wire
from linearizability.targets.zookeeper import SESSION_TIMEOUT_MS, ZooKeeper, zookeeper_program
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.describe_configs import DescribeConfigsRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.zookeeper import znodes
from tests.targets.numbers import PATIENT, QUIET, consumed, produce
from tests.waiting import await_true

WITHIN_S = 60
NEVER_LAGS = {"replica.lag.time.max.ms": "600000"}
"""The leaders themselves take no member out of an ISR while a test runs: the controller must."""
PARTITIONS, RECORDS = 3, 150


def in_sync(admin: AdminClient) -> list[int]:
    return [len(each.isrs) for each in admin.list_topics("t", timeout=WITHIN_S).topics["t"].partitions.values()]


@pytest.mark.kafka
@pytest.mark.timeout(900)
def test_each_broker_is_killed_in_turn_and_nothing_is_lost(tmp_path: Path) -> None:
    with open_target("reference-zk:3", folder=tmp_path, config=NEVER_LAGS) as target:
        assert isinstance(target, ZooKeeperReferenceCluster)
        admin = AdminClient({"bootstrap.servers": target.bootstrap, **QUIET})
        topic = NewTopic("t", PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(WITHIN_S)
        produce(target.bootstrap, range(RECORDS), PARTITIONS, PATIENT)
        for times, victim in enumerate((1, 2, 3), start=1):
            target.kill(victim)
            produce(target.bootstrap, range(times * RECORDS, (times + 1) * RECORDS), PARTITIONS, PATIENT)
            target.restart(victim)
            until = time.monotonic() + WITHIN_S
            while in_sync(admin) != [3] * PARTITIONS:
                assert time.monotonic() < until, f"node {victim} is not in sync again"
                time.sleep(0.2)
        assert sorted(consumed(target.bootstrap, 4 * RECORDS, PARTITIONS)) == [*range(4 * RECORDS)]


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_each_broker_takes_its_own_settings_alone(tmp_path: Path) -> None:
    """Two of three forward them to the controller, whose settings they are not."""
    with open_target("reference-zk:3", folder=tmp_path, config={}) as target:
        for node in target.nodes:
            with Wire.connect(node.host, node.port) as wire:
                codes = {
                    other.id: wire.call(altered_backoff(other.id)).responses[0].error_code for other in target.nodes
                }
            refused = ErrorCode.INVALID_REQUEST
            assert codes == {other.id: ErrorCode.NONE if other.id == node.id else refused for other in target.nodes}


def altered_backoff(broker: int) -> IncrementalAlterConfigsRequest:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name="log.cleaner.backoff.ms", value="1234")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4, resource_name=str(broker), configs=[change]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


TOPICS, CONFIGS = "kafka.admin.TopicCommand", "kafka.admin.ConfigCommand"
OLD = "2.8.2"
"""The last release whose tools write into ZooKeeper themselves."""


def old_tool(tool: str, target: ZooKeeperReferenceCluster, *arguments: str) -> str:
    """Run a tool with --zookeeper; its output."""
    command = [java(), "-cp", class_path(kafka_jars(OLD)), tool, "--zookeeper", target.zookeeper.address, *arguments]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def settings_at(broker: int, target: ZooKeeperReferenceCluster) -> dict[str, str]:
    """The settings of the topic as a broker reports them."""
    node = next(each for each in target.nodes if each.id == broker)
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name="t")
    with Wire.connect(node.host, node.port) as wire:
        answer = wire.call(DescribeConfigsRequest(resources=[resource]))
    return {each.name: each.value or "" for each in answer.results[0].configs}


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tools_of_2_8_that_write_into_zookeeper_alter_a_live_topic(tmp_path: Path) -> None:
    often = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}
    with open_target("reference-zk:3", folder=tmp_path, config=often) as target:
        assert isinstance(target, ZooKeeperReferenceCluster)
        create = ("--create", "--topic", "t", "--partitions", str(PARTITIONS), "--replication-factor", "3")
        assert "Created topic t" in old_tool(TOPICS, target, *create, "--config", "segment.bytes=1000")
        admin = AdminClient({"bootstrap.servers": target.bootstrap, **QUIET})
        await_true(lambda: "t" in admin.list_topics(timeout=WITHIN_S).topics, "the topic is not there")
        produce(target.bootstrap, range(RECORDS), PARTITIONS, PATIENT)
        old_tool(TOPICS, target, "--alter", "--topic", "t", "--config", "retention.ms=1000")
        change = ("--alter", "--entity-type", "topics", "--entity-name", "t", "--add-config", "retention.bytes=7777")
        old_tool(CONFIGS, target, *change)
        wanted = {"retention.ms": "1000", "retention.bytes": "7777", "segment.bytes": "1000"}
        for broker in (1, 2, 3):
            await_true(lambda at=broker: wanted.items() <= settings_at(at, target).items(), f"unknown to node {broker}")
        consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "g", **QUIET})
        partition = TopicPartition("t", 0)
        await_true(lambda: consumer.get_watermark_offsets(partition, WITHIN_S)[0] > 0, "retention deletes nothing")
        consumer.close()
        assert "retention.ms=1000" in old_tool(TOPICS, target, "--describe", "--topic", "t")
        old_tool(TOPICS, target, "--alter", "--topic", "t", "--partitions", str(PARTITIONS + 1))
        await_true(lambda: in_sync(admin) == [3] * (PARTITIONS + 1), "the partition is not added")
        old_tool(TOPICS, target, "--delete", "--topic", "t")
        await_true(lambda: "t" not in admin.list_topics(timeout=WITHIN_S).topics, "the topic is not deleted")


def test_releases_without_zookeeper_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongTarget, match=r"ZooKeeper coordinates releases up to 3\.9"):
        open_target("kafka-zk:4.3.1:3", folder=tmp_path)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    server = ZooKeeper("ZooKeeper", Host(), SESSION_TIMEOUT_MS)
    server.lay_out(tmp_path_factory.mktemp("server"), *zookeeper_program())
    server.start()
    yield server
    server.kill()


def serve(folder: Path, connect: str, broker: int = 1) -> subprocess.Popen[str]:
    """Start a broker; its output is its log."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{broker}.properties"
    lines = {
        "broker.id": broker,
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": folder / f"data-{broker}",
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    command = [*TIDEGAUGE, "serve", str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def output_until(process: subprocess.Popen[str], *sentences: str) -> str:
    """The output up to the line that has one of them, or to its end."""
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if any(each in line for each in sentences):
            break
    return said


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=WITHIN_S)


@pytest.mark.java
@pytest.mark.timeout(300)
def test_a_chroot_is_made_and_another_cluster_s_folder_is_refused(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    first = serve(tmp_path, f"{zookeeper.address}/a/chroot")
    assert "registered with broker epoch" in output_until(first, "registered with", "error")
    end(first)
    other = serve(tmp_path, f"{zookeeper.address}/another", broker=2)
    assert "registered with broker epoch" in output_until(other, "registered with", "error")
    end(other)
    astray = serve(tmp_path, f"{zookeeper.address}/another", broker=1)
    said = output_until(astray, "registered with", "belongs to cluster")
    assert astray.wait(WITHIN_S) == 3 and "belongs to cluster" in said and "holds the data of cluster" in said


@pytest.mark.java
@pytest.mark.timeout(300)
def test_znodes_without_data_have_none_as_those_of_kafka(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """Kafka 3.9.2 does not start where `latest_producer_id_block` is empty, instead of without data."""
    broker = serve(tmp_path, f"{zookeeper.address}/bare")
    assert "registered with broker epoch" in output_until(broker, "registered with", "error")
    client: Any = KazooClient(hosts=zookeeper.address)
    client.start()
    try:
        bare = {path: client.get(f"/bare{path}")[0] for path in znodes.PERSISTENT}
    finally:
        client.stop()
        client.close()
        end(broker)
    assert znodes.PRODUCER_IDS in bare and set(bare.values()) == {None}


@pytest.mark.java
@pytest.mark.timeout(300)
def test_of_two_brokers_with_one_id_the_second_is_not_registered(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    first = serve(tmp_path / "first", f"{zookeeper.address}/twins")
    assert "registered with broker epoch" in output_until(first, "registered with", "error")
    second = serve(tmp_path / "second", f"{zookeeper.address}/twins")
    said = output_until(second, "registered with broker epoch", "is registered")
    assert "a broker with the id 1 is registered: waiting for its session's end" in said, said
    assert "registered with broker epoch" not in said
    assert first.poll() is None and second.poll() is None
    for process in (first, second):
        end(process)


@pytest.mark.timeout(120)
def test_a_zookeeper_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    alone = serve(tmp_path, "127.0.0.1:1")
    said = output_until(alone, "no ZooKeeper answers there")
    assert alone.wait(WITHIN_S) == 3 and "zookeeper.connect=127.0.0.1:1: no ZooKeeper answers there" in said
    assert "Traceback" not in said


@pytest.mark.java
@pytest.mark.timeout(300)
def test_the_command_starts_a_cluster_with_a_zookeeper_and_goes_on_with_it(tmp_path: Path) -> None:
    port = next(port for port in free_ports(9, "127.0.0.1") if port < 60_000)
    options = ["--coordination", "zookeeper", "--nodes", "2", "--port", str(port), "--folder", str(tmp_path), "--json"]
    for _ in range(2):
        with subprocess.Popen([*TIDEGAUGE, "cluster", *options], stdout=subprocess.PIPE, text=True) as shown:
            assert shown.stdout is not None
            assert json.loads(shown.stdout.readline())["alive"] == [1, 2]
            shown.terminate()
            assert json.loads(shown.stdout.read().splitlines()[-1])["stopped"] is True
    done = CliRunner().invoke(app, ["cluster", "--nodes", "2", "--folder", str(tmp_path)])
    assert done.exit_code == 3 and "is of a cluster that a ZooKeeper coordinates" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--coordination", "zookeeper", "--with", "kafka:3.9.2"], "beside a ZooKeeper all nodes are the reference's"),
        (["--zookeeper", "127.0.0.1:1"], "--zookeeper needs --coordination zookeeper"),
        (["--coordination", "zookeeper", "--zookeeper", "127.0.0.1:1"], "ended with exit code 3"),
    ],
)
def test_what_cannot_be_coordinated_is_named(options: list[str], said: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["cluster", "--nodes", "1", "--folder", str(tmp_path / "c"), *options])
    assert done.exit_code == 3 and said in done.stderr
