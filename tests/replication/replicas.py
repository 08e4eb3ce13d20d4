"""Replicas for tests: real logs on simulated disks, and brokers that are registered."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from reference.protocol.primitives import BrokerEpoch, Buffer, LeaderEpoch, NodeId, Offset, PartitionEpoch, TimestampMs
from reference.protocol.records.batch import assign, build, read_all_records
from reference.protocol.records.record import Record
from reference.replication.partition import Partition, PartitionState
from reference.replication.partition_state import Peer
from reference.replication.reading import FollowerFetch, Read
from reference.storage.config import LogConfig
from reference.storage.disk import Disk
from reference.storage.log import Log
from reference.storage.recovery import PreviousRun
from reference.storage.segment_list import LogIdentity
from reference.storage.simulated_disk import SimulatedDisk

NOW = TimestampMs(1_700_000_000_000)
TOPIC_ID = UUID(int=7)
ALL = (NodeId(1), NodeId(2), NodeId(3))
LAG_MS = 10_000


def nodes(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, numbers))


def incarnation(node: int) -> BrokerEpoch:
    """The broker epoch that a node has in its first incarnation."""
    return BrokerEpoch(100 + node)


class Registry:
    """The registrations of brokers in the metadata."""

    def __init__(self, nodes: Sequence[int] = ALL) -> None:
        self.peers = {node: Peer(incarnation(node)) for node in nodes}

    def __call__(self, node: int) -> Peer | None:
        return self.peers.get(node)


def open_log(disk: Disk | None = None, config: LogConfig | None = None, now: TimestampMs = NOW, **previous: Any) -> Log:
    disk = disk or SimulatedDisk()
    disk.make_folder(Path("/data"))
    disk.sync_folder(Path("/"))
    of = LogIdentity("t", 0, TOPIC_ID)
    return Log(disk, Path("/data/t-0"), config or LogConfig(), now, of, PreviousRun(**previous))


def replica(node: int = 1, registry: Registry | None = None, log: Log | None = None, **settings: Any) -> Partition:
    """A replica without a role."""
    settings.setdefault("lag_max_ms", LAG_MS)
    return Partition("t", TOPIC_ID, 0, log or open_log(), NodeId(node), brokers=registry or Registry(), **settings)


def state(
    leader: int = 1, epoch: int = 5, partition_epoch: int = 10, isr: Sequence[int] = ALL, replicas: Sequence[int] = ALL
) -> PartitionState:
    return PartitionState(
        NodeId(leader), LeaderEpoch(epoch), PartitionEpoch(partition_epoch), nodes(*replicas), nodes(*isr)
    )


def leader(isr: Sequence[int] = ALL, registry: Registry | None = None, **settings: Any) -> Partition:
    """Broker 1 in its leader epoch of epoch 5."""
    found = replica(1, registry, **settings)
    assert found.take_up(state(isr=isr), NOW)
    return found


def follower(node: int = 2, **settings: Any) -> Partition:
    """A broker that follows broker 1 in its leader epoch of epoch 5."""
    found = replica(node, **settings)
    assert found.take_up(state(), NOW)
    return found


def batch(*values: bytes, base_offset: int = 0, epoch: int = -1, time: TimestampMs = NOW) -> bytearray:
    """A batch as a producer sends it, or with an offset and an epoch as a leader sends it."""
    found = build([Record(Offset(index), time, None, value) for index, value in enumerate(values)])
    if epoch >= 0:
        assign(found, Offset(base_offset), LeaderEpoch(epoch))
    return found


def fetch(
    leading: Partition, node: int, offset: int, *, now: TimestampMs = NOW, last_epoch: int = -1, **changes: Any
) -> Read:
    """A follower's fetch in its first incarnation and in the leader's epoch."""
    last = LeaderEpoch(last_epoch)
    asked = FollowerFetch(NodeId(node), incarnation(node), Offset(offset), last, leading.leader_epoch, 1 << 20, True)
    asked = asked._replace(**changes)
    return leading.require_leader(asked.asked_epoch).answer_fetch(asked, now)


def take(
    following: Partition, records: Buffer, at: int, high_watermark: int = 0, start: int = 0, *, leader: int = 1
) -> bool:
    """Append a leader's batches to a follower's log."""
    found = following.require_follower_of(NodeId(leader))
    return found.append_fetched(Offset(at), records, Offset(high_watermark), Offset(start), NOW)


def bytes_of(records: Any) -> bytes:
    return records if isinstance(records, bytes) else records.read()


def values(records: Any) -> list[bytes]:
    """The values of all records of a read."""
    return [bytes(record.value or b"") for record in read_all_records(bytes_of(records))]


def contents(log: Log) -> list[tuple[int, int, bytes]]:
    """All records of a log: offset, epoch, value."""
    found: list[tuple[int, int, bytes]] = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        data = bytes_of(log.read(at, 1 << 20).records)
        read = [record for record in read_all_records(data) if record.offset >= at]
        found += [(record.offset, log.epoch_at(record.offset), bytes(record.value or b"")) for record in read]
        at = read[-1].offset + 1
    return found


def steps_of(watched: Partition) -> list[str]:
    """The steps that a replica reports from now on."""
    reported: list[str] = []
    watched.trace = lambda action, row: reported.append(action)
    return reported
