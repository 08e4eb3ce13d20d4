"""Snapshots: their files, how they replace the log's beginning, and how they reach members that are far behind."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.controller import quorum_messages as messages
from reference.controller.quorum_snapshots import BATCH_RECORDS, SnapshotId, Snapshots
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.primitives import FIRST_OFFSET, LeaderEpoch, Offset, TimestampMs
from reference.protocol.records.batch import read_batches
from reference.storage.errors import CorruptFile, OffsetOutOfRange, StorageError
from reference.storage.simulated_disk import SimulatedDisk
from tests.controller.quorum_members import LOG_FOLDER, Members, asker_of, topic

FOLDER = Path("/snapshots")


def snapshot(epoch: int, end: int) -> SnapshotId:
    return SnapshotId(LeaderEpoch(epoch), Offset(end))


ID = snapshot(3, 50)


def snapshots(disk: SimulatedDisk, log_start: int = 0) -> Snapshots:
    disk.make_folder(FOLDER)
    disk.sync_folder(Path("/"))
    return Snapshots(disk, FOLDER, Offset(log_start))


def written(count: int = 5) -> tuple[SimulatedDisk, Snapshots]:
    disk = SimulatedDisk()
    found = snapshots(disk)
    found.write(ID, [topic(number) for number in range(count)], (TimestampMs(111), TimestampMs(222)))
    return disk, found


@pytest.mark.parametrize("count", [0, 1, BATCH_RECORDS, BATCH_RECORDS + 1])
def test_what_is_written_is_read(count: int) -> None:
    disk, found = written(count)
    assert [*found.records(ID)] == [topic(number) for number in range(count)]
    assert found.last_contained_timestamp(ID) == 111
    batches = list(read_batches(disk.read_file(found.path(ID))))
    offsets = [offset for each in batches for offset in (each.header.base_offset, each.header.next_offset)]
    assert offsets == sorted(offsets)
    assert offsets[-1] == count + 2
    assert {each.header.leader_epoch for each in batches} == {3}


def test_a_snapshot_is_durable_or_not_there() -> None:
    disk, _ = written()
    receipt = snapshots(disk).receive(snapshot(4, 60))
    receipt.append(b"some bytes")
    disk.lose_power(Random(1))
    assert snapshots(disk).ids == [ID]
    assert disk.list_folder(FOLDER) == [ID.file_name]
    assert len(list(snapshots(disk).records(ID))) == 5


def test_snapshots_from_before_the_logs_start_are_removed() -> None:
    disk, _ = written()
    assert snapshots(disk, log_start=50).ids == [ID]
    assert snapshots(disk, log_start=51).ids == []
    assert disk.list_folder(FOLDER) == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_is_found_and_the_file_is_named(data: st.DataObject) -> None:
    disk, found = written(3)
    sound = disk.read_file(found.path(ID))
    if data.draw(st.booleans()):
        damaged = sound[: data.draw(st.integers(0, len(sound) - 1))]
    else:
        batch = data.draw(st.sampled_from(list(read_batches(sound))))
        at = batch.position + data.draw(st.integers(16, len(batch.data) - 1))
        damaged = bytearray(sound)
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    disk.write_file(found.path(ID), bytes(damaged))
    with pytest.raises(CorruptFile, match=ID.file_name):
        list(found.records(ID))


def test_a_disk_that_is_full_leaves_no_snapshot() -> None:
    disk, found = written()
    disk.read_only = True
    with pytest.raises(StorageError):
        found.write(snapshot(4, 60), [topic(1)], (TimestampMs(1), TimestampMs(2)))
    disk.read_only = False
    assert found.ids == snapshots(disk).ids == [ID]


# ---- in the quorum


def alone(**settings: Any) -> Members:
    members = Members(voters=1, **settings)
    members.start(0)
    return members


def append(members: Members, *numbers: int) -> None:
    for number in numbers:
        members[0].append([topic(number)], members.now)


def write_snapshot(members: Members, id: int = 0) -> SnapshotId | None:
    """A snapshot of all that is committed."""
    quorum = members[id]
    everything = [*quorum.snapshot_records()] if quorum.latest_snapshot else []
    start = quorum.latest_snapshot.end_offset if quorum.latest_snapshot else FIRST_OFFSET
    everything += [record for _, record in quorum.committed(start)]
    return quorum.write_snapshot(quorum.high_watermark, everything, members.now)


def image(members: Members, id: int = 0) -> list[str]:
    """The topics' names that a node would know after a start."""
    quorum = members[id]
    latest = quorum.latest_snapshot
    committed = quorum.committed(latest.end_offset if latest else FIRST_OFFSET)
    records = [*quorum.snapshot_records(), *(record for _, record in committed)]
    return [record.name for record in records if isinstance(record, TopicRecord)]


