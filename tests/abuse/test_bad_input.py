"""Bytes that are no valid request: the broker answers with the protocol's error or closes the connection.

The fixture `broker` (see conftest) checks after each test that the broker runs, serves, holds all acknowledged records, and has
logged no traceback.
"""

from __future__ import annotations

import random
import struct

import pytest

from linearizability.targets.wire import WireError
from reference.protocol.codec_decoding import MAX_REQUEST_ELEMENTS
from reference.protocol.codec_writer import write_varint
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import encode_request
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.produce import ProduceRequest
from tests.abuse.broker import MOST_CPU_S, Broker, batch, frame, header, is_closed

MIB = 1 << 20
MANY = 2**31 - 1
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(180)
HTTP_GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

NOT_REQUESTS = {
    "negative size": struct.pack(">i", -1),
    "smallest size": struct.pack(">i", -(2**31)),
    "huge size": struct.pack(">i", MANY) + b"x" * 1000,
    "size just too large": struct.pack(">i", 20_000_001),
    "empty frame": frame(b""),
    "frame of one byte": frame(b"\0"),
    "half a header": frame(header(3, 9)[:7]),
    "header without its body": frame(header(3, 9)),
    "unknown API": frame(header(9999, 0)),
    "negative API": frame(header(-1, 0)),
    "unknown version": frame(header(3, 99) + bytes(50)),
    "negative version": frame(header(3, -1) + bytes(50)),
    "an API for brokers only": frame(header(56, 0) + bytes(50)),
    "client id longer than the frame": frame(struct.pack(">hhih", 3, 1, 1, 32767) + b"abc"),
    "negative client id": frame(struct.pack(">hhih", 3, 1, 1, -2) + bytes(8)),
    "array bomb": frame(header(3, 1) + struct.pack(">i", MANY)),
    "array of negative length": frame(header(3, 1) + struct.pack(">i", -2)),
    "compact array bomb": frame(header(3, 12) + b"\0" + b"\xff\xff\xff\xff\x0f"),
    "endless varint": frame(header(3, 12) + b"\0" + b"\xff" * 40),
    "tagged fields bomb": frame(header(3, 12) + b"\xff\xff\xff\xff\x0f"),
    "string longer than the frame": frame(header(3, 1) + struct.pack(">ih", 1, 30_000) + b"abc"),
    "records longer than the frame": frame(
        header(0, 3) + struct.pack(">hhiih", -1, 1, 1000, 1, 1) + b"t" + struct.pack(">iii", 1, 0, MANY)
    ),
    "TLS hello": TLS_HELLO,
    "HTTP GET": HTTP_GET,
}


@pytest.mark.parametrize("name", NOT_REQUESTS)
def test_what_is_no_request_is_closed(broker: Broker, name: str) -> None:
    with broker.connect() as connection:
        connection.sendall(NOT_REQUESTS[name])
        assert is_closed(connection), f"{name}: the connection is still open, or was answered"


