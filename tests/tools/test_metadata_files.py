"""Kafka's kafka-dump-log decodes the quorum's log and snapshots."""

from __future__ import annotations

import json
import random
from pathlib import Path
from uuid import UUID

import pytest

from reference.controller.quorum import Quorum
from reference.controller.quorum_settings import QuorumSettings
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.primitives import FIRST_OFFSET, NodeId, TimestampMs
from reference.protocol.schema import Message
from reference.storage.log_directory import LogDirectory
from reference.storage.posix_disk import PosixDisk
from tests.storage.dump import complaints, dump

pytestmark = pytest.mark.java

TIME = TimestampMs(1_700_000_000_000)
NODE = NodeId(1)
TOPIC = UUID(int=77)
DECISIONS: list[list[Message]] = [
    [FeatureLevelRecord(name="metadata.version", feature_level=30)],
    [
        TopicRecord(name="orders", topic_id=TOPIC),
        PartitionRecord(
            partition_id=0, topic_id=TOPIC, replicas=[NODE], isr=[NODE], leader=NODE, directories=[UUID(int=5)]
        ),
    ],
    [ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5")],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two epochs, and a snapshot of each."""
    data = tmp_path_factory.mktemp("quorum")
    for decisions in (DECISIONS[:2], DECISIONS[2:]):
        logs = LogDirectory(PosixDisk(), data)
        logs.load(TIME)
        log = logs.metadata_log(TIME)
        quorum = Quorum(NODE, "a-cluster", QuorumSettings((NODE,)), PosixDisk(), log, random.Random(1), TIME)
        for records in decisions:
            quorum.append(records, TIME)
        committed = [record for _, record in quorum.committed(FIRST_OFFSET)]
        quorum.write_snapshot(quorum.high_watermark, committed, TIME)
        quorum.resign(TIME)
        logs.shut_down({}, TIME)
    return data / "__cluster_metadata-0"


def payloads(text: str) -> list[dict[str, object]]:
    """The metadata records that the tool printed."""
    return [json.loads(line.split("payload: ", 1)[1]) for line in text.splitlines() if "payload: {" in line]


def test_the_tool_decodes_the_log(folder: Path) -> None:
    text = dump([folder / "00000000000000000000.log"], "--cluster-metadata-decoder")
    assert complaints(text) == []
    assert text.count("LeaderChange: ") == 2
    assert '"leaderId":1' in text
    assert [each["type"] for each in payloads(text)] == [
        "FEATURE_LEVEL_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
    ]
    assert "partitionLeaderEpoch: 2" in text


def test_the_tool_decodes_snapshots(folder: Path) -> None:
    snapshots = sorted(folder.glob("*.checkpoint"))
    assert [path.name for path in snapshots] == [
        "00000000000000000004-0000000001.checkpoint",
        "00000000000000000006-0000000002.checkpoint",
    ]
    text = dump([snapshots[-1]], "--cluster-metadata-decoder")
    assert complaints(text) == []
    assert f'SnapshotHeader {{"version":0,"lastContainedLogTimestamp":{TIME}}}' in text
    assert "SnapshotFooter" in text
    assert [each["type"] for each in payloads(text)][-1] == "CONFIG_RECORD"
    assert payloads(text)[1]["data"] == {"name": "orders", "topicId": "AAAAAAAAAAAAAAAAAAAATQ"}