def test_a_start_takes_up_snapshot_and_log() -> None:
    members = alone()
    append(members, 1, 2)
    assert write_snapshot(members) == snapshot(1, 3)
    assert write_snapshot(members) is None
    append(members, 3)
    members.lose_power(0)
    members.start(0)
    assert members[0].take_snapshot_notice()
    assert not members[0].take_snapshot_notice()
    assert image(members) == ["t1", "t2", "t3"]


def test_no_snapshot_of_what_is_not_committed_or_torn() -> None:
    members = Members()
    members.start(0, 1, 2)
    quorum = members.elect(0)
    members.reaches = lambda sender, receiver: False
    quorum.append([topic(1), topic(2)], members.now)
    with pytest.raises(ValueError, match="where 1 is committed"):
        quorum.write_snapshot(Offset(3), [topic(1), topic(2)], members.now)
    members.reaches = lambda sender, receiver: True
    members.pass_time(3_000)
    assert quorum.high_watermark == 3
    with pytest.raises(ValueError, match="inside of a batch"):
        quorum.write_snapshot(Offset(2), [topic(1)], members.now)
    assert quorum.write_snapshot(Offset(1), [], members.now) == snapshot(1, 1)


def test_old_snapshots_and_the_log_below_them_are_removed_by_size() -> None:
    members = alone(retention_bytes=1500)
    for number in range(1, 40):
        append(members, number)
        if number % 10 == 0:
            write_snapshot(members)
    quorum = members[0]
    assert quorum.log_start_offset >= 11
    assert quorum.latest_snapshot == snapshot(1, 31)
    with pytest.raises(OffsetOutOfRange):
        list(quorum.committed(Offset(0)))
    expected = [f"t{number}" for number in range(1, 40)]
    assert image(members) == expected
    members.lose_power(0)
    members.start(0)
    assert image(members) == expected


def test_snapshots_that_just_fit_are_kept() -> None:
    """metadata.max.retention.bytes is the limit of the log and its snapshots together."""
    members = alone(retention_bytes=-1)
    for number in range(1, 21):
        append(members, number)
        if number % 10 == 0:
            write_snapshot(members)
    log = members[0].log
    size = log.log.size_bytes + sum(map(log.snapshots.size_bytes, log.snapshots.ids))
    kept = [*log.snapshots.ids]
    assert len(kept) == 2
    log.clean(members.now, members[0].high_watermark, size, -1)
    assert [*log.snapshots.ids] == kept
    log.clean(members.now, members[0].high_watermark, size - 1, -1)
    assert [*log.snapshots.ids] == kept[1:]


def test_old_snapshots_are_removed_by_their_age_and_the_newest_is_kept() -> None:
    members = alone(retention_ms=1000, retention_bytes=-1)
    append(members, 1)
    write_snapshot(members)
    members.now += 2000
    append(members, 2)
    write_snapshot(members)
    assert members[0].latest_snapshot == snapshot(1, 3)
    assert members[0].log_start_offset == 3
    members.now += 100_000
    assert members[0].next_deadline() is None
    members[0].tick(members.now)
    assert image(members) == ["t1", "t2"]


def test_a_log_without_its_beginning_is_refused() -> None:
    members = alone(retention_bytes=1500)
    for number in range(1, 40):
        append(members, number)
        if number % 10 == 0:
            write_snapshot(members)
    disk = members.disks[0]
    members[0].resign(members.now)
    for name in disk.list_folder(LOG_FOLDER):
        if name.endswith(".checkpoint") and name[0] == "0":
            disk.remove(LOG_FOLDER / name)
    with pytest.raises(CorruptFile, match=r"__cluster_metadata-0.*no snapshot reaches"):
        members.start(0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"leaderId": 1, "leaderEpoch": -4, "votedId": -1}',
        '{"leaderId": 1, "leaderEpoch": 4294967296, "votedId": -1}',
        '{"leaderId": -7, "leaderEpoch": 4, "votedId": -1}',
        '{"leaderId": 1, "leaderEpoch": 4, "votedId": -1, "votedDirectoryId": "AAAAAAAAAAAAA@AAAAAAAA"}',
        '{"leaderId": 1, "leaderEpoch": 4, "votedId": -1, "votedDirectoryId": 7}',
    ],
)
def test_a_quorum_state_that_is_damaged_is_named(text: str) -> None:
    members = alone()
    members.disks[0].write_file(LOG_FOLDER / "quorum-state", text.encode())
    with pytest.raises(CorruptFile, match="quorum-state"):
        members.start(0)


# ---- sending one


