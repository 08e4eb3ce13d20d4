"""A cluster of real processes: it forms, survives the kill of each leader, stops cleanly, and goes on where it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linearizability.targets.ports import free_ports
from reference.runtime.cluster import HOST, METRICS, ClusterProcesses, Member, describe, lay_out
from reference.runtime.configuration import ConfigurationError
from tests.waiting import await_true

WITHIN_S = 90
QUICK = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "200"}
QUIET = {"log_level": 0}


def base_port() -> int:
    """A port with room behind it: controllers listen 100 above."""
    while True:
        (port,) = free_ports(1, HOST)
        if port < 60_000:
            return port


def bootstrap(members: list[Member]) -> str:
    return ",".join(f"{HOST}:{member.port}" for member in members)


def produce(members: list[Member], values: list[str]) -> None:
    """Every one of them acknowledged by all in-sync replicas, or the test fails."""
    producer = Producer({"bootstrap.servers": bootstrap(members), "enable.idempotence": True, **QUIET})
    failures: list[object] = []
    for value in values:
        producer.produce("t", value, on_delivery=lambda error, message: failures.append(error) if error else None)
    assert producer.flush(WITHIN_S) == 0 and failures == []


def consume(members: list[Member], count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap(members), "group.id": f"g{count}", "auto.offset.reset": "earliest", **QUIET}
    )
    consumer.subscribe(["t"])
    found: list[str] = []
    until = time.monotonic() + WITHIN_S
    while len(found) < count and time.monotonic() < until:
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            found.append(message.value().decode())
    consumer.close()
    return found


def leader_and_isr(member: Member) -> tuple[int, set[int]]:
    answer = describe(member)
    for topic in answer.topics if answer is not None else ():
        if topic.name == "t":
            return topic.partitions[0].leader_id, set(topic.partitions[0].isr_nodes)
    return -1, set()


@pytest.mark.timeout(600)
def test_no_acknowledged_record_is_lost_while_leaders_are_killed_and_the_cluster_restarts(tmp_path: Path) -> None:
    members = lay_out(tmp_path, 3, base_port(), QUICK)
    written: list[str] = []
    with ClusterProcesses(members) as cluster:
        cluster.await_ready(lambda text: None)
        admin = AdminClient({"bootstrap.servers": bootstrap(members), **QUIET})
        admin.create_topics([NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})])["t"].result(WITHIN_S)
        for round in range(2):
            values = [f"{round}-{number}" for number in range(500)]
            produce(members, values)
            written += values
            alive = [member for member in members if cluster.is_running(member)]
            leader, _ = leader_and_isr(alive[0])
            victim = next(member for member in members if member.id == leader)
            cluster.kill(victim)
            values = [f"{round}-{number} after" for number in range(500)]
            produce(members, values)
            written += values
            other = next(member for member in members if member is not victim)
            assert leader_and_isr(other)[0] != leader
            cluster.start(victim)
            await_true(lambda other=other: leader_and_isr(other)[1] == {1, 2, 3})
    assert not any(cluster.is_running(member) for member in members)
    with ClusterProcesses(lay_out(tmp_path, 3, members[0].port, QUICK)) as cluster:
        cluster.await_ready(lambda text: None)
        found = consume(members, len(written))
    assert sorted(found) == sorted(written)
    for member in members:
        assert "Traceback" not in member.log.read_text()


@pytest.mark.timeout(300)
def test_the_command_shows_the_cluster_and_stops_at_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidegauge", "cluster", "--nodes", "3", "--port", str(base_port()), "--json"]
    process = subprocess.Popen(
        [*command, "--folder", str(tmp_path / "c")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert first == {"alive": [1, 2, 3], "ended": [], "partitions": []}
    process.terminate()  # as Ctrl-C: one handler for both
    out, _ = process.communicate(timeout=WITHIN_S)
    assert json.loads(out.splitlines()[-1])["stopped"] is True
    assert process.returncode == 0
    for number in (1, 2, 3):
        assert (tmp_path / "c" / f"node-{number}" / "node.log").read_text().rstrip().endswith("stopped")


def serving(folder: Path) -> set[int]:
    """The processes that serve a node of this folder, ended ones that no parent waited for left out."""
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{folder}/node-".encode() in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
    return found


@pytest.mark.timeout(300)
def test_nodes_stop_when_the_command_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidegauge", "cluster", "--nodes", "2", "--port", str(base_port())]
    process = subprocess.Popen([*command, "--folder", str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None and b"alive" in process.stdout.readline()
        assert len(serving(tmp_path)) == 2
        process.kill()
        await_true(lambda: not serving(tmp_path))
    finally:
        for pid in (process.pid, *serving(tmp_path)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
    for number in (1, 2):
        assert (tmp_path / f"node-{number}" / "node.log").read_text().rstrip().endswith("stopped")


def test_what_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="between 1 and 9"):
        lay_out(tmp_path, 0, 9092, {})
    with pytest.raises(ConfigurationError, match="Invalid value none"):
        lay_out(tmp_path, 3, 9092, {"num.partitions": "none"})


def test_each_node_has_metrics_of_its_own(tmp_path: Path) -> None:
    members = lay_out(tmp_path, 3, 9092, {METRICS: "127.0.0.1:9100"})
    for member, port in zip(members, (9100, 9101, 9102), strict=True):
        assert f"{METRICS}=127.0.0.1:{port}\n" in member.properties_file.read_text()
    (any_port,) = lay_out(tmp_path / "other", 1, 9092, {METRICS: "127.0.0.1:0"})
    assert f"{METRICS}=127.0.0.1:0\n" in any_port.properties_file.read_text()


@pytest.mark.parametrize(
    ("listener", "reason"),
    [
        ("127.0.0.1:{taken}", "cannot be bound: Address already in use"),
        ("nowhere.invalid:9100", "cannot be bound: "),
        ("127.0.0.1", "'127.0.0.1' is not HOST:PORT"),
    ],
)
def test_a_cluster_whose_metrics_cannot_be_served_says_so_in_a_line(listener: str, reason: str, tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        listener = listener.format(taken=taken.getsockname()[1])
        command = [sys.executable, "-m", "tidegauge", "cluster", "--nodes", "1", "--port", str(base_port())]
        command += ["--folder", str(tmp_path / "c"), "--set", f"{METRICS}={listener}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 3 and METRICS in line and reason in line
