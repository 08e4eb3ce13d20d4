"""Our validation and Kafka's LogValidator judge the same batches alike, sound ones and broken ones.

Both get the same bytes and rules; they must answer with the same error code and the same refused records, or store the same
bytes. Where both pack again, packers differ, and the unpacked batches are compared.
"""

import random
import struct

import pytest
from crc32c import crc32c

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import FIRST_OFFSET, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from reference.protocol.records.batch import NOT_IDEMPOTENT, BatchProducer, assign, build, read_header
from reference.protocol.records.compression import Codec, compress
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.record import Record, walk, write_record
from reference.protocol.records.validate import MAX_LONG, ProduceRules, validate
from tests.protocol.records.java_records import ask_java, describe
from tests.protocol.records.random_records import TIME, random_records

pytestmark = pytest.mark.java

NOW = TIME + 10_000
CASES = 4000
HEADER_FIELDS = [
    (0, ">q"), (8, ">i"), (12, ">i"), (16, ">b"), (17, ">I"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"), (43, ">q"),
    (51, ">h"), (53, ">i"), (57, ">i"),
]  # fmt: skip
Case = tuple[bytes, ProduceRules]


def sealed(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def changed_header(chance: random.Random, batch: bytearray) -> bytes:
    position, form = chance.choice(HEADER_FIELDS)
    (value,) = struct.unpack_from(form, batch, position)
    size = struct.calcsize(form) * 8
    value = chance.choice(
        (value + 1, value - 1, -1, 0, 1, 8, 16, 32, 64, NOW, value ^ (1 << chance.randrange(size - 1)))
    )
    value = value & ((1 << size) - 1)
    struct.pack_into(form.upper(), batch, position, value)
    return sealed(batch) if position > 21 or chance.random() < 0.5 else bytes(batch)


def changed_byte(chance: random.Random, batch: bytearray) -> bytes:
    for _ in range(chance.randrange(1, 3)):
        position = chance.randrange(61, min(len(batch), 61 + 60)) if len(batch) > 61 else 60
        batch[position] = chance.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, batch[position] ^ (1 << chance.randrange(8))))
    return sealed(batch)


def changed_length(chance: random.Random, batch: bytearray) -> bytes:
    kind = chance.randrange(4)
    if kind == 0:
        return bytes(batch[: chance.randrange(len(batch))])
    if kind == 1:
        return bytes(batch) + chance.randbytes(chance.randrange(1, 17))
    if kind == 2:
        return bytes(batch) * 2
    is_packed = batch[22] & 0x07
    cut = (
        batch[: chance.randrange(61, len(batch))] if is_packed or chance.random() < 0.5 else batch + chance.randbytes(3)
    )
    struct.pack_into(">i", cut, 8, len(cut) - 12)
    return sealed(cut)


def misnumbered(chance: random.Random, records: list[Record], batch: bytearray, codec: Codec) -> bytes:
    """The batch's records with other offset deltas than 0, 1, 2 ..."""
    header = read_header(batch)
    deltas = list(range(len(records)))
    deltas[chance.randrange(len(deltas))] += chance.choice((-1, 1, 5))
    payload = b"".join(
        write_record(record._replace(offset=delta), FIRST_OFFSET, header.base_timestamp)
        for record, delta in zip(records, deltas, strict=True)
    )
    changed = batch[:61] + compress(codec, payload)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    return sealed(changed)


