"""The metadata log on its own: appended records are replayed, and a failed append leaves nothing."""

from __future__ import annotations

import pytest

from reference.controller.metadata_log import MAX_RECORDS_IN_BATCH, MetadataLog
from reference.protocol.codec import decode
from reference.protocol.messages.leader_change_message import LeaderChangeMessage
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.primitives import FIRST_OFFSET, LeaderEpoch, NodeId, Offset
from reference.protocol.records.batch import build, read_all_records
from reference.protocol.records.record import Record
from reference.protocol.records.validate import Origin
from reference.storage.errors import CorruptFile, StorageError
from reference.storage.log_directory import METADATA_LOG_CONFIG
from reference.storage.simulated_disk import SimulatedDisk
from tests.controller.cluster import nodes
from tests.controller.quorum_members import topic
from tests.storage.logs import FOLDER, NOW, open_log

NODE, EPOCH = NodeId(0), LeaderEpoch(1)


def names(log: MetadataLog, start: Offset = FIRST_OFFSET, end: Offset | None = None) -> list[tuple[int, str]]:
    return [(offset, each.name) for offset, each in log.replay(start, end) if isinstance(each, TopicRecord)]


def test_records_of_a_decision_are_replayed_in_their_order() -> None:
    log = MetadataLog(open_log())
    log.begin_epoch(EPOCH, NODE, nodes(0, 1), NOW)
    assert log.append([topic(1), topic(2)], EPOCH, NOW) == 1
    assert log.append([topic(3)], EPOCH, NOW) == 3
    assert names(log) == [(1, "t1"), (2, "t2"), (3, "t3")]
    assert names(log, start=Offset(2)) == [(2, "t2"), (3, "t3")]
    assert names(log, end=Offset(3)) == [(1, "t1"), (2, "t2")]
    assert names(log, start=Offset(4)) == []


def test_the_first_record_of_an_epoch_says_who_leads_and_who_voted() -> None:
    log = MetadataLog(open_log())
    log.begin_epoch(LeaderEpoch(4), NodeId(2), nodes(0, 1, 2), NOW, granting=nodes(1, 2))
    data = log.log.read(FIRST_OFFSET, 1000).records
    (record,) = read_all_records(data if isinstance(data, bytes) else data.read())
    message = decode(LeaderChangeMessage, 0, record.value or b"")
    assert message.leader_id == 2
    assert [each.voter_id for each in message.voters] == [0, 1, 2]
    assert [each.voter_id for each in message.granting_voters] == [1, 2]
    assert log.log.recovery_point == 1


def test_a_write_that_fails_leaves_neither_record_nor_epoch() -> None:
    disk = SimulatedDisk()
    log = MetadataLog(open_log(disk))
    log.begin_epoch(EPOCH, NODE, [NODE], NOW)
    disk.capacity_bytes = disk.used_bytes + 150
    with pytest.raises(StorageError):
        log.append([topic(number) for number in range(100)], LeaderEpoch(2), NOW)
    disk.capacity_bytes = None
    assert log.log.log_end_offset == 1
    assert log.log.leader_epoch == 1
    log.append([topic(1)], LeaderEpoch(3), NOW)
    assert (log.log.epoch_at(FIRST_OFFSET), log.log.epoch_at(Offset(1))) == (1, 3)


def test_no_decision_is_larger_than_a_batch() -> None:
    log = MetadataLog(open_log())
    with pytest.raises(AssertionError):
        log.append([topic(1)] * (MAX_RECORDS_IN_BATCH + 1), EPOCH, NOW)


def test_damage_is_found_and_its_place_is_named() -> None:
    disk = SimulatedDisk()
    log = MetadataLog(open_log(disk))
    log.begin_epoch(EPOCH, NODE, [NODE], NOW)
    log.append([topic(1)], EPOCH, NOW)
    position = len(log.log.read(FIRST_OFFSET, 1).records)
    log.append([topic(2)], EPOCH, NOW)
    file = FOLDER / "00000000000000000000.log"
    sound = disk.read_file(file)
    epochs = {position + each for each in (12, 13, 14, 15)} | {2 * position + each for each in (12, 13, 14, 15)}
    for at in sorted(set(range(position, len(sound))) - epochs):
        damaged = bytearray(sound)
        damaged[at] ^= 0x10
        disk.open_file(file).write_at(0, bytes(damaged))
        with pytest.raises(CorruptFile, match=r"t-0: no metadata at offset [12]:"):
            list(log.replay(FIRST_OFFSET))
    disk.open_file(file).write_at(0, sound)
    assert names(log) == [(1, "t1"), (2, "t2")]


def test_a_record_that_is_no_metadata_is_reported_with_its_offset() -> None:
    log = MetadataLog(open_log())
    batch = build([Record(FIRST_OFFSET, NOW, None, b"\x05nonsense")])
    log.log.append_as_leader(batch, EPOCH, NOW, Origin.RAFT_LEADER)
    with pytest.raises(CorruptFile, match="no metadata at offset 0: a metadata record of frame version 5"):
        list(log.replay(FIRST_OFFSET))


@pytest.mark.parametrize("byte", [*range(8), *range(12, 16)])
def test_a_batch_with_another_offset_or_epoch_than_its_place_has_is_cut_off(byte: int) -> None:
    """No checksum covers the base offset and the leader epoch of a batch."""
    disk = SimulatedDisk()
    log = MetadataLog(open_log(disk, METADATA_LOG_CONFIG))
    log.begin_epoch(EPOCH, NODE, [NODE], NOW)
    for number in (1, 2):
        position = log.log.size_bytes
        log.append([topic(number)], EPOCH, NOW)
    size = log.log.size_bytes
    file = FOLDER / f"{0:020}.log"
    was = disk.open_file(file).read(position + byte, 1)[0]
    disk.map_file(file).write_at(position + byte, bytes([was ^ 0x55]))
    again = MetadataLog(open_log(disk, METADATA_LOG_CONFIG))
    assert again.log.lost_bytes == size - position
    assert names(again) == [(1, "t1")]
