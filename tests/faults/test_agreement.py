"""The comparison of nodes after a hunt finds each kind of difference, and none where there is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from linearizability import agreement
from linearizability.agreement import METADATA_LOG, Agreement, Unsettled, compare_nodes
from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.workload.cluster import create_topic
from reference.controller.metadata_records import encode_metadata_record
from reference.controller.quorum_snapshots import SnapshotId, Snapshots
from reference.protocol.messages.client_quota_record import ClientQuotaRecord
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.primitives import FIRST_EPOCH, FIRST_OFFSET, LeaderEpoch, Offset, TimestampMs
from reference.protocol.records.batch import build
from reference.protocol.records.record import Record
from reference.protocol.schema import Message
from reference.storage.posix_disk import PosixDisk

TIME = TimestampMs(0)


def partition(data: Path, *batches: tuple[int, int, bytes], epochs: str) -> agreement.Copy:
    """A replica of t-0 of batches of one record: offset, epoch, value."""
    home = data / "t-0"
    home.mkdir(parents=True)
    built = (
        build([Record(Offset(offset), TIME, None, value)], leader_epoch=LeaderEpoch(epoch))
        for offset, epoch, value in batches
    )
    (home / "00000000000000000000.log").write_bytes(b"".join(built))
    (home / "leader-epoch-checkpoint").write_text(f"0\n{epochs.count(',') + 1}\n" + epochs.replace(",", "\n") + "\n")
    return agreement._copy(data, "t-0", int(data.name))


BASE = [(0, 0, b"a"), (1, 2, b"b")]


@pytest.mark.parametrize(
    ("batches", "epochs", "found"),
    [
        (BASE, "0 0,2 1", []),
        (BASE, "0 0,1 1,2 1,3 2", []),  # epochs in which nothing was written
        (BASE[:1], "0 0", ["log: t-0 ends at 2 on node 1, at 1 on node 2"]),
        ([BASE[0], (1, 2, b"c")], "0 0,2 1", ["log: t-0 at 1: node 1 holds 1 to 1 of epoch 2"]),
        ([BASE[0], (1, 1, b"b")], "0 0,1 1", ["log: t-0 at 1: node 1 holds 1 to 1 of epoch 2"]),
        (BASE, "0 0,1 1", ["leader epochs: t-0 on node 2: the batches say [(0, 0), (2, 1)], the checkpoint [(0, 0), (1, 1)]"]),
    ],
)  # fmt: skip
def test_replicas_differ_by_end_by_bytes_or_by_epochs(
    batches: list[tuple[int, int, bytes]], epochs: str, found: list[str], tmp_path: Path
) -> None:
    first = partition(tmp_path / "1", *BASE, epochs="0 0,2 1")
    second = partition(tmp_path / "2", *batches, epochs=epochs)
    said = [*agreement._unlike("t-0", [first, second], None)]
    assert len(said) == len(found) and all(one.startswith(other) for one, other in zip(said, found, strict=True)), said


@pytest.mark.parametrize(
    ("epochs", "is_right"), [("0 0,2 3,3 4", True), ("0 1,2 3,3 4", True), ("0 1,2 4", False), ("0 0,2 2,3 4", False)]
)
def test_kafka_may_note_the_first_epoch_later_than_it_begins(epochs: str, is_right: bool, tmp_path: Path) -> None:
    """Its broker led once more in epoch 2, from offset 1 on, and then followed: a hunt of a mixed cluster showed it."""
    batches = [(0, 0, b"a"), (1, 0, b"b"), (2, 0, b"c"), (3, 2, b"d"), (4, 3, b"e")]
    copy = partition(tmp_path / "1", *batches, epochs=epochs)
    assert bool([*agreement._unlike("t-0", [copy], None)]) != is_right


@pytest.mark.parametrize(("flushed_to", "is_reference", "differ"), [(1, True, 0), (2, True, 1), (1, False, 1)])
def test_the_reference_alone_may_lack_the_epochs_that_it_has_not_flushed(
    flushed_to: int, is_reference: bool, differ: int, tmp_path: Path
) -> None:
    partition(tmp_path / "1", *BASE, epochs="0 0")
    (tmp_path / "1" / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {flushed_to}\n")
    copy = agreement._copy(tmp_path / "1", "t-0", 1, is_reference)
    assert len([*agreement._unlike("t-0", [copy], None)]) == differ


def test_a_partition_without_a_leader_is_not_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = tmp_path / "1"
    monkeypatch.setattr(agreement, "_served", lambda node: {("t", 0): (-1, 3, (1,), ())})
    monkeypatch.setattr(agreement, "METADATA_LOG", "t-0")
    partition(data, *BASE, epochs="0 0,2 1")
    member = SimpleNamespace(data=data, node=SimpleNamespace(id=1))
    found = Agreement()
    agreement._compare_logs(cast(ClusterTarget, SimpleNamespace(nodes=[member.node], members=[member])), found)
    assert found.reasons == ["t-0 has no leader"] and not found.differences and found.replicas == 0


def feature(name: str, level: int) -> Message:
    return FeatureLevelRecord(name=name, feature_level=level)


def quota() -> Message:
    entity = [ClientQuotaRecord.EntityData(entity_type="client-id", entity_name="app")]
    return ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1.0)


def metadata(data: Path, logged: list[Message], snapshot: list[Message] | None, snapshot_end: int) -> Path:
    home = data / METADATA_LOG
    home.mkdir(parents=True)
    if snapshot is not None:
        id = SnapshotId(LeaderEpoch(1), Offset(snapshot_end))
        Snapshots(PosixDisk(), home, FIRST_OFFSET).write(id, snapshot, (TIME, TIME))
    batches = [build([Record(Offset(at), TIME, None, encode_metadata_record(each))]) for at, each in enumerate(logged)]
    (home / "00000000000000000000.log").write_bytes(b"".join(batches))
    return home


def test_a_record_that_a_nodes_snapshot_dropped_is_missing_in_its_image(tmp_path: Path) -> None:
    logged = [feature("a", 1), quota(), feature("b", 0), feature("c", 2)]
    whole = metadata(tmp_path / "1", logged, logged[:2], 2)
    dropped = metadata(tmp_path / "2", logged, logged[:1], 2)
    assert agreement._image(whole, 4)[0] == 2
    assert agreement._image(whole, 4)[1].carried
    assert not agreement._image(dropped, 4)[1].carried
    with pytest.raises(Unsettled, match="ends at 4, not at 5"):
        agreement._image(whole, 5)


@pytest.mark.parametrize(("given", "reasons"), [({}, 0), (agreement.SNAPSHOT_OFTEN, 2)])
def test_a_node_without_a_snapshot_is_not_judged_where_it_was_to_write_one(
    given: dict[str, str], reasons: int, tmp_path: Path
) -> None:
    """The suite starts nodes that need not have written one by the end of its hunt."""
    members = [
        SimpleNamespace(
            data=metadata(tmp_path / str(id), [feature("a", 1)], None, 0).parent, node=SimpleNamespace(id=id)
        )
        for id in (1, 2)
    ]
    found = Agreement()
    agreement._compare_images(cast(ClusterTarget, SimpleNamespace(members=members, given=given)), found)
    assert len(found.reasons) == reasons and not found.differences and found.image_records == 1


@pytest.mark.process
def test_a_healed_cluster_agrees_and_a_changed_byte_is_found(tmp_path: Path) -> None:
    config = {"metadata.log.max.record.bytes.between.snapshots": "1"}
    with open_target("reference:2", folder=tmp_path, config=config) as target:
        assert isinstance(target, ClusterTarget)
        create_topic(target.nodes, "t", partitions=1, replication_factor=2, configs={})
        agreed = compare_nodes(target)
        assert (agreed.differences, agreed.reasons) == ([], []) and agreed.replicas == 2 and agreed.image_records > 3
        checkpoint = target.members[1].data / "t-0" / "00000000000000000000.log"
        checkpoint.write_bytes(build([Record(FIRST_OFFSET, TIME, None, b"of nowhere")], leader_epoch=FIRST_EPOCH))
        assert compare_nodes(target, 0).differences
        target.kill(2)
        assert compare_nodes(target, 0) != Agreement()
        assert compare_nodes(target, 0).reasons
