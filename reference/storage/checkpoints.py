"""The small files of a data folder, each written as a whole and durably.

*-offset-checkpoint        version 0, number of lines, then `topic partition offset`
leader-epoch-checkpoint    version 0, number of lines, then `epoch start_offset`
partition.metadata         `version: 0`, `topic_id: ...`
meta.properties            `version=1`, `cluster.id`, `node.id`, `directory.id`
.kafka_cleanshutdown       JSON: version and the broker's epoch at its shutdown
"""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from reference.protocol.primitives import NO_UUID, BrokerEpoch, NodeId, Offset
from reference.protocol.records.validate import MAX_LONG
from reference.storage.disk import Disk
from reference.storage.errors import CorruptFile

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

NUMBER = re.compile(r"[+-]?[0-9]{1,19}")

MOST_RESERVED = 99
"""Directory ids up to here have a meaning of their own (org.apache.kafka.common.DirectoryId)."""

TopicPartition = tuple[str, int]


def read_lines(disk: Disk, path: Path, words: int) -> list[list[str]]:
    """The lines of a version 0 checkpoint, as words; none when there is no file, or nothing in it. Errors: CorruptFile.

    Apache Kafka leaves empty files, such as the `leader-epoch-checkpoint` of a partition without records.
    """
    try:
        lines = disk.read_file(path).decode().splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise CorruptFile(f"{path.name} is not text") from None
    if not lines:
        return []
    if len(lines) < 2 or lines[0] != "0" or lines[1] != str(len(lines) - 2):
        raise CorruptFile(
            f"{path.name} does not begin with version 0 and the number of its {max(0, len(lines) - 2)} lines"
        )
    split = [line.split() for line in lines[2:]]
    if any(len(line) != words for line in split):
        raise CorruptFile(f"{path.name} has a line that is not {words} words")
    return split


def write_lines(disk: Disk, path: Path, lines: list[str]) -> None:
    """Write a version 0 checkpoint."""
    disk.write_file(path, "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode())


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, Offset]:
    """Offsets by partition; none when there is no file. Errors: CorruptFile."""
    return {
        (topic, number_of(partition, path)): Offset(number_of(offset, path))
        for topic, partition, offset in read_lines(disk, path, 3)
    }


def number_of(word: str, path: Path) -> int:
    """A number of a checkpoint, of at most 64 bits. Errors: CorruptFile."""
    if NUMBER.fullmatch(word) is None or not -MAX_LONG <= int(word) <= MAX_LONG:
        raise CorruptFile(f"{path.name} has words where numbers belong")
    return int(word)


def write_offsets(disk: Disk, path: Path, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Write offsets by partition."""
    write_lines(disk, path, [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())])


# ---- partition.metadata


def read_topic_id(disk: Disk, folder: Path) -> UUID | None:
    """The topic id in the `partition.metadata` of a folder; None without that file. Errors: CorruptFile."""
    try:
        fields = _properties(disk.read_file(folder / PARTITION_METADATA), ":")
    except FileNotFoundError:
        return None
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise CorruptFile(f"{PARTITION_METADATA} in {folder.name} is not version 0 with a topic_id")
    try:
        topic_id = uuid_of_text(fields["topic_id"])
    except CorruptFile as error:
        raise CorruptFile(f"{PARTITION_METADATA} in {folder.name}: {error}") from None
    if topic_id == NO_UUID:
        raise CorruptFile(f"{PARTITION_METADATA} in {folder.name} names no topic")
    return topic_id


def write_topic_id(disk: Disk, folder: Path, topic_id: UUID) -> None:
    """Write the topic's id into a partition's folder."""
    disk.write_file(folder / PARTITION_METADATA, f"version: 0\ntopic_id: {text_of_uuid(topic_id)}".encode())


def text_of_uuid(value: UUID) -> str:
    """An id in Kafka's spelling: 22 characters of url-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def uuid_of_text(text: str) -> UUID:
    """Parse an id in Kafka's spelling. Errors: CorruptFile."""
    try:
        value = UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError:
        raise CorruptFile(f"{text!r} is no id") from None
    if text_of_uuid(value) != text.rstrip("="):  # the decoder drops what is no base64
        raise CorruptFile(f"{text!r} is no id")
    return value


# ---- meta.properties


class MetaProperties(NamedTuple):
    """The file that names the cluster and node of a data folder."""

    cluster_id: str
    node_id: NodeId
    directory_id: UUID


def read_meta_properties(disk: Disk, folder: Path) -> MetaProperties | None:
    """Cluster and node of a data folder; None when it was never formatted. Errors: CorruptFile.

    A file that Kafka wrote before 3.7 has no `directory.id`.
    """
    try:
        fields = _properties(disk.read_file(folder / META_PROPERTIES), "=")
        if fields.get("version") != "1":
            raise CorruptFile(f"{META_PROPERTIES} is of version {fields.get('version')}, not 1")
        directory = uuid_of_text(fields["directory.id"]) if "directory.id" in fields else NO_UUID
        if "directory.id" in fields and directory.int <= MOST_RESERVED:
            raise CorruptFile(f"{META_PROPERTIES} has the reserved directory.id {fields['directory.id']}")
        return MetaProperties(fields["cluster.id"], NodeId(int(fields["node.id"])), directory)
    except FileNotFoundError:
        return None
    except (KeyError, ValueError):
        raise CorruptFile(f"{META_PROPERTIES} lacks version 1's cluster.id or node.id") from None


def write_meta_properties(disk: Disk, folder: Path, meta: MetaProperties) -> None:
    """Write the cluster, node and directory ids of a data folder."""
    text = (
        f"#\ncluster.id={meta.cluster_id}\ndirectory.id={text_of_uuid(meta.directory_id)}\n"
        f"node.id={meta.node_id}\nversion=1\n"
    )
    disk.write_file(folder / META_PROPERTIES, text.encode())


def _properties(data: bytes, separator: str) -> dict[str, str]:
    lines = [line.strip() for line in data.decode(errors="replace").splitlines()]
    pairs = (line.partition(separator) for line in lines if line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


# ---- clean shutdown


def write_clean_shutdown(disk: Disk, folder: Path, broker_epoch: BrokerEpoch) -> None:
    """Write the clean-shutdown file: all logs are durable and their indexes complete."""
    disk.write_file(folder / CLEAN_SHUTDOWN, json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode())


def was_shut_down_clean(disk: Disk, folder: Path) -> bool:
    """Whether the clean-shutdown file exists."""
    return disk.exists(folder / CLEAN_SHUTDOWN)


def take_clean_shutdown(disk: Disk, folder: Path) -> BrokerEpoch | None:
    """Remove the clean-shutdown file and return its broker epoch; None after a crash, -1 if the file has no epoch."""
    path = folder / CLEAN_SHUTDOWN
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return None
    disk.remove(path)
    disk.sync_folder(folder)
    try:
        return BrokerEpoch(int(json.loads(data)["brokerEpoch"]))
    except (ValueError, KeyError, TypeError):
        return BrokerEpoch(-1)