def far_behind(**settings: Any) -> Members:
    """Member 2 was away while the others replaced the beginning of their logs."""
    members = Members(snapshot_chunk_bytes=100, retention_bytes=1500, **settings)
    members.start(0, 1)
    members.elect(0)
    members.pass_time(1_000)
    for number in range(1, 40):
        members[0].append([topic(number)], members.now)
        members.deliver()
        if number % 10 == 0:
            write_snapshot(members)
    assert members[0].log_start_offset > 0
    return members


def test_a_member_far_behind_gets_a_snapshot_in_pieces() -> None:
    members = far_behind()
    members.start(2)
    assert not members[2].take_snapshot_notice()
    members.pass_time(3_000)
    assert members[2].take_snapshot_notice()
    assert image(members, 2) == image(members, 0) == [f"t{number}" for number in range(1, 40)]
    assert members[2].log_start_offset == 31
    members.lose_power(2)
    members.start(2)
    assert members[2].high_watermark >= 31
    members.pass_time(3_000)
    assert image(members, 2) == image(members, 0)


def exchange(members: Members, id: int, *, pieces: int, lost: bool = False) -> list[int]:
    """Deliver a member's requests until it has requested `pieces` pieces of a snapshot; return their positions.

    With `lost` every other request for a piece is lost.
    """
    positions: list[int] = []
    for _ in range(1000):
        members.now += 25
        members[id].tick(members.now)
        members[0].tick(members.now)
        for peer, request in members[id].take_sends():
            if isinstance(request, FetchSnapshotRequest):
                positions.append(request.topics[0].partitions[0].position)
                if lost and len(positions) % 2:
                    members[id].unreachable(peer, request, members.now)
                    continue
            response = members.ask(peer, request, "token")
            if response is None:
                response = next(each for token, each in members[peer].take_answers() if token == "token")
            members[id].receive(peer, request, response, members.now)
            if len(positions) == pieces or members[id].latest_snapshot is not None:
                return positions
    raise AssertionError(positions)


def test_a_snapshot_is_fetched_on_where_the_connection_broke() -> None:
    members = far_behind()
    members.start(2)
    positions = exchange(members, 2, pieces=1000, lost=True)
    assert members[2].latest_snapshot == members[0].latest_snapshot
    assert positions == sorted(positions)
    assert len(set(positions)) > 3
    assert len(positions) == 2 * len(set(positions))


def test_a_snapshot_that_is_damaged_on_its_way_is_not_taken() -> None:
    members = far_behind()
    latest = members[0].latest_snapshot
    assert latest is not None
    path = LOG_FOLDER / latest.file_name
    sound = members.disks[0].read_file(path)
    members.disks[0].write_file(path, sound[:-1] + bytes([sound[-1] ^ 1]))
    members.start(2)
    members.pass_time(2_000)
    assert members[2].latest_snapshot is None
    assert any("no snapshot" in saying for saying in members.sayings)
    members.disks[0].write_file(path, sound)
    members.pass_time(3_000)
    assert members[2].latest_snapshot == latest


@pytest.mark.parametrize(
    ("epoch", "id", "position", "code"),
    [
        (0, None, 0, ErrorCode.FENCED_LEADER_EPOCH),
        (9, None, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, snapshot(1, 5), 0, ErrorCode.SNAPSHOT_NOT_FOUND),
        (1, None, 1 << 30, ErrorCode.POSITION_OUT_OF_RANGE),
        (1, None, -1, ErrorCode.POSITION_OUT_OF_RANGE),
    ],
)
def test_pieces_that_are_refused(epoch: int, id: SnapshotId | None, position: int, code: ErrorCode) -> None:
    members = far_behind()
    latest = members[0].latest_snapshot
    assert latest is not None
    request = messages.fetch_snapshot_request(asker_of(2, epoch), id or latest, position, 100)
    answer = members.ask(0, request).topics[0].partitions[0]
    assert answer.error_code == code
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (0, 1)


def test_pieces_that_are_refused_as_a_whole() -> None:
    members = far_behind()
    latest = members[0].latest_snapshot
    assert latest is not None
    request = messages.fetch_snapshot_request(asker_of(2, 1, "another"), latest, 0, 100)
    assert members.ask(0, request).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    request = messages.fetch_snapshot_request(asker_of(2, 1), latest, 0, 100)
    request.topics[0].name = "another"
    answer = members.ask(0, request).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request.topics = []
    assert members.ask(0, request).error_code == ErrorCode.INVALID_REQUEST


def test_a_snapshot_that_is_gone_is_looked_for_again() -> None:
    members = far_behind()
    members.start(2)
    assert len(exchange(members, 2, pieces=3)) == 3
    assert members[2].latest_snapshot is None
    for number in range(40, 61):
        members[0].append([topic(number)], members.now)
        members.deliver()
        if number % 10 == 0:
            write_snapshot(members)
    members.pass_time(4_000)
    assert image(members, 2) == [f"t{number}" for number in range(1, 61)]