def sample(chance: random.Random) -> Case:
    codec = chance.choice(list(Codec))
    records = random_records(chance)[: chance.choice((1, 3, 70, 200))]
    if chance.random() < 0.3:
        records = [record._replace(timestamp=chance.choice((-1, 0, TIME, NOW + 5000))) for record in records]
    producer = BatchProducer(ProducerId(7), ProducerEpoch(0), 3) if chance.random() < 0.3 else NOT_IDEMPOTENT
    append_time = NOW - 5 if chance.random() < 0.1 else None
    batch = build(records, codec=codec, log_append_time=append_time, producer=producer)
    kind = chance.randrange(6)
    data = bytes(batch)
    if kind == 0:
        data = changed_header(chance, batch)
    elif kind == 1 and codec is Codec.NONE:
        data = changed_byte(chance, batch)
    elif kind == 2:
        data = changed_length(chance, batch)
    elif kind == 3 and append_time is None:
        data = misnumbered(chance, records, batch, codec)
    rules = ProduceRules(
        max_message_bytes=MAX_LONG,
        compacted=chance.random() < 0.3,
        log_append_time=chance.random() < 0.3,
        before_max_ms=chance.choice((MAX_LONG, 1000, 20_000)),
        after_max_ms=chance.choice((MAX_LONG, 3_600_000, 1000)),
        codec=chance.choice((None, None, *Codec)),
    )
    return data, rules


def line(case: Case) -> str:
    data, rules = case
    words = [NOW, rules.before_max_ms, rules.after_max_ms, rules.compacted, rules.log_append_time]
    codec = -1 if rules.codec is None else int(rules.codec)
    return " ".join([*(str(word).lower() for word in words), str(codec), data.hex()])


def ours(case: Case) -> str:
    data, rules = case
    try:
        batch = validate(data, rules, NOW).batch
    except RecordsError as error:
        return f"{int(error.code)} {','.join(str(record.batch_index) for record in error.record_errors)}"
    assign(batch, Offset(1000), LeaderEpoch(7))
    return f"ok {batch.hex()}"


# What follows the end of a packed frame is left alone by Kafka, where we refuse it: such batches are not made here.
KNOWN = {
    (-1, ErrorCode.INVALID_RECORD): "unpacking throws in Kafka: UNKNOWN_SERVER_ERROR",
}
"""Pairs (Kafka's code, ours) that differ on purpose."""
REFUSED_WHEN_REBUILT = (
    "Invalid negative timestamp",
    "Invalid negative producer epoch",
    "Cannot write transactional messages without a valid producer ID",
)
"""Kafka's errors for batches that it stores unchanged but cannot rebuild (UNKNOWN_SERVER_ERROR); ours can."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode().hex()
"""Kafka's replacement for a header's name that is not UTF-8 when it rebuilds a batch; ours keeps the name."""


def is_misnumbered(data: bytes) -> bool:
    """Whether an uncompressed batch's offset deltas are not 0, 1, 2 ...: Kafka stores it unchanged, ours renumbers."""
    header = read_header(data)
    return header.codec is Codec.NONE and not walk(data[61 : header.size], header.record_count).in_sequence


def same(case: Case, kafkas: str, our: str) -> bool:
    if kafkas.split("  ")[0] == our.strip():
        return True
    if kafkas.startswith("ok ") and our.startswith("ok "):
        theirs = describe(bytes.fromhex(kafkas[3:]))
        return theirs == describe(bytes.fromhex(our[3:])) or REPLACEMENT in theirs or is_misnumbered(case[0])
    if our.startswith("ok ") and any(reason in kafkas for reason in REFUSED_WHEN_REBUILT):
        return True
    if kafkas.startswith("ok ") or our.startswith("ok "):
        return False
    return (int(kafkas.split(" ")[0]), int(our.split(" ")[0])) in KNOWN


def test_same_judgement_as_kafka() -> None:
    chance = random.Random(11)
    cases = [sample(chance) for _ in range(CASES)]
    answers = ask_java([line(case) for case in cases], "Validate.java")
    wrong = [
        f"Kafka {kafkas[:300]} ours {our[:150]} for {line(case)[:300]}"
        for case, kafkas, our in zip(cases, answers, map(ours, cases), strict=True)
        if not same(case, kafkas, our)
    ]
    refused = sum(not answer.startswith("ok") for answer in answers)
    assert CASES // 5 < refused < CASES * 4 // 5
    assert not wrong, f"{len(wrong)} of {CASES} differ:\n" + "\n".join(wrong[:20])
