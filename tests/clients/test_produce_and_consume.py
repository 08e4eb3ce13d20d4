"""Each unmodified client writes with each codec and each acks, and reads keys, headers and null values back.

Each finds its place by time.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from linearizability.targets import Target
from linearizability.targets.wire import Wire
from linearizability.workload.cluster import look
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.records.batch import BatchHeader, read_batches
from tests.clients.client import CODECS, CannotDo, Client, Message, Sending
from tests.clients.confluent import Confluent

LONG = "the same again and again " * 40
"""Text that every codec makes shorter: librdkafka sends what does not shrink as it is."""

MESSAGES = [
    Message(LONG, "key"),
    Message(LONG + "without a key"),
    Message(None, "null value"),
    Message("naïve 分区 ünïcödé", "schlüssel"),
    Message(LONG, "one header", (("name", "value"),)),
    Message(LONG, "two headers", (("same", "first"), ("same", "second"))),
    *(Message(f"{LONG}{number}", f"key {number % 7}") for number in range(100)),
]


def stored_batches(broker: Target, topic: str) -> list[BatchHeader]:
    """The headers of the batches of the topic's one partition, by Fetch version 12 (which still names the topic)."""
    partition = FetchRequest.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1 << 24
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )
    leader = look(broker.nodes, topic).partitions[0].leader
    node = next(each for each in broker.nodes if each.id == leader)
    with Wire.connect(node.host, node.port) as wire:
        answer = wire.call(request, 12)
    return [batch.header for batch in read_batches(answer.responses[0].partitions[0].records)]


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(broker: Target, client: Client, topic: str, codec: str) -> None:
    try:
        client.produce(topic, MESSAGES, Sending(codec=codec))
    except CannotDo as error:
        pytest.skip(str(error))
    assert client.read(topic, len(MESSAGES)) == MESSAGES
    headers = stored_batches(broker, topic)
    assert codec in {header.codec.name.lower() for header in headers}
    assert headers[-1].last_offset == len(MESSAGES) - 1


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("codec", CODECS)
def test_every_client_reads_every_codec(broker: Target, client: Client, topic: str, codec: str) -> None:
    """librdkafka writes, and each reads: each has its own decompression."""
    try:
        client.produce(topic, MESSAGES[:1], Sending(codec=codec))
    except CannotDo as error:
        pytest.skip(str(error))
    Confluent(broker.bootstrap).produce(topic, MESSAGES, Sending(codec=codec))
    assert client.read(topic, 1 + len(MESSAGES)) == [MESSAGES[0], *MESSAGES]


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks(client: Client, topic: str, acks: str) -> None:
    client.produce(topic, MESSAGES[:1])  # acks=0 to a topic that is just being made may be lost, as with Kafka
    client.produce(topic, MESSAGES, Sending(acks=acks))
    assert client.read(topic, 1 + len(MESSAGES)) == [MESSAGES[0], *MESSAGES]


def test_idempotence(broker: Target, client: Client, topic: str) -> None:
    client.produce(topic, MESSAGES, Sending(idempotent=True))
    assert client.read(topic, len(MESSAGES)) == MESSAGES
    headers = stored_batches(broker, topic)
    assert all(header.producer_id >= 0 and header.producer_epoch == 0 for header in headers)


BEGIN_MS = 1_600_000_000_000
STEP_MS = 1_000
COUNT = 50


@pytest.mark.parametrize(("after_ms", "first"), [(-5, 0), (20_000, 20), (20_001, 21), (49_000, 49)])
def test_reading_begins_at_the_first_record_of_that_time(
    broker: Target, client: Client, topic: str, after_ms: int, first: int
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 3})
    for number in range(COUNT):
        producer.produce(topic, str(number), timestamp=BEGIN_MS + number * STEP_MS)
    assert producer.flush(30) == 0
    found = client.read_since(topic, BEGIN_MS + after_ms, COUNT - first)
    assert found == [Message(str(number)) for number in range(first, COUNT)]
