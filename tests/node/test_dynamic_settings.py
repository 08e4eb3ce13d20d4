"""A running broker follows a changed setting, with the same effect as in its properties file.

Each setting that this broker accepts is in one of two tables: for one a node under the new value is compared with a node that was
started with it; the other has settings that no part of this broker reads.

The logs of a topic follow the strongest of the settings in the image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from linearizability.damage import reference as own
from linearizability.damage.content import produce
from linearizability.damage.reference import Started
from reference.controller.broker_configs import CLUSTER_WIDE, FIXED, PER_BROKER, validate_broker_configs
from reference.controller.config_table import TOPIC
from reference.controller.configs import DELETE, SET
from reference.controller.elections import is_unclean_allowed
from reference.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE
from reference.node.node import Node
from reference.protocol.errors import KafkaError
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.primitives import NodeId, Offset, ProducerEpoch, ProducerId
from reference.protocol.records.batch import BatchProducer, build
from reference.protocol.records.record import Record
from reference.runtime.connection_limits import ConnectionLimits
from reference.storage.simulated_disk import SimulatedDisk
from tests.node.test_metadata_snapshots import FOLDER, NOW, ask, start

PLAIN, COMPACTED = ("plain", 0), ("compacted", 0)
TOPICS = {"plain": {}, "compacted": {"cleanup.policy": "compact", "internal.segment.bytes": "2000"}}
EXPIRY_CHECK_MS = 600_000
MOST_TICKS = 400
LISTENER = "PLAINTEXT"
ADDRESS = "10.0.0.1"
SOURCES = Path(__file__).parents[2] / "reference"
TABLES = {"broker_configs.py", "broker_rules.py", "config_table.py", "security.py", "without_effect.py"}
"""Files that name settings without reading them."""


class Running:
    """A node with two topics, and its connection limits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, static: Mapping[str, str]) -> None:
        monkeypatch.setattr(own, "PROPERTIES", {**own.PROPERTIES, "log.dirs": str(own.HOME), **static})
        disk = SimulatedDisk()
        disk.make_folder(own.HOME)
        self.started = Started(disk, own.NOW)
        self.node = self.started.node
        self.limits = ConnectionLimits(self.node.configuration)
        topic, config = CreateTopicsRequest.CreatableTopic, CreateTopicsRequest.CreatableTopicConfig
        topics = [
            topic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[config(name=key, value=value) for key, value in configs.items()],
            )
            for name, configs in TOPICS.items()
        ]
        self.started.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        self.started.tick(100)

    def alter(self, broker: str, name: str, value: str) -> None:
        """Alter a setting. Errors: AssertionError if it is refused."""
        answer = self.altered(broker, name, value)
        assert answer.error_code == 0, answer.error_message

    def altered(self, broker: str, name: str, value: str) -> Any:
        change = IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=0, value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=4, resource_name=broker, configs=[change]
        )
        return self.started.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]


Observe = Callable[[Running], object]


def log_setting(field: str, running: Running) -> object:
    return getattr(running.node.partitions[PLAIN].log.config, field)


def min_isr(running: Running) -> object:
    return running.node.partitions[PLAIN].min_isr


def allows_unclean_elections(running: Running) -> object:
    return is_unclean_allowed(running.node.configuration, PLAIN[0])


def takes_new_replicas(running: Running) -> object:
    """Whether the directory takes new replicas, and the broker's registration in the image."""
    running.started.tick(100)
    return running.node.logs.is_cordoned(running.node.logs.directories[0]), running.node.image.brokers[NodeId(1)]


def verifies(running: Running) -> object:
    return running.node.verification.is_enabled


def assignment_interval(running: Running) -> object:
    return running.node.groups.consumer_settings_of("g").assignment_interval_ms


def remembered_producers(running: Running) -> object:
    """The number of producers that a log remembers an hour after they appended."""
    batch = build([Record(Offset(0), own.NOW, b"k", b"v")], producer=BatchProducer(ProducerId(7), ProducerEpoch(0), 0))
    produce(running.started.ask, PLAIN, batch)
    for _ in range(6):
        running.started.tick(EXPIRY_CHECK_MS)
    return len(running.node.partitions[PLAIN].log.active_producers())


def make_dirty(running: Running, records: int = 12) -> None:
    for number in range(records):
        batch = build([Record(Offset(0), running.started.now, b"key %d" % number, bytes(800))])
        produce(running.started.ask, COMPACTED, batch)


def compaction(running: Running) -> object:
    """For a log that is dirty from now on: the time until it is compacted, the rest after it, and the bytes read."""
    cleaner = running.node.logs.directories[0].cleaner
    running.started.tick(10 * EXPIRY_CHECK_MS)
    make_dirty(running)
    times: list[int] = []
    for _ in range(MOST_TICKS):
        deadline = cleaner.next_deadline()
        assert deadline is not None
        running.started.tick(max(1, min(deadline - running.started.now, EXPIRY_CHECK_MS)))
        times.append(running.started.now)
        if cleaner.cleaned_bytes:
            break
    rest = cleaner.next_deadline()
    assert rest is not None
    return times[-1] - times[0], rest - running.started.now, cleaner.cleaned_bytes


