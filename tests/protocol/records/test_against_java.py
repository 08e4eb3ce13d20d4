"""Kafka's Java client reads what we write, and we read what it writes: all codecs, magics 0 to 2, markers."""

import random
from typing import TypedDict

import pytest

from reference.protocol.primitives import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from reference.protocol.records.batch import BatchProducer, build, check_crc, read_batches, records_of
from reference.protocol.records.compression import Codec
from reference.protocol.records.control import EndTransaction, build_end_transaction, read_end_transaction
from reference.protocol.records.legacy import read_message_set, write_message_set
from reference.protocol.records.record import Record
from tests.protocol.records.java_records import ask_java, describe, record_text, write_line
from tests.protocol.records.random_records import TIME, plain, random_records

pytestmark = pytest.mark.java


class Variant(TypedDict, total=False):
    """The fields of a batch beside its records."""

    producer: BatchProducer
    leader_epoch: LeaderEpoch


VARIANTS: list[Variant] = [
    {},
    {"producer": BatchProducer(ProducerId(4000), ProducerEpoch(3), 0)},
    {"producer": BatchProducer(ProducerId(1 << 40), ProducerEpoch(32767), 2**31 - 2, transactional=True)},
    {"leader_epoch": LeaderEpoch(77)},
]


def samples() -> list[tuple[list[Record], Codec, Variant]]:
    chance = random.Random(4)
    cases = [(codec, variant) for codec in Codec for variant in VARIANTS for _ in range(6)]
    return [(random_records(chance, chance.choice((0, 5, 1 << 40))), codec, variant) for codec, variant in cases]


def test_java_reads_our_batches() -> None:
    batches = [bytes(build(records, codec=codec, **variant)) for records, codec, variant in samples()]
    later = TIME + 9
    batches += [bytes(build(records, codec=codec, log_append_time=later)) for records, codec, _ in samples()[::9]]
    answers = ask_java([f"read {batch.hex()}" for batch in batches])
    for batch, answer in zip(batches, answers, strict=True):
        assert answer == describe(batch)


def test_we_read_javas_batches() -> None:
    cases = samples()
    lines = [write_line(records, codec=codec, **variant) for records, codec, variant in cases]
    written = ask_java(lines)
    understood = ask_java([f"read {batch}" for batch in written])
    for (records, _, _), batch, javas in zip(cases, written, understood, strict=True):
        data = bytes.fromhex(batch)
        assert describe(data) == javas
        assert plain(list(records_of(memoryview(data)))) == plain(records)


def test_our_uncompressed_batches_are_javas_bytes() -> None:
    cases = [(records, variant) for records, codec, variant in samples() if codec is Codec.NONE]
    written = ask_java([write_line(records, **variant) for records, variant in cases])
    for (records, variant), batch in zip(cases, written, strict=True):
        assert build(records, **variant).hex() == batch


def test_log_append_time_of_java() -> None:
    records = random_records(random.Random(1))
    (batch,) = ask_java([write_line(records, append_time=True)])
    assert {record.timestamp for record in records_of(memoryview(bytes.fromhex(batch)))} == {1234567890123}


def test_message_sets_both_ways() -> None:
    chance = random.Random(6)
    kinds = [(magic, codec) for magic in (0, 1) for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)]
    cases = [(magic, codec, random_records(chance, headers=False)) for magic, codec in kinds for _ in range(6)]
    written = ask_java([write_line(records, magic=magic, codec=codec) for magic, codec, records in cases])
    ours = [write_message_set(records, magic, codec) for magic, codec, records in cases]
    read_by_java = ask_java([f"read {data.hex()}" for data in ours])
    for (magic, _, records), javas, found in zip(cases, written, read_by_java, strict=True):
        expected = records if magic else [record._replace(timestamp=-1) for record in records]
        assert plain(list(read_message_set(bytes.fromhex(javas)))) == plain(expected)
        texts = "/".join(text.rsplit(":", 1)[1] for text in found.split(" "))
        assert texts == "/".join(record_text(record) for record in expected)


def test_markers_both_ways() -> None:
    markers = {"COMMIT": EndTransaction(True, LeaderEpoch(7)), "ABORT": EndTransaction(False, LeaderEpoch(0))}
    javas = ask_java([f"marker {kind} 12 3 {marker.coordinator_epoch} {TIME} 99" for kind, marker in markers.items()])
    for marker, text in zip(markers.values(), javas, strict=True):
        ours = build_end_transaction(marker, ProducerId(12), ProducerEpoch(3), now=TIME, offset=Offset(99))
        assert ours.hex() == text
        (batch,) = read_batches(bytes.fromhex(text))
        check_crc(batch.data, batch.header)
        assert batch.header.is_control
        assert batch.header.is_transactional
        assert read_end_transaction(next(records_of(batch.data))) == marker
