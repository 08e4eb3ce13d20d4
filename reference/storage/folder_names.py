"""Names of the folders that a log directory has for its logs (Kafka's LocalLog, UnifiedLog)."""

import re
from uuid import UUID

from reference.storage.checkpoints import TopicPartition

DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX = "-delete", "-stray", "-future"

MOST_NAME_BYTES = 255

FUTURE = re.compile(r"(.+)-(\d+)\.[0-9a-f]{32}-future")
"""The folder name of a future log (KIP-113)."""


def folder_name(topic: str, partition: int) -> str:
    """The name of a partition's folder."""
    return f"{topic}-{partition}"


def partition_of(name: str) -> TopicPartition | None:
    """The partition whose log has a folder of this name; None where the name is another folder's."""
    topic, _, partition = name.rpartition("-")
    return (topic, int(partition)) if topic and partition.isdecimal() else None


def suffixed(key: TopicPartition, topic_id: UUID, suffix: str) -> str:
    """The name of a deleted, stray or future log's folder. A name has at most 255 characters, a topic's at most 249."""
    topic, partition = key
    ending = f".{topic_id.hex}{suffix}"
    return f"{topic[: MOST_NAME_BYTES - len(str(partition)) - 1 - len(ending)]}-{partition}{ending}"


def can_move(key: TopicPartition) -> bool:
    """Whether the folder name of the partition's future log is short enough."""
    return len(suffixed(("", key[1]), UUID(int=0), FUTURE_SUFFIX)) + len(key[0]) <= MOST_NAME_BYTES
