"""Numbers that must not be confused are types of their own: pyright refuses to take one for another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.repository.carry import ROOT

SWAPS = """
from reference.controller.image import PartitionImage
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.primitives import (
    BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, ProducerEpoch, ProducerId, TimestampMs,
)
from reference.protocol.records.batch import BatchHeader, BatchProducer, build
from reference.replication.fencing import check_leader_epoch
from reference.replication.partition import Partition
from reference.replication.partition_state import PartitionState
from reference.replication.reading import FollowerFetch
from reference.storage.log import Log
from reference.storage.truncation_point import truncation_point


def storage(log: Log, header: BatchHeader, offset: Offset, epoch: LeaderEpoch, now: TimestampMs):
    log.truncate_to(offset)
    log.truncate_to(offset + 1)
    log.truncate_to(header.base_offset)
    log.truncate_to(header.base_offset - 1)
    log.truncate_to(epoch)  # refused
    log.truncate_to(now)  # refused
    log.truncate_to(header.leader_epoch)  # refused
    log.truncate_to(log.leader_epoch)  # refused
    log.truncate_to(log.log_end_offset - offset)  # refused: a distance
    log.assign_epoch_start(epoch, offset)
    log.assign_epoch_start(offset, epoch)  # refused
    log.end_offset_for_epoch(log.log_end_offset)  # refused
    truncation_point(epoch, offset, epoch, offset, offset, offset)
    truncation_point(epoch, offset, offset, epoch, offset, offset)  # refused


def replication(partition: Partition, node: NodeId, epoch: LeaderEpoch, version: PartitionEpoch, incarnation: BrokerEpoch):
    end, now = partition.log.log_end_offset, TimestampMs(0)
    PartitionState(node, epoch, version, (node,), (node,))
    PartitionState(node, version, epoch, (node,), (node,))  # refused
    check_leader_epoch(epoch, partition.state.leader_epoch)
    check_leader_epoch(epoch, partition.state.partition_epoch)  # refused
    partition.require_leader(epoch).answer_fetch(FollowerFetch(node, incarnation, end, epoch, epoch, 1, True), now)
    FollowerFetch(node, end, epoch, epoch, epoch, 1, True)  # refused
    partition.require_follower_of(node).truncate(epoch, end)
    partition.require_follower_of(node).truncate(end, epoch)  # refused
    partition.high_watermark = end
    partition.high_watermark = epoch  # refused
    partition.high_watermark = partition.log.leader_epoch  # refused


def wire(partition: Partition, asked: FetchRequest.FetchPartition, answer: FetchResponse.PartitionData):
    partition.require_leader(asked.current_leader_epoch)
    partition.require_leader(asked.fetch_offset)  # refused
    partition.log.truncate_to(answer.diverging_epoch.end_offset)
    partition.log.truncate_to(answer.diverging_epoch.epoch)  # refused
    asked.fetch_offset = 5


def producers(image: PartitionImage, id: ProducerId, epoch: ProducerEpoch, leader_epoch: LeaderEpoch):
    build([], producer=BatchProducer(id, epoch))
    BatchProducer(epoch)  # refused
    BatchProducer(id, leader_epoch)  # refused
    build([], leader_epoch=image.partition_epoch)  # refused
"""


def test_pyright_refuses_to_take_one_number_for_another(tmp_path: Path) -> None:
    (tmp_path / "swaps.py").write_text(SWAPS)
    configuration = {"include": ["swaps.py"], "extraPaths": [str(ROOT)], "typeCheckingMode": "basic"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(configuration))
    command = [sys.executable, "-m", "pyright", "--project", str(tmp_path), "--outputjson"]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=300).stdout
    refused = {each["range"]["start"]["line"] for each in json.loads(said)["generalDiagnostics"]}
    assert refused == {number for number, line in enumerate(SWAPS.splitlines()) if "# refused" in line}
