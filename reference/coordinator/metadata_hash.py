"""A hash of the topics that a group subscribes to. It changes when topics are created, deleted, grown or moved to other
racks.

Source: org.apache.kafka.coordinator.group.Utils.computeTopicHash and computeGroupHash (KIP-1101).
"""

from __future__ import annotations

from collections.abc import Iterable

from reference.coordinator.topics import Topics
from reference.coordinator.xxh3 import xxh3_64
from reference.protocol.primitives import TopicName

_MAGIC = 0


class TopicHashes:
    """A cache of topic hashes."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._known: dict[TopicName, int] = {}

    def forget(self, names: Iterable[TopicName]) -> None:
        """Drop the hashes of changed topics."""
        for name in names:
            self._known.pop(name, None)

    def of(self, names: Iterable[TopicName]) -> int:
        """The hash of the existing topics among `names`, as a signed 64-bit number; 0 if there are none."""
        each = [self._topic(name) for name in sorted(names) if self._topics.id_of(name) is not None]
        return _signed(xxh3_64(b"".join(number.to_bytes(8, "little") for number in each))) if each else 0

    def _topic(self, name: TopicName) -> int:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = topic_hash(self._topics, name)
        return known


def topic_hash(topics: Topics, name: TopicName) -> int:
    """The hash of an existing topic's id, name, partitions and their racks."""
    id = topics.id_of(name)
    assert id is not None, f"there is no topic {name}"
    words = id.int.to_bytes(16, "big")
    data = bytearray([_MAGIC]) + words[7::-1] + words[:7:-1] + _text(name)
    racks = topics.partition_racks(id)
    data += len(racks).to_bytes(4, "little")
    for index, each in enumerate(racks):
        data += index.to_bytes(4, "little")
        for rack in sorted(each):
            data += len(rack).to_bytes(4, "little") + _text(rack)
    return xxh3_64(bytes(data))


def _text(text: str) -> bytes:
    """A string in hash4j's encoding: UTF-16 code units, then their number."""
    units = text.encode("utf-16-le")
    return units + (len(units) // 2).to_bytes(4, "little")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
