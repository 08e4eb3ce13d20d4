"""The hash of a group's topics is Kafka's: XXH3 of the same bytes. (KIP-1101)

The numbers are those of hash4j, the library of Kafka.
"""

from collections.abc import Sequence
from uuid import UUID

import pytest

from reference.coordinator.metadata_hash import TopicHashes, topic_hash
from reference.coordinator.xxh3 import xxh3_64
from tests.coordinator.topics import FakeTopics

HASHES = {
    0: 0x2D06800538D394C2,
    1: 0x13E608BC156DEFED,
    2: 0x1C9074B93943B86C,
    3: 0xA9088DDA485B481C,
    4: 0x6D9253B16C8B1ED3,
    5: 0x998620E10E3A4B37,
    8: 0x60539DB630471163,
    9: 0xFEFF668361D723A8,
    15: 0x9EC169F4A98231C1,
    16: 0xB8C859B0F030B585,
    17: 0x714A04408E79B80F,
    31: 0xED41AC283D0674B3,
    32: 0x19FF4EE1D6BA1A55,
    33: 0x3E44983AD21679C8,
    64: 0x287EB1FA9E4BE2C1,
    65: 0x829218DE4D798646,
    96: 0xF084E7CFBC624743,
    97: 0x1DAA83271A8E7B7C,
    128: 0x67425A03650261BF,
    129: 0xC664BF3311C6ABC4,
    144: 0x606A17FA700BB932,
    200: 0x746CD0025327BF5B,
    239: 0x1D861931C1F3CAFA,
    240: 0x64556DC6B462A6CF,
    241: 0x8BEADD3A8874FE17,
    256: 0x3C38817F6D79C0DA,
    511: 0xE3FCA5C97AA72E1B,
    512: 0xF58202B8D9019D1D,
    1023: 0xD26986A0B85DCC44,
    1024: 0x9B81661C641C72B1,
    1025: 0x806C2072ED713576,
    1026: 0x093FF4C0AFD33963,
    1088: 0x2F8781E01841F0DA,
    1089: 0x2A90437FE231E7E8,
    2048: 0xABE604813BA62ED1,
    2049: 0x55AED42C9F1554B6,
    5000: 0x799AADDD7339581D,
}
"""Number of bytes -> hash; the byte at place n is 7 * n + 3."""


@pytest.mark.parametrize(("size", "expected"), HASHES.items())
def test_each_class_of_lengths_hashes_as_hash4j(size: int, expected: int) -> None:
    assert xxh3_64(bytes((7 * at + 3) & 255 for at in range(size))) == expected


class Racked(FakeTopics):
    """One topic of two partitions, of which the first has a replica in a rack."""

    def __init__(self) -> None:
        super().__init__()
        self.make("foo-é", 2)
        self.ids["foo-é"] = UUID("01234567-89ab-cdef-fedc-ba9876543210")

    def partition_racks(self, id: UUID) -> Sequence[Sequence[str]]:
        return [["r1"], []]


def test_the_hash_of_a_topic_with_racks() -> None:
    assert topic_hash(Racked(), "foo-é") == -4175093325365788450 % (1 << 64)


def test_a_group_has_the_hash_of_its_topics_until_they_change() -> None:
    topics = FakeTopics(foo=1, bar=2)
    hashes = TopicHashes(topics)
    before = hashes.of(["foo", "bar"])
    assert -(1 << 63) <= before < 1 << 63
    assert hashes.of(["bar", "foo"]) == before != hashes.of(["foo"])
    topics.grow("foo", 2)
    assert hashes.of(["foo", "bar"]) == before
    hashes.forget(["foo"])
    assert hashes.of(["foo", "bar"]) != before
    assert hashes.of([]) == hashes.of(["not there"]) == 0
    assert hashes.of(["foo", "not there"]) == hashes.of(["foo"]), "as by Kafka, which leaves it out"
