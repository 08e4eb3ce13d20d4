"""The small files of a data folder, byte for byte as Kafka writes them."""

from pathlib import Path
from uuid import UUID

import pytest

from reference.protocol.primitives import BrokerEpoch, NodeId, Offset
from reference.storage.checkpoints import (
    MetaProperties,
    read_meta_properties,
    read_offsets,
    read_topic_id,
    take_clean_shutdown,
    text_of_uuid,
    uuid_of_text,
    write_clean_shutdown,
    write_meta_properties,
    write_offsets,
    write_topic_id,
)
from reference.storage.errors import CorruptFile
from reference.storage.simulated_disk import SimulatedDisk

ROOT = Path("/")


def test_offset_checkpoint(disk: SimulatedDisk) -> None:
    offsets = {("b", 1): Offset(5), ("a", 10): Offset(0), ("a", 2): Offset(1 << 40)}
    write_offsets(disk, ROOT / "c", offsets)
    assert disk.read_file(ROOT / "c") == b"0\n3\na 2 1099511627776\na 10 0\nb 1 5\n"
    assert read_offsets(disk, ROOT / "c") == offsets
    assert read_offsets(disk, ROOT / "missing") == {}


@pytest.mark.parametrize(
    "text",
    [
        *(b"0", b"2\n0\n", b"0\n2\na 1 2\n", b"0\n1\na 1\n", b"0\n1\na x 2\n", b"\xff\xfe"),
        *(b"0\n1\na 0 1_0\n", b"0\n1\na 0 %d\n" % (1 << 63), "0\n1\na 0 \u0663\n".encode()),
    ],
)
def test_a_damaged_offset_checkpoint_is_named(disk: SimulatedDisk, text: bytes) -> None:
    disk.write_file(ROOT / "c", text)
    with pytest.raises(CorruptFile):
        read_offsets(disk, ROOT / "c")


def test_partition_metadata(disk: SimulatedDisk) -> None:
    topic_id = uuid_of_text("VcDGZ8wSTIugXH2pC9OVlQ")
    write_topic_id(disk, ROOT, topic_id)
    assert disk.read_file(ROOT / "partition.metadata") == b"version: 0\ntopic_id: VcDGZ8wSTIugXH2pC9OVlQ"
    assert read_topic_id(disk, ROOT) == topic_id
    disk.write_file(ROOT / "partition.metadata", b"version: 1\ntopic_id: VcDGZ8wSTIugXH2pC9OVlQ")
    with pytest.raises(CorruptFile):
        read_topic_id(disk, ROOT)
    disk.remove(ROOT / "partition.metadata")
    assert read_topic_id(disk, ROOT) is None


def test_ids_are_spelled_as_kafka_spells_them() -> None:
    assert text_of_uuid(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_of_text("AAAAAAAAAAAAAAAAAAAAAQ") == UUID(int=1)
    with pytest.raises(CorruptFile):
        uuid_of_text("short")


def test_meta_properties(disk: SimulatedDisk) -> None:
    assert read_meta_properties(disk, ROOT) is None
    meta = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", NodeId(3), UUID(int=100))
    write_meta_properties(disk, ROOT, meta)
    assert read_meta_properties(disk, ROOT) == meta
    kafkas = b"#\n#Fri Nov 21 06:00:00 UTC 2026\nnode.id=3\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    disk.write_file(ROOT / "meta.properties", kafkas)
    assert read_meta_properties(disk, ROOT) == meta._replace(directory_id=UUID(int=0))
    disk.write_file(ROOT / "meta.properties", b"version=1\nnode.id=x\ncluster.id=c\n")
    with pytest.raises(CorruptFile):
        read_meta_properties(disk, ROOT)


def test_a_clean_end_is_taken_once(disk: SimulatedDisk) -> None:
    write_clean_shutdown(disk, ROOT, BrokerEpoch(17))
    assert disk.read_file(ROOT / ".kafka_cleanshutdown") == b'{"version": 0, "brokerEpoch": 17}'
    assert take_clean_shutdown(disk, ROOT) == 17
    assert take_clean_shutdown(disk, ROOT) is None
    disk.write_file(ROOT / ".kafka_cleanshutdown", b"")  # as Kafka wrote it before 3.7
    assert take_clean_shutdown(disk, ROOT) == -1
