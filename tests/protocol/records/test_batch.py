"""The batch header, iteration, building, fields that a broker overwrites in place, and control records."""

import random
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from reference.protocol.primitives import (
    NO_EPOCH,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from reference.protocol.records.batch import (
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_END,
    NOT_IDEMPOTENT,
    BatchHeader,
    BatchProducer,
    assign,
    build,
    check_crc,
    read_all_records,
    read_header,
    records_of,
    set_max_timestamp,
    whole_batch_size,
)
from reference.protocol.records.compression import Codec
from reference.protocol.records.control import (
    ControlType,
    control_key,
    read_end_transaction,
)
from reference.protocol.records.errors import CorruptBatch, InvalidRecord, RecordsError
from tests.protocol.records.random_records import TIME, random_records, record_at

PRODUCER = (ProducerId(7), ProducerEpoch(2))
GOLDEN = (
    "0000000000000005" "00000044" "00000003" "02" "{crc:08x}" "0010" "00000001" "0000018bcfe56800" "0000018bcfe56801"
    "0000000000000007" "0002" "0000000a" "00000002"
    "10" "00" "00" "00" "02" "6b" "02" "76" "00"
    "12" "00" "02" "02" "01" "01" "02" "02" "68" "01"
)  # fmt: skip
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, base and max timestamp, producer id, its
epoch, base sequence, record count; then two records: size, attributes, timestamp and offset delta, key, value, headers."""


def golden() -> bytearray:
    records = [record_at(5, TIME, b"k", b"v"), record_at(6, TIME + 1, None, None, ((b"h", None),))]
    return build(records, leader_epoch=LeaderEpoch(3), producer=BatchProducer(*PRODUCER, 10, transactional=True))


def test_every_byte() -> None:
    batch = golden()
    assert batch.hex() == GOLDEN.format(crc=crc32c(bytes(batch[21:])))


def test_sequences_wrap_inside_of_a_batch() -> None:
    batch = build([record_at(index, 0, None, None) for index in range(4)], producer=BatchProducer(*PRODUCER, 2**31 - 2))
    assert read_header(batch).last_sequence == 1


def test_a_batch_that_compaction_emptied_keeps_its_place() -> None:
    length = HEADER_BYTES - LENGTH_END
    place, horizon = Offset(10), TimestampMs(99)
    emptied = BatchHeader(
        place, length, NO_EPOCH, 2, 0, DELETE_HORIZON, 4, horizon, NO_TIMESTAMP, *NOT_IDEMPOTENT[:3], 0
    )
    batch = struct.pack(">qiibIhiqqqhii", *emptied)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count, header.delete_horizon) == (10, 14, 0, 99)
    assert list(records_of(memoryview(batch))) == []


def test_place_and_epoch_are_outside_of_the_checksum() -> None:
    batch = golden()
    assign(batch, Offset(1 << 40), LeaderEpoch(12))
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 12)
    check_crc(memoryview(batch), header)
    assert [record.offset for record in records_of(memoryview(batch))] == [1 << 40, (1 << 40) + 1]


def test_log_append_time_is_inside_of_it() -> None:
    batch = golden()
    set_max_timestamp(batch, TIME + 50, log_append_time=True)
    header = read_header(batch)
    check_crc(memoryview(batch), header)
    assert header.is_log_append_time
    assert {record.timestamp for record in records_of(memoryview(batch))} == {TIME + 50}
    set_max_timestamp(batch, TIME + 1, log_append_time=False)
    assert batch == golden()


def test_a_changed_bit_fails_the_checksum() -> None:
    batch = golden()
    for position in range(21, len(batch)):
        batch[position] ^= 4
        with pytest.raises(CorruptBatch):
            check_crc(memoryview(batch), read_header(batch))
        batch[position] ^= 4


def test_impossible_lengths_and_magics() -> None:
    for position, value, words in (
        (16, 3, "magic 3"),
        (16, 1, "magic 1"),
        (11, 13, "length of 13"),
        (11, 48, "length of 48"),
    ):
        batch = golden()
        batch[position] = value
        with pytest.raises(CorruptBatch, match=words):
            read_header(batch)
    with pytest.raises(CorruptBatch, match="cut off"):
        read_header(golden()[:-1])
    with pytest.raises(CorruptBatch, match="too few"):
        read_header(b"")
    assert whole_batch_size(golden(), 0) == len(golden())
    assert whole_batch_size(golden()[:-1], 0) is None


@given(st.binary(max_size=200), st.randoms(use_true_random=False))
def test_random_bytes_and_damage_raise_our_errors_only(data: bytes, chance: random.Random) -> None:
    batch = build(random_records(chance)[:3], codec=chance.choice(list(Codec)))
    for _ in range(3):
        batch[chance.randrange(len(batch))] = chance.randrange(256)
    for bytes_given in (data, bytes(batch), bytes(batch)[: chance.randrange(len(batch))], bytes(batch) + data):
        try:
            list(read_all_records(bytes_given))
        except RecordsError as error:
            assert error.message


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, bytes(6)), (b"", bytes(6)), (b"\0\0\0", bytes(6)), (control_key(ControlType.LEADER_CHANGE), bytes(6)),
     (control_key(ControlType.ABORT), None), (control_key(ControlType.ABORT), bytes(5))],
)  # fmt: skip
def test_malformed_markers_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        read_end_transaction(record_at(0, 0, key, value))
