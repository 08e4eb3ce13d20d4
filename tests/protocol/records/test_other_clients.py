"""Batches of kafka-python and aiokafka, both ways; librdkafka's are read from Kafka's folder (tests/storage), Java's beside."""

import random
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from reference.protocol.primitives import Buffer
from reference.protocol.records.batch import build, check_crc, read_batches, records_of
from reference.protocol.records.compression import Codec
from reference.protocol.records.legacy import read_message_set, write_message_set
from reference.protocol.records.record import Record
from reference.protocol.records.validate import MAX_LONG, ProduceRules, validate
from tests.protocol.records.random_records import TIME, plain, random_records, record_at

KAFKA_PYTHON = [Codec.NONE, Codec.GZIP]
"""Codecs that kafka-python brings itself."""
ANY_TIME = ProduceRules(max_message_bytes=MAX_LONG, after_max_ms=MAX_LONG)


def samples(codec: Codec, headers: bool = True) -> list[list[Record]]:
    chance = random.Random(20 + codec)
    return [random_records(chance, headers=headers) for _ in range(8)]


def copied(data: Buffer | None) -> bytes | None:
    return None if data is None else bytes(data)


def text_keys(record: Record) -> list[tuple[str, bytes | None]]:
    return [(bytes(key).decode(), copied(value)) for key, value in record.headers]


def ours_of(theirs: Any) -> Record:
    """A record of either library."""
    headers = tuple((key.encode(), value) for key, value in theirs.headers)
    return Record(theirs.offset, theirs.timestamp, theirs.key, theirs.value, headers)


@pytest.mark.parametrize("codec", KAFKA_PYTHON)
def test_we_read_kafka_pythons(codec: Codec) -> None:
    for records in samples(codec):
        builder = MemoryRecordsBuilder(magic=2, compression_type=int(codec), batch_size=1 << 30)
        for record in records:
            builder.append(record.timestamp, record.key, record.value, text_keys(record))
        builder.close()
        read_back(builder.buffer(), records)


@pytest.mark.parametrize("codec", list(Codec))
def test_we_read_aiokafkas(codec: Codec) -> None:
    for records in samples(codec):
        builder = AiokafkaBuilder(
            magic=2,
            compression_type=int(codec),
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 30,
        )
        for record in records:
            builder.append(record.offset, record.timestamp, copied(record.key), copied(record.value), text_keys(record))
        read_back(bytes(builder.build()), records)


def read_back(data: bytes, records: list[Record]) -> None:
    (batch,) = read_batches(data)
    check_crc(batch.data, batch.header)
    assert plain(list(records_of(batch.data))) == plain(records)
    assert bytes(validate(data, ANY_TIME, TIME).batch) == data


@pytest.mark.parametrize("codec", KAFKA_PYTHON)
def test_kafka_python_reads_ours(codec: Codec) -> None:
    for records in samples(codec):
        batch = MemoryRecords(bytes(build(records, codec=codec))).next_batch()
        assert batch.validate_crc()
        assert plain([ours_of(record) for record in batch]) == plain(records)


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafka_reads_ours(codec: Codec) -> None:
    for records in samples(codec):
        batch = AiokafkaRecords(bytes(build(records, codec=codec))).next_batch()
        assert batch is not None and batch.validate_crc()
        assert plain([ours_of(record) for record in batch]) == plain(records)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", KAFKA_PYTHON)
def test_message_sets_of_kafka_python_both_ways(magic: int, codec: Codec) -> None:
    for records in samples(codec, headers=False):
        builder = MemoryRecordsBuilder(magic=magic, compression_type=int(codec), batch_size=1 << 30)
        for record in records:
            builder.append(record.timestamp, record.key, record.value)
        builder.close()
        expected = records if magic else [record._replace(timestamp=-1) for record in records]
        # A producer's wrapper of magic 1 has offset 0 until a broker gives it that of its last message.
        shift = records[-1].offset if magic == 1 and codec else 0
        found = [record._replace(offset=record.offset + shift) for record in read_message_set(builder.buffer())]
        assert plain(found) == plain(expected)
        theirs = [
            record_at(record.offset, -1 if record.timestamp is None else record.timestamp, record.key, record.value)
            for batch in batches_of(MemoryRecords(write_message_set(records, magic, codec)))
            for record in batch
        ]
        assert plain(theirs) == plain(expected)


def batches_of(records: MemoryRecords) -> list[list[Any]]:
    found = []
    while records.has_next():
        found.append(list(records.next_batch()))
    return found
