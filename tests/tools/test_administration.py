"""Kafka's own administration tools against the reference: what an operator does, and what the tools then say."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from linearizability.targets import Target
from reference.protocol.apis import APIS
from tests.tools.conftest import Admin
from tests.tools.jvm import RELEASE

pytestmark = pytest.mark.java

PATIENCE_S = 30.0


def configs(text: str) -> dict[str, str]:
    """Name -> value, of what kafka-configs prints."""
    lines = [line.strip() for line in text.splitlines()[1:]]
    return dict(line.partition(" sensitive=")[0].split("=", 1) for line in lines)


class TestTopics:
    def test_create_describe_list_delete(self, admin: Admin) -> None:
        admin.topic("topic-of-a-test", "--config", "retention.ms=3600000", "--replication-factor", 1, partitions=3)
        described = admin("kafka-topics", "--describe", "--topic", "topic-of-a-test").well().splitlines()
        assert (
            "PartitionCount: 3\tReplicationFactor: 1\tConfigs: min.insync.replicas=1,retention.ms=3600000"
            in described[0]
        )
        for index, line in enumerate(described[1:], start=0):
            assert line.startswith(f"\tTopic: topic-of-a-test\tPartition: {index}\tLeader: 1\tReplicas: 1\tIsr: 1")
        assert len(described) == 4
        assert "topic-of-a-test" in admin("kafka-topics", "--list").well().split()
        admin("kafka-topics", "--delete", "--topic", "topic-of-a-test").well()
        assert "topic-of-a-test" not in admin("kafka-topics", "--list").well().split()
        gone = admin("kafka-topics", "--describe", "--topic", "topic-of-a-test")
        assert (gone.code, gone.out.strip()) == (
            1,
            "Error while executing topic command : Topic 'topic-of-a-test' does not exist as expected",
        )

    def test_a_deleted_topic_can_be_created_again_and_is_empty(self, admin: Admin) -> None:
        admin.topic("again")
        admin.produce("again", "old")
        admin("kafka-topics", "--delete", "--topic", "again").well()
        admin.topic("again")
        assert admin.offsets("again") == {0: 0}

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--create", "--topic", "taken"), "Topic 'taken' already exists."),
            (
                ("--create", "--topic", "wide", "--replication-factor", 2),
                "Unable to replicate the partition 2 time(s)",
            ),
            (("--create", "--topic", "wrong/name"), "is invalid|is illegal"),
            (("--alter", "--topic", "taken", "--partitions", 1), "The topic taken currently has 2 partition"),
            (("--alter", "--topic", "nowhere", "--partitions", 9), "Topic 'nowhere' does not exist as expected"),
        ],
    )
    def test_refusals_say_why(self, admin: Admin, arguments: tuple[object, ...], said: str) -> None:
        admin("kafka-topics", "--create", "--if-not-exists", "--topic", "taken", "--partitions", 2).well()
        refused = admin("kafka-topics", *arguments)
        assert refused.code == 1
        assert any(part in refused.out + refused.errors for part in said.split("|")), refused

    def test_more_partitions_on_a_live_topic(self, admin: Admin) -> None:
        admin.topic("growing", partitions=2)
        admin.produce("growing", "a", "b", "c")
        before = admin.offsets("growing")
        admin("kafka-topics", "--alter", "--topic", "growing", "--partitions", 5).well()
        assert "PartitionCount: 5" in admin("kafka-topics", "--describe", "--topic", "growing").well()
        assert admin.offsets("growing") == before | {2: 0, 3: 0, 4: 0}


class TestConfigs:
    def test_a_topics_settings_change_and_return_to_the_default(self, admin: Admin) -> None:
        admin.topic("settings", "--config", "max.message.bytes=2000")
        topic = ("kafka-configs", "--topic", "settings")
        admin(*topic, "--alter", "--add-config", "retention.ms=7200000,cleanup.policy=[compact,delete]").well()
        assert configs(admin(*topic, "--describe").well()) == {
            "cleanup.policy": "compact,delete",
            "max.message.bytes": "2000",
            "retention.ms": "7200000",
        }
        admin(*topic, "--alter", "--delete-config", "cleanup.policy,max.message.bytes").well()
        assert configs(admin(*topic, "--describe").well()) == {"retention.ms": "7200000"}
        everything = configs(admin(*topic, "--describe", "--all").well())
        assert everything["max.message.bytes"] == "1048588"
        assert everything["cleanup.policy"] == "delete"

    @pytest.mark.parametrize("change", ["retention.ms=soon", "cleanup.policy=burn", "no.such.config=1"])
    def test_a_wrong_value_changes_nothing(self, admin: Admin, change: str) -> None:
        admin("kafka-topics", "--create", "--if-not-exists", "--topic", "steady").well()
        refused = admin("kafka-configs", "--topic", "steady", "--alter", "--add-config", change)
        assert refused.code == 1
        assert "InvalidConfigurationException" in refused.errors
        assert configs(admin("kafka-configs", "--topic", "steady", "--describe").well()) == {}

    def test_retention_works_on_a_live_topic(self, admin: Admin) -> None:
        topic = admin.topic("retained", "--config", "segment.bytes=1048576", "--config", "file.delete.delay.ms=0")
        for text in "abc":
            admin.produce(topic, *(text * 60_000 for _ in range(15)))
        assert admin.offsets(topic, "--time", "earliest") == {0: 0}
        admin("kafka-configs", "--topic", topic, "--alter", "--add-config", "retention.bytes=1").well()
        deadline = time.monotonic() + PATIENCE_S
        while admin.offsets(topic, "--time", "earliest") == {0: 0}:
            assert time.monotonic() < deadline, "nothing was deleted"
            time.sleep(0.1)
        start, end = admin.offsets(topic, "--time", "earliest")[0], admin.offsets(topic)[0]
        assert 0 < start < end == 45
        first = admin(
            "kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", 1, "--timeout-ms", 20_000
        ).well()
        assert first.strip() == "abc"[start // 15] * 60_000

    def test_a_brokers_settings(self, admin: Admin, broker: Target) -> None:
        node = ("kafka-configs", "--broker", broker.nodes[0].id)
        everything = configs(admin(*node, "--describe", "--all").well())
        assert (everything["node.id"], everything["broker.id"]) == ("1", "1")
        assert everything["log.retention.check.interval.ms"] == "300"
        assert everything["num.partitions"] == "1"
        admin(*node, "--alter", "--add-config", "log.retention.ms=123456789").well()
        assert configs(admin(*node, "--describe").well()) == {"log.retention.ms": "123456789"}
        admin(*node, "--alter", "--delete-config", "log.retention.ms").well()
        assert configs(admin(*node, "--describe").well()) == {}


class TestOffsets:
    def test_get_offsets_of_each_kind(self, admin: Admin) -> None:
        topic = admin.topic("offsets")
        admin.produce(topic, "first")
        between_ms = time.time_ns() // 1_000_000 + 1
        time.sleep(0.01)
        admin.produce(topic, "second", "third")
        assert admin.offsets(topic) == {0: 3}
        assert admin.offsets(topic, "--time", "latest") == {0: 3}
        assert admin.offsets(topic, "--time", "earliest") == {0: 0}
        assert admin.offsets(topic, "--time", between_ms) == {0: 1}
        assert admin.offsets(topic, "--time", "max-timestamp")[0] in (1, 2)
        assert admin.offsets(topic, "--time", "earliest-local") == {0: 0}

    def test_delete_records(self, admin: Admin, tmp_path: Path) -> None:
        topic = admin.topic("deleted", partitions=2)
        admin.produce(topic, *"abcdef")
        full = next(partition for partition, offset in admin.offsets(topic).items() if offset == 6)
        file = tmp_path / "offsets.json"
        wanted = [(topic, full, 4), (topic, 1 - full, 99)]
        file.write_text(
            json.dumps({"version": 1, "partitions": [dict(zip(FIELDS, row, strict=True)) for row in wanted]})
        )
        said = admin("kafka-delete-records", "--offset-json-file", file).well()
        assert f"partition: {topic}-{full}\tlow_watermark: 4" in said
        assert f"partition: {topic}-{1 - full}\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException" in said
        assert admin.offsets(topic, "--time", "earliest") == {full: 4, 1 - full: 0}
        assert admin.offsets(topic) == {full: 6, 1 - full: 0}


FIELDS = ("topic", "partition", "offset")


class TestCluster:
    def test_cluster_id_and_endpoints(self, admin: Admin, broker: Target) -> None:
        cluster_id = broker.describe()["cluster_id"]
        assert admin("kafka-cluster", "cluster-id").well().strip() == f"Cluster ID: {cluster_id}"
        header, *rows = admin("kafka-cluster", "list-endpoints").well().splitlines()
        assert header.split()[:3] == ["ID", "HOST", "PORT"]
        node = broker.nodes[0]
        assert [row.split() for row in rows] == [
            [str(node.id), node.host, str(node.port), "null", "unfenced", "broker"]
        ]

    def test_log_dirs(self, admin: Admin, broker: Target) -> None:
        topic = admin.topic("measured", partitions=2)
        admin.produce(topic, "x" * 1000)
        said = admin("kafka-log-dirs", "--describe", "--topic-list", topic).well()
        found = json.loads(said.splitlines()[-1])["brokers"]
        (log_dir,) = found[0]["logDirs"]
        assert (len(found), found[0]["broker"], log_dir["error"]) == (1, broker.nodes[0].id, None)
        data = Path(log_dir["logDir"])
        assert {each["partition"]: each["size"] for each in log_dir["partitions"]} == {
            f"{topic}-{index}": (data / f"{topic}-{index}" / f"{0:020}.log").stat().st_size for index in range(2)
        }

    def test_broker_api_versions(self, admin: Admin) -> None:
        said = admin("kafka-broker-api-versions").well()
        for name in ("Produce", "Fetch", "ListOffsets", "Metadata", "CreateTopics", "DescribeConfigs", "ApiVersions"):
            line = next(line.strip() for line in said.splitlines() if line.strip().startswith(f"{name}("))
            newest = next(api for api in APIS.values() if api.name == name).releases[RELEASE][1]
            assert f"[usable: {newest}]" in line

    def test_describe_producers(self, admin: Admin) -> None:
        """The console producer is idempotent: its id and last sequence are the partition's state."""
        topic = admin.topic("producers")
        admin.produce(topic, "a", "b")
        admin.produce(topic, "c")
        said = admin("kafka-transactions", "describe-producers", "--topic", topic, "--partition", 0).well()
        header, *rows = [line.split("\t") for line in said.splitlines()]
        states = [dict(zip(header, (cell.strip() for cell in row), strict=False)) for row in rows]
        assert sorted((state["ProducerEpoch"], state["LastSequence"]) for state in states) == [("0", "0"), ("0", "1")]
        assert len({state["ProducerId"] for state in states}) == 2