def connections(running: Running) -> object:
    """Why a third connection is refused."""
    for _ in range(2):
        running.limits.opened(LISTENER, ADDRESS)
    return running.limits.refuses(LISTENER, ADDRESS)


def connection_rate(running: Running) -> object:
    """For each of some connections, whether the listener is throttled after it."""
    return [running.node.quotas.throttle_listener(LISTENER, False, running.started.now) > 0 for _ in range(50)]


TOPIC_DEFAULTS: dict[str, tuple[str, Observe]] = {
    definition.synonyms[0]: (value, partial(log_setting, name.replace(".", "_")))
    for name, value in {
        "cleanup.policy": "compact", "compression.type": "gzip", "delete.retention.ms": "5", "flush.messages": "5",
        "flush.ms": "5", "index.interval.bytes": "5", "max.compaction.lag.ms": "5", "max.message.bytes": "5000",
        "message.timestamp.after.max.ms": "5", "message.timestamp.before.max.ms": "5", "file.delete.delay.ms": "5",
        "message.timestamp.type": "LogAppendTime", "min.cleanable.dirty.ratio": "0.25", "min.compaction.lag.ms": "5",
        "preallocate": "true", "retention.bytes": "5", "retention.ms": "5", "segment.bytes": "2000000",
        "segment.index.bytes": "5000", "segment.jitter.ms": "5", "segment.ms": "5",
    }.items()
    if (definition := TOPIC[name])
}  # fmt: skip

OBSERVED: dict[str, tuple[str, Observe]] = TOPIC_DEFAULTS | {
    "cordoned.log.dirs": ("*", takes_new_replicas),
    "group.consumer.assignment.interval.ms": ("77", assignment_interval),
    "log.cleaner.backoff.ms": ("60000", compaction),
    "log.cleaner.dedupe.buffer.size": ("2200000", compaction),
    "log.cleaner.io.buffer.load.factor": ("0.0000001", compaction),
    "log.cleaner.io.max.bytes.per.second": ("100", compaction),
    "max.connection.creation.rate": ("2", connection_rate),
    "max.connections": ("2", connections),
    "max.connections.per.ip": ("2", connections),
    "max.connections.per.ip.overrides": (f"{ADDRESS}:2", connections),
    "min.insync.replicas": ("2", min_isr),
    "producer.id.expiration.ms": ("1000", remembered_producers),
    "transaction.partition.verification.enable": ("false", verifies),
    "unclean.leader.election.enable": ("true", allows_unclean_elections),
}
BESIDE = {"log.cleaner.dedupe.buffer.size": {"log.cleaner.io.buffer.load.factor": "0.00005"}}
"""Setting -> other settings in the file: 1 MB, the least that Kafka accepts, is more than the compacted log has."""
OF_LISTENER = {
    f"listener.name.plaintext.{name}": OBSERVED[name] for name in ("max.connections", "max.connection.creation.rate")
}

THREADS = """
    background.threads log.cleaner.threads num.io.threads num.network.threads num.recovery.threads.per.data.dir
    num.replica.fetchers
"""
SIZES = "compression.gzip.level compression.lz4.level compression.zstd.level log.cleaner.io.buffer.size"
NOT_HERE = """
    config.providers follower.fetch.last.tiered.offset.enable follower.replication.throttled.rate
    group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms group.streams.assignment.interval.ms
    leader.replication.throttled.rate log.local.retention.bytes log.local.retention.ms metric.reporters
    remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
    remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
    remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
    remote.log.manager.follower.thread.pool.size remote.log.reader.threads
    replica.alter.log.dirs.io.max.bytes.per.second share.coordinator.cached.buffer.max.bytes
"""
"""Unsupported settings (reference/README.md), and names of plug-in classes."""
UNREAD = {*THREADS.split(), *SIZES.split(), *NOT_HERE.split()}
TAKEN = CLUSTER_WIDE | {
    name
    for name in PER_BROKER - FIXED
    if not name.startswith(("ssl.", "sasl."))  # refused, but for Kerberos', which no listener speaks here
}


def test_each_setting_that_may_change_is_in_a_table() -> None:
    assert OBSERVED.keys() | UNREAD == TAKEN
    assert not OBSERVED.keys() & UNREAD


@cache
def sources() -> dict[str, str]:
    """Path -> text of each module that may read settings."""
    return {str(path): path.read_text() for path in sorted(SOURCES.rglob("*.py")) if path.name not in TABLES}


def readers(name: str) -> list[str]:
    """The modules that read a setting: by its name, by the cleaner's part of it, or as an attribute of LogConfig."""
    topics = {topic for topic, definition in TOPIC.items() if name in definition.synonyms}
    words = [f'"{each}"' for each in {name, name.removeprefix("log.cleaner."), *topics}]
    words += [f"{owner}.{topic.replace('.', '_')}" for topic in topics for owner in ("config", "self")]
    return [path for path, text in sources().items() if any(word in text for word in words)]


