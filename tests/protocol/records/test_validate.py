"""Checks of a producer's batch that the drawn comparison with Kafka does not reach (`test_validate_against_java`)."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import (
    FIRST_EPOCH,
    FIRST_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from reference.protocol.records.batch import NOT_IDEMPOTENT, BatchProducer, build, read_header, records_of
from reference.protocol.records.compression import Codec
from reference.protocol.records.control import EndTransaction, build_end_transaction
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.record import write_record
from reference.protocol.records.validate import MAX_RECORD_ERRORS, Origin, ProduceRules, check_form, validate
from tests.protocol.records.random_records import record_at

NOW = TimestampMs(1_700_000_000_000)
PRODUCER = (ProducerId(1), ProducerEpoch(0))
RULES = ProduceRules()


def batch(
    *times: int,
    codec: Codec = Codec.NONE,
    producer: BatchProducer = NOT_IDEMPOTENT,
    log_append_time: TimestampMs | None = None,
) -> bytearray:
    records = [record_at(index, time, b"k", b"v") for index, time in enumerate(times or (NOW, NOW))]
    return build(records, codec=codec, producer=producer, log_append_time=log_append_time)


def marker() -> bytearray:
    return build_end_transaction(EndTransaction(True, FIRST_EPOCH), *PRODUCER, NOW)


def sealed(data: bytearray, position: int, form: str, value: int) -> bytes:
    """A batch with one header field changed and a checksum that fits."""
    struct.pack_into(form, data, position, value)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def refused(data: bytes | bytearray, rules: ProduceRules = RULES, origin: Origin = Origin.CLIENT) -> RecordsError:
    before = bytes(data)
    with pytest.raises(RecordsError) as error:
        validate(data, rules, NOW, origin)
    assert bytes(data) == before, "a batch that is refused is not written to"
    return error.value


def test_a_client_writes_no_marker() -> None:
    """PRD-11."""
    error = refused(marker())
    assert error.code is ErrorCode.INVALID_RECORD and "control records" in error.message


def test_too_large() -> None:
    """PRD-07, before and after a change of codec."""
    data = batch()
    assert refused(data, ProduceRules(max_message_bytes=len(data) - 1)).code is ErrorCode.MESSAGE_TOO_LARGE
    validate(data, ProduceRules(max_message_bytes=len(data)), NOW)
    packed = build([record_at(0, NOW, None, bytes(5000))], codec=Codec.GZIP)
    rules = ProduceRules(max_message_bytes=len(packed), codec=Codec.NONE)
    assert refused(packed, rules).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_times_out_of_bounds_are_named(codec: Codec) -> None:
    """PRD-14."""
    rules = ProduceRules(before_max_ms=100, after_max_ms=50)
    validate(batch(NOW - 100, NOW + 50, codec=codec), rules, NOW)
    error = refused(batch(NOW - 101, NOW, NOW + 51, -1, codec=codec), rules)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in error.record_errors] == [0, 2]
    validate(batch(-1, -1, codec=codec), rules, NOW)
    validate(batch(NOW - 101, NOW + 51, codec=codec), ProduceRules(before_max_ms=1, log_append_time=True), NOW)


def test_one_hour_ahead_is_the_default() -> None:
    validate(batch(NOW + 3_600_000), RULES, NOW)
    assert refused(batch(NOW + 3_600_001)).code is ErrorCode.INVALID_TIMESTAMP


def test_many_bad_records_are_counted_not_listed() -> None:
    count = MAX_RECORD_ERRORS + 10
    data = build([record_at(index, NOW, None, b"v") for index in range(count)])
    error = refused(data, ProduceRules(compacted=True))
    assert len(error.record_errors) == MAX_RECORD_ERRORS
    assert str(count) in error.message


def test_a_producer_does_not_set_log_append_time() -> None:
    """PRD-15, as in Kafka 4.3.1: refused only without a timestamp, or if the topic itself sets the time."""
    data = batch(log_append_time=NOW)
    assert refused(bytes(data), ProduceRules(log_append_time=True)).code is ErrorCode.INVALID_TIMESTAMP
    assert refused(batch(log_append_time=NO_TIMESTAMP)).code is ErrorCode.INVALID_TIMESTAMP
    stored = validate(data, RULES, NOW).batch
    assert not read_header(stored).is_log_append_time


def test_zstd_before_version_7() -> None:
    """PRD-16."""
    with pytest.raises(RecordsError) as error:
        check_form(batch(codec=Codec.ZSTD), 6)
    assert error.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    check_form(batch(codec=Codec.LZ4), 6)


def test_coordinators_may_write_batches_that_clients_may_not() -> None:
    validate(marker(), RULES, NOW, Origin.COORDINATOR)
    without_sequence = bytes(batch(producer=BatchProducer(*PRODUCER)))
    validate(bytearray(without_sequence), RULES, NOW, Origin.COORDINATOR)
    assert refused(without_sequence).code is ErrorCode.INVALID_RECORD


def test_a_good_batch_is_left_as_it_is() -> None:
    for codec in Codec:
        data = batch(codec=codec, producer=BatchProducer(*PRODUCER, 0))
        before = bytes(data)
        valid = validate(memoryview(data), RULES, NOW)
        assert bytes(valid.batch) == before
        assert valid.batch.obj is data, "not a copy"
        assert valid.max_timestamp == NOW


def test_control_batches_are_not_packed() -> None:
    valid = validate(marker(), ProduceRules(codec=Codec.GZIP), NOW, Origin.COORDINATOR)
    assert read_header(valid.batch).codec is Codec.NONE


def test_wrong_offset_deltas_are_renumbered() -> None:
    records = [record_at(offset, NOW, b"k", b"v") for offset in (0, 5, 9)]
    data = bytearray(batch(NOW, NOW, NOW))
    data[61:] = b"".join(write_record(record, FIRST_OFFSET, NOW) for record in records)
    valid = validate(sealed(data, 27, ">q", NOW), RULES, NOW)
    assert [record.offset for record in records_of(valid.batch)] == [0, 1, 2]


@given(st.binary(max_size=200), st.randoms(use_true_random=False))
def test_random_bytes_raise_our_error_only(data: bytes, chance: object) -> None:
    for origin in (Origin.CLIENT, Origin.COORDINATOR):
        try:
            validate(data, RULES, NOW, origin)
        except RecordsError as error:
            assert error.message


@pytest.mark.parametrize(
    "producer", [BatchProducer(transactional=True), BatchProducer(ProducerId(5), NO_PRODUCER_EPOCH, 0)]
)
def test_a_batch_that_no_producer_could_have_built_is_packed_again_in_no_other_codec(producer: BatchProducer) -> None:
    """Kafka 4.3.1 fails to; without a change of codec it stores the batch as sent."""
    data = batch(codec=Codec.GZIP, producer=producer)
    assert refused(data, ProduceRules(codec=Codec.LZ4)).code is ErrorCode.UNKNOWN_SERVER_ERROR
    validate(data, ProduceRules(codec=Codec.GZIP), NOW)
    sound = producer._replace(transactional=False, epoch=ProducerEpoch(0))
    validate(batch(producer=sound), ProduceRules(codec=Codec.LZ4), NOW)
