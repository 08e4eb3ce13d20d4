"""The durable state of a voter: the epoch, the leader, and its vote in the epoch. The file `quorum-state`.

Source: KIP-595; org.apache.kafka.raft.FileQuorumStateStore (JSON, data_version 1).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from reference.protocol.primitives import FIRST_EPOCH, NO_NODE, NO_UUID, LeaderEpoch, NodeId
from reference.storage.checkpoints import text_of_uuid, uuid_of_text
from reference.storage.disk import Disk
from reference.storage.errors import CorruptFile

DATA_VERSION = 1


@dataclass(frozen=True, slots=True)
class QuorumState:
    leader: NodeId = NO_NODE
    leader_epoch: LeaderEpoch = FIRST_EPOCH
    voted: NodeId = NO_NODE
    voted_directory: UUID = NO_UUID
    """The directory of the node that has the vote, if the voters are in the log (KIP-853)."""


def read_quorum_state(disk: Disk, folder: Path) -> QuorumState:
    """The stored state; epoch 0 if there is no file. Errors: CorruptFile."""
    path = folder / "quorum-state"
    if not disk.exists(path):
        return QuorumState()
    try:
        data: dict[str, Any] = json.loads(disk.read_file(path))
        state = QuorumState(
            NodeId(int(data["leaderId"])),
            LeaderEpoch(int(data["leaderEpoch"])),
            NodeId(int(data["votedId"])),
            uuid_of_text(data["votedDirectoryId"]) if "votedDirectoryId" in data else NO_UUID,
        )
        if min(state.leader, state.voted) < -1 or not 0 <= state.leader_epoch < 2**31:
            raise ValueError(f"{state} has an id or an epoch out of range")
        return state
    except (ValueError, KeyError, TypeError, CorruptFile) as error:
        raise CorruptFile(f"{path}: no quorum state: {error}") from error


def write_quorum_state(disk: Disk, folder: Path, state: QuorumState) -> None:
    """Store the state durably, before any message reports it. Errors: OSError."""
    data = {
        "leaderId": state.leader,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted,
        "votedDirectoryId": text_of_uuid(state.voted_directory),
        "data_version": DATA_VERSION,
    }
    disk.write_file(folder / "quorum-state", json.dumps(data).encode())