def test_api_versions_too_new_is_answered(broker: Broker) -> None:
    """The one exception (KIP-511): error 35 in version 0, with the list of what is served."""
    with broker.connect() as connection:
        connection.sendall(frame(header(18, 999)))
        size, correlation, code = struct.unpack(">iih", connection.recv(10))
    assert (correlation, code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert size > 50


def test_half_frames_wait_and_go_with_their_connection(broker: Broker) -> None:
    """A frame size of 19 MB allocates nothing before its bytes arrive; other clients are served before and after the close."""
    before = broker.rss_bytes()
    connections = [broker.connect() for _ in range(200)]
    try:
        for connection in connections:
            connection.sendall(struct.pack(">i", 19_000_000) + header(0, 9))
        broker.produce("kept", 1)
        assert broker.rss_bytes() - before < 100 * MIB
    finally:
        for connection in connections:
            connection.close()
    broker.produce("kept", 1)


def test_bombs_cost_no_memory(broker: Broker) -> None:
    """Announced lengths are checked against what is there before anything is allocated."""
    before = broker.rss_bytes()
    for _ in range(50):
        for name in ("array bomb", "compact array bomb", "tagged fields bomb", "records longer than the frame"):
            with broker.connect() as connection:
                connection.sendall(NOT_REQUESTS[name])
                assert is_closed(connection)
    assert broker.rss_bytes() - before < 20 * MIB


def metadata_of_names(count: int) -> bytes:
    """A Metadata v1 request for one topic, named over and over."""
    return frame(header(3, 1) + struct.pack(">i", count) + b"\0\1a" * count)


def test_many_true_array_elements(broker: Broker) -> None:
    """As many topic names as a request may hold are answered, and others are served afterwards."""
    with broker.connect() as connection:
        connection.settimeout(120)
        connection.sendall(metadata_of_names(MAX_REQUEST_ELEMENTS))
        assert connection.recv(1)
    broker.produce("kept", 1)


def metadata_of_tags(count: int) -> bytes:
    """A Metadata v9 request for no topic, with tagged fields 0, 1, 2 ... of no bytes."""
    tags = b"".join(write_varint(tag) + b"\0" for tag in range(count))
    return frame(header(3, 9) + b"\0" + b"\1\0\0\0" + write_varint(count) + tags)


def fetch_of_topics(count: int) -> bytes:
    """A Fetch v4 request for topics without partitions."""
    return frame(header(1, 4) + struct.pack(">iiiib", -1, 0, 0, MIB, 0) + struct.pack(">i", count) + bytes(6) * count)


TRUE_BOMBS = {
    "metadata of names": (metadata_of_names, 6_600_000),
    "metadata of tagged fields": (metadata_of_tags, 3_500_000),
    "fetch of topics": (fetch_of_topics, 3_300_000),
}


@pytest.mark.parametrize("name", TRUE_BOMBS)
def test_millions_of_true_array_elements_hold_up_no_client(broker: Broker, name: str) -> None:
    """The frame holds all elements and has a legal size. Decoding it would block the only loop for seconds: it is refused."""
    form, count = TRUE_BOMBS[name]
    bomb = form(count)
    before, used, logged = broker.rss_bytes(), broker.cpu_s(), len(broker.log())
    with broker.connect() as connection:
        connection.sendall(bomb)
        broker.produce("kept", 1)
        assert is_closed(connection), f"{name}: the connection is still open, or was answered"
    broker.produce("kept", 1)
    assert broker.cpu_s() - used < MOST_CPU_S
    assert f"more than {MAX_REQUEST_ELEMENTS} array elements" in broker.log()[logged:]
    assert broker.rss_bytes() - before < 100 * MIB


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes(broker: Broker, seed: int) -> None:
    """Random bodies behind valid request headers, for every API and version that is served, do the broker no harm."""
    chance = random.Random(seed)
    with broker.wire() as wire:
        served = wire.versions()
    for key, (lowest, highest) in served.items():
        for version in range(max(lowest, 0), highest + 1):
            with broker.connect() as connection:
                body = chance.randbytes(chance.choice((1, 10, 100, 1000)))
                connection.sendall(frame(header(key, version) + body))
    broker.produce("kept", 1)


def produced(broker: Broker, records: bytes) -> int:
    partition = ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name="kept", partition_data=[partition])
    with broker.wire() as wire:
        answer = wire.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), 12)
    return answer.responses[0].partition_responses[0].error_code


def with_int32(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + struct.pack(">i", value) + data[at + 4 :]


GOOD_BATCH = batch([b"value"] * 10)
BAD_BATCHES = {
    "wrong CRC": (GOOD_BATCH[:-1] + b"?", {ErrorCode.CORRUPT_MESSAGE}),
    "torn": (GOOD_BATCH[:-5], {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "negative length": (with_int32(GOOD_BATCH, 8, -1), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "huge length": (with_int32(GOOD_BATCH, 8, MANY), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "no batch at all": (b"?" * 100, {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "huge record count": (with_int32(GOOD_BATCH, 57, MANY), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "too large": (batch([b"x" * (2 * MIB)]), {ErrorCode.MESSAGE_TOO_LARGE}),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_bad_batch_is_refused_and_nothing_is_appended(broker: Broker, name: str) -> None:
    data, accepted = BAD_BATCHES[name]
    before = len(broker.values("kept", 0))
    try:
        code = produced(broker, data)
    except WireError:
        pytest.fail("the connection was closed, where Kafka answers an error")
    assert code in accepted, ErrorCode(code).name
    assert len(broker.values("kept", 0)) == before


def test_answers_stay_in_order_among_bad_requests(broker: Broker) -> None:
    """Good requests before a bad one are answered, and then the connection is closed."""
    good = encode_request(3, 9, 41, "abuse", MetadataRequest(topics=[]))
    with broker.connect() as connection:
        connection.sendall(good + good + frame(header(9999, 0)) + good)
        received = b""
        while part := connection.recv(65536):
            received += part
    size = struct.unpack(">i", received[:4])[0] + 4
    assert len(received) == 2 * size
    assert received[4:8] == received[size + 4 : size + 8] == struct.pack(">i", 41)


def test_absurd_fetches_are_answered(broker: Broker) -> None:
    """Impossible offsets and partitions get an error each; the connection stays open."""
    wrong = [(0, -5), (0, 2**62), (-1, 0), (MANY, 0)]
    partitions = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=-1)
        for index, offset in wrong
    ]
    request = FetchRequest(
        max_wait_ms=-1,
        min_bytes=-1,
        max_bytes=-1,
        topics=[FetchRequest.FetchTopic(topic="kept", partitions=partitions)],
    )
    with broker.wire() as wire:
        answer = wire.call(request, 12)
    codes = [partition.error_code for partition in answer.responses[0].partitions]
    assert codes == [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
