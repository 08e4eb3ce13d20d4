"""The consumer's claims: in which generation it holds its partitions, which the library tells only in its own notation."""

import pytest
from confluent_kafka import Consumer

from linearizability.workload.consumer import generation_of


def test_a_consumer_that_has_not_joined_has_no_generation():
    consumer = Consumer({"bootstrap.servers": "", "group.id": "g"})
    metadata = consumer.consumer_group_metadata()
    assert metadata is not None and metadata.startswith(b"CGMDv2:"), "another librdkafka: the notation has changed"
    assert generation_of(metadata) == -1
    consumer.close()


@pytest.mark.parametrize(
    ("metadata", "generation"),
    [
        (b"CGMDv2:\x07\x00\x00\x00g\0m\0", 7),
        (b"CGMDv9:\x07\x00\x00\x00g\0m\0", -1),
        (b"CGMDv2:\x07", -1),
        (b"", -1),
        (None, -1),
    ],
)
def test_the_generation_stands_behind_the_word(metadata, generation):
    assert generation_of(metadata) == generation