@pytest.mark.parametrize("name", sorted(UNREAD))
def test_a_setting_without_effect_is_read_nowhere(name: str) -> None:
    assert readers(name) == []


@pytest.mark.parametrize("name", sorted(OBSERVED.keys() - {"cordoned.log.dirs", "log.preallocate"}))
def test_a_setting_with_an_effect_is_read_somewhere(name: str) -> None:
    """Except two: a constant names the first, and files are not preallocated here."""
    assert readers(name)


@pytest.mark.parametrize("broker", ["1", ""], ids=["one broker", "all brokers"])
@pytest.mark.parametrize("name", sorted(OBSERVED | OF_LISTENER))
def test_a_running_node_follows(name: str, broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "min.insync.replicas":
        broker = ""  # all brokers have one, since replicas may be eligible leaders (KIP-966)
    if name in PER_BROKER:
        broker = "1"
    value, observe = (OBSERVED | OF_LISTENER)[name]
    file = BESIDE.get(name, {})
    running = Running(monkeypatch, file)
    running.alter(broker, name, value)
    changed: Any = observe(running)
    unchanged = observe(Running(monkeypatch, file))
    assert changed != unchanged
    assert changed == observe(Running(monkeypatch, {**file, name: value}))


def test_a_shorter_rest_of_the_cleaner_is_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(monkeypatch, {"log.cleaner.backoff.ms": "3600000"})
    started, cleaner = running.started, running.node.logs.directories[0].cleaner
    started.tick(4_000_000)
    assert cleaner.next_deadline() == started.now + 3_600_000
    started.tick(50_000)
    running.alter("", "log.cleaner.backoff.ms", "20000")
    assert running.node.next_deadline() <= started.now
    started.tick(0)
    assert cleaner.next_deadline() == started.now + 20_000


def test_a_higher_rate_of_the_cleaner_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(monkeypatch, {"log.cleaner.io.max.bytes.per.second": "0"})
    make_dirty(running, 200)  # more than a tick compacts
    cleaner = running.node.logs.directories[0].cleaner
    for _ in range(20):
        running.started.tick(EXPIRY_CHECK_MS)
    assert cleaner.cleaned_bytes == 0
    running.alter("", "log.cleaner.io.max.bytes.per.second", "1000000")
    for _ in range(5):
        running.started.tick(1000)
    assert cleaner.cleaned_bytes > 0


EXTREMES = (
    "true",
    "127.0.0.1:0",
    "*",
    "0",
    "-1",
    "NaN",
    "Infinity",
    "1e-320",
    "1e308",
    "2147483647",
    "9223372036854775807",
    "-9223372036854775808",
)


@pytest.mark.parametrize("name", sorted(OBSERVED.keys() - TOPIC_DEFAULTS.keys()))
def test_no_accepted_value_stops_the_node(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted = 0
    for value in EXTREMES:
        try:
            validate_broker_configs({name: value}, for_one_broker=True)
        except KafkaError:
            continue
        running = Running(monkeypatch, {})
        if running.altered("1" if name in PER_BROKER else "", name, value).error_code != 0:
            continue  # the settings together would be invalid
        accepted += 1
        OBSERVED[name][1](running)
        for _ in range(5):
            running.started.tick(max(1, min(running.node.next_deadline() - running.started.now, 10 * EXPIRY_CHECK_MS)))
        assert not running.node.is_broken, value
    assert accepted


DEFAULT_MS = 7 * 24 * 3_600_000


def create(node: Node) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    ask(node, CreateTopicsRequest(topics=[topic]), NOW)


def alter(node: Node, kind: int, resource: str, name: str, operation: int, value: str | None = None) -> None:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=operation, value=value)
    altered = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=resource, configs=[change]
    )
    ask(node, IncrementalAlterConfigsRequest(resources=[altered]), NOW)


def retention_ms(node: Node) -> int | None:
    return node.partitions["t", 0].log.config.retention_ms


def test_logs_follow_what_is_set_for_the_topic_for_the_broker_and_for_all() -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW)
    create(node)
    assert retention_ms(node) == DEFAULT_MS
    alter(node, BROKER_RESOURCE, "", "log.retention.ms", SET, "1000000")
    assert retention_ms(node) == 1_000_000
    alter(node, BROKER_RESOURCE, str(node.id), "log.retention.ms", SET, "2000000")
    assert retention_ms(node) == 2_000_000
    alter(node, TOPIC_RESOURCE, "t", "retention.ms", SET, "3000000")
    assert retention_ms(node) == 3_000_000
    alter(node, TOPIC_RESOURCE, "t", "retention.ms", SET, "4000000")
    assert retention_ms(node) == 4_000_000
    ask(node, DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=1), NOW)
    create(node)
    assert retention_ms(node) == 2_000_000
    alter(node, BROKER_RESOURCE, str(node.id), "log.retention.ms", DELETE)
    alter(node, BROKER_RESOURCE, "", "log.retention.ms", DELETE)
    assert retention_ms(node) == DEFAULT_MS
