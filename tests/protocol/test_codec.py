"""The codec returns a message or raises CodecError for all bytes, in bounded time and memory."""

import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.protocol.codec import CodecError, Part, decode, encode, encode_into
from reference.protocol.codec_decoding import MAX_REQUEST_ELEMENTS
from reference.protocol.codec_writer import write_varint
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.produce import ProduceRequest, ProduceResponse
from reference.protocol.schema import Message
from tests.protocol.random_messages import message_classes, random_message

LIMIT = MAX_REQUEST_ELEMENTS
PAIRS = [(cls, version) for cls in message_classes() for version in cls.VERSIONS]


def test_every_message_and_version_survives_a_round_trip() -> None:
    chance = random.Random(1)
    for cls, version in PAIRS:
        for _ in range(3):
            message = random_message(chance, cls, version)
            assert decode(cls, version, encode(message, version)) == message, (cls, version)
    assert len(PAIRS) > 800


def test_truncated_bytes_are_refused() -> None:
    chance = random.Random(2)
    for cls, version in PAIRS:
        data = encode(random_message(chance, cls, version), version)
        for cut in {0, len(data) // 2, len(data) - 1} - {len(data), -1}:
            with pytest.raises(CodecError):
                decode(cls, version, data[:cut])


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(CodecError, match="1 bytes after the end"):
        decode(MetadataRequest, 9, encode(MetadataRequest(topics=None), 9) + b"\x00")


@given(st.integers(0, len(PAIRS) - 1), st.binary(max_size=300))
def test_random_bytes_only_ever_raise_codec_error(index: int, data: bytes) -> None:
    cls, version = PAIRS[index]
    try:
        message = decode(cls, version, data)
    except CodecError:
        return
    encode(message, version)


def test_damaged_messages_only_ever_raise_codec_error() -> None:
    chance = random.Random(3)
    for cls, version in PAIRS:
        data = bytearray(encode(random_message(chance, cls, version), version))
        for _ in range(4):
            if data:
                data[chance.randrange(len(data))] = chance.choice((0, 1, 127, 128, 255))
            try:
                decode(cls, version, bytes(data))
            except CodecError:
                continue


@pytest.mark.parametrize("version", [3, 9])
def test_array_bombs_are_refused_before_anything_is_made(version: int) -> None:
    bomb = b"\xff\xff\xff\xff\x07" if version == 9 else b"\x7f\xff\xff\xff"
    head = encode(ProduceRequest(acks=1), version)[: (7 if version == 9 else 8)]
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(CodecError, match="elements in"):
        decode(ProduceRequest, version, head + bomb + bytes(100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert time.process_time() - started < 5


def metadata_of_names(count: int) -> bytes:
    return struct.pack(">i", count) + b"\0\1a" * count


def metadata_of_tags(count: int) -> bytes:
    """Metadata v9 for no topic, with tagged fields 0, 1, 2 ... of no bytes."""
    tags = b"".join(write_varint(tag) + b"\0" for tag in range(count))
    return b"\1\0\0\0" + write_varint(count) + tags


def fetch_of_partitions(topics: int, partitions: int) -> bytes:
    partition = FetchRequest.FetchPartition()
    request = FetchRequest(topics=[FetchRequest.FetchTopic(partitions=[partition] * partitions)] * topics)
    return encode(request, 12)


def fetch_of_elements(count: int) -> bytes:
    """A Fetch request with `count` array elements: eight topics, and their partitions."""
    return fetch_of_partitions(8, (count - 8) // 8)


AT_THE_LIMIT: dict[str, tuple[type[Message], int, Callable[[int], bytes], int]] = {
    "array": (MetadataRequest, 1, metadata_of_names, LIMIT + 1),
    "nested arrays": (FetchRequest, 12, fetch_of_elements, LIMIT + 8),
    "tagged fields": (MetadataRequest, 9, metadata_of_tags, LIMIT + 1),
}
"""(request class, version, function from a number of elements to the request's bytes, a number above the limit)."""


@pytest.mark.parametrize("form", AT_THE_LIMIT)
def test_a_request_has_a_budget_of_elements(form: str) -> None:
    cls, version, of_elements, excessive = AT_THE_LIMIT[form]
    decode(cls, version, of_elements(LIMIT))
    with pytest.raises(CodecError, match=f"more than {LIMIT} array elements"):
        decode(cls, version, of_elements(excessive))


def test_a_response_has_no_budget() -> None:
    names = [MetadataResponse.MetadataResponseTopic(name="a")] * (LIMIT + 1)
    assert len(decode(MetadataResponse, 9, encode(MetadataResponse(topics=names), 9)).topics) == LIMIT + 1


def test_null_where_it_may_not_be_is_refused() -> None:
    with pytest.raises(CodecError, match="topic_data: null"):
        decode(ProduceRequest, 3, b"\xff\xff\x00\x01\x00\x00\x00\x64\xff\xff\xff\xff")


def test_unknown_tagged_fields_are_kept() -> None:
    request: Any = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    request.unknown_tagged_fields = ((7, b"seven"), (300, b""))
    again: Any = decode(ApiVersionsRequest, 3, encode(request, 3))
    assert again == request
    assert again.unknown_tagged_fields == ((7, b"seven"), (300, b""))


def test_unknown_tagged_fields_are_written_in_order_among_known_ones() -> None:
    """Version 1 has the tags 0 to 5, and 8."""
    record: Any = PartitionChangeRecord(directories=[])
    record.unknown_tagged_fields = ((6, b"six"),)
    data = bytes(encode(record, 1))
    assert data.endswith(b"\x06\x03six" + b"\x08\x01\x01")
    again: Any = decode(PartitionChangeRecord, 1, data)
    assert again == record and again.unknown_tagged_fields == ((6, b"six"),)


def test_unknown_error_codes_and_odd_text_survive() -> None:
    odd = b"\xff\xfe".decode("utf-8", "surrogateescape")
    topic = MetadataResponse.MetadataResponseTopic(error_code=12345, name=odd, topic_id=UUID(int=9))
    again = decode(MetadataResponse, 12, encode(MetadataResponse(topics=[topic]), 12))
    assert again.topics[0].error_code == 12345
    assert again.topics[0].name == odd


def test_records_stay_views_of_the_buffer() -> None:
    partition = ProduceRequest.PartitionProduceData(index=0, records=b"r" * 100)
    request = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[partition])])
    buffer = encode(request, 9)
    view = decode(ProduceRequest, 9, buffer).topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view.obj is buffer


def test_records_stay_the_objects_that_they_are_when_encoding() -> None:
    class Slice:
        def __len__(self) -> int:
            return 300

    piece = Slice()
    data = FetchResponse.PartitionData(records=piece)
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])])
    parts: list[Part] = []
    encode_into(response, 11, parts)
    assert piece in parts


def test_a_value_that_a_version_cannot_carry_is_refused() -> None:
    with pytest.raises(CodecError, match="transactional_id is not in version 2"):
        encode(ProduceRequest(transactional_id="t"), 2)
    assert encode(ProduceResponse(throttle_time_ms=5), 0)  # ignorable: left out in silence


def test_unknown_versions_are_named() -> None:
    with pytest.raises(CodecError, match="FetchRequest has no version 99, only 0-18"):
        encode(FetchRequest(), 99)


def test_fields_that_do_not_fit_are_named() -> None:
    with pytest.raises(CodecError, match="ProduceRequest v9"):
        encode(ProduceRequest(acks=70000), 9)
    with pytest.raises(CodecError, match="a string of 40000 bytes"):
        encode(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="x" * 40000)]), 4)
