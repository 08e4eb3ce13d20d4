"""Three real processes under load, each killed and started again, while replicas move and come back and
min.insync.replicas is changed: their merged trace is accepted.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from linearizability.client.errors import errors_in
from linearizability.targets import open_target
from linearizability.targets.target import Target
from linearizability.targets.wire import Wire, WireError
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.primitives import NodeId
from reference.protocol.schema import Message
from spec.checker import Verdict
from spec.trace import AnyTrace, check_traces, read_traces

pytestmark = pytest.mark.java

TRACE_FILE = "trace.jsonl"
PROPERTIES = {
    "tidegauge.trace.file": TRACE_FILE,
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    "replica.lag.time.max.ms": "2000",
}
TOPIC = "orders"
PARTITIONS = 2
ACCEPTED_WITHIN_S = 20
SETTLED_S = 1.0
PAUSE_S = 0.02
"""Between two records of the load."""


@contextmanager
def load(addresses: str) -> Iterator[list[int]]:
    """Produce records with acks=all in the background; yields the number of acknowledged ones."""
    done = threading.Event()
    acknowledged = [0]
    producer = Producer({"bootstrap.servers": addresses, "acks": "all", "message.timeout.ms": 60_000, "log_level": 0})

    def received(error: object, _: object) -> None:
        acknowledged[0] += error is None

    def produce() -> None:
        while not done.is_set():
            producer.produce(TOPIC, b"x", on_delivery=received)
            producer.poll(0)
            time.sleep(PAUSE_S)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield acknowledged
    finally:
        done.set()
        thread.join()
        producer.flush(60)


def killed_and_back(target: Target, node: int) -> None:
    target.kill(node)
    time.sleep(0.3)
    target.restart(node)
    time.sleep(1.0)


def send_until_accepted(target: Target, request: Message) -> None:
    """Send a request to the first node, which forwards it, until the controller accepts it."""
    until, errors = time.monotonic() + ACCEPTED_WITHIN_S, list[object]()
    while time.monotonic() < until:
        try:
            with Wire.connect(target.nodes[0].host, target.nodes[0].port, timeout_s=5) as wire:
                if not (errors := [*errors_in(wire.call(request))]):
                    return
        except (WireError, OSError) as error:
            errors = [error]
        time.sleep(0.2)
    raise AssertionError(f"no controller accepted {request}: {errors}")


def reassigned(target: Target, *replicas: int) -> None:
    asked = AlterPartitionReassignmentsRequest
    wanted = asked.ReassignablePartition(partition_index=0, replicas=[NodeId(replica) for replica in replicas])
    send_until_accepted(
        target, asked(topics=[asked.ReassignableTopic(name=TOPIC, partitions=[wanted])], timeout_ms=5_000)
    )
    time.sleep(SETTLED_S)


def required_in_sync(target: Target, number: int) -> None:
    asked = IncrementalAlterConfigsRequest
    config = asked.AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(number))
    send_until_accepted(
        target, asked(resources=[asked.AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[config])])
    )
    time.sleep(SETTLED_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a cluster's run, with the traces in node-1 to node-3."""
    folder = tmp_path_factory.mktemp("traced")
    with open_target("reference:3", folder=folder, config=PROPERTIES) as target:
        addresses = ",".join(f"{node.host}:{node.port}" for node in target.nodes)
        admin = AdminClient({"bootstrap.servers": addresses, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
        with load(addresses) as acknowledged:
            for node in (1, 2, 3):
                killed_and_back(target, node)
            reassigned(target, 1, 2)
            required_in_sync(target, 1)
            reassigned(target, 2, 3, 1)
            required_in_sync(target, 2)
        assert acknowledged[0] > 0
    return folder


def steps_of(traces: list[AnyTrace]) -> Counter[str]:
    return Counter(event["action"] for trace in traces for event in trace.events)


@pytest.mark.sampled(days=5, together=True)
def test_processes_that_are_killed_under_load_keep_to_the_specification(cluster: Path) -> None:
    traces = read_traces([cluster])
    assert len(traces) >= PARTITIONS
    steps = steps_of(traces)
    assert steps["Crash"] >= 3 and steps["Produce"] and steps["Acknowledge"] and steps["BecomeLeader"] > PARTITIONS
    assert steps["Reassign"] >= 2 and steps["ChangeMinIsr"] >= 2 and steps["GiveUpReplica"] and steps["LearnMinIsr"]
    done = check_traces(traces)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert [(verdict.name, verdict.place, verdict.event, verdict.reason) for verdict in done.rejected] == []
    assert len(done.verdicts) == len(traces)


@pytest.mark.sampled(days=5, together=True)
def test_what_a_process_traces_falsely_is_rejected(cluster: Path, tmp_path: Path) -> None:
    """One node reports a log end offset that is one too high."""
    for file in cluster.rglob(TRACE_FILE):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        if file.parent.name == "node-1":
            next(row for row in reversed(rows) if row["action"] == "AppendFetched")["leo"] += 1
        copy = tmp_path / file.parent.name
        copy.mkdir()
        (copy / TRACE_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = check_traces(read_traces([tmp_path]))
    assert done.outcome.verdict == Verdict.HOLDS
    assert [verdict.event["action"] for verdict in done.rejected if verdict.event] == ["AppendFetched"]
