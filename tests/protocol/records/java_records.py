"""Kafka's own record batches, written and read by a Java program, and the same descriptions by our code."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from linearizability.targets.artifacts import kafka_jars
from linearizability.targets.java import java
from reference.protocol.primitives import Buffer
from reference.protocol.records.batch import NOT_IDEMPOTENT, BatchProducer, check_crc, read_batches, records_of
from reference.protocol.records.compression import Codec
from reference.protocol.records.record import Record

JAVA = Path(__file__).parent / "java"
RELEASE = "4.3.1"


def ask_java(lines: Sequence[str], program: str = "Records.java") -> list[str]:
    """One answer for each line."""
    class_path = ":".join(str(jar) for jar in kafka_jars(RELEASE))
    done = subprocess.run(
        [str(java()), "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", class_path, str(JAVA / program)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines), done.stderr
    return answers


def hexed(data: Buffer | None) -> str:
    return "~" if data is None else bytes(data).hex()


def record_text(record: Record) -> str:
    headers = ";".join(f"{hexed(key)}={hexed(value)}" for key, value in record.headers)
    return f"{record.offset},{record.timestamp},{hexed(record.key)},{hexed(record.value)},{headers}"


def describe(data: bytes) -> str:
    """Our description of the batches, in the form in which Records.java describes them."""
    texts: list[str] = []
    for header, _, batch in read_batches(data):
        check_crc(batch, header)
        records = "/".join(record_text(record) for record in records_of(batch))
        fields: list[object] = [
            header.magic, header.base_offset, header.last_offset, int(header.codec), header.is_log_append_time,
            header.max_timestamp, header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence,
            header.is_transactional, header.is_control, header.leader_epoch,
        ]  # fmt: skip
        texts.append(":".join(str(field).lower() for field in fields) + ":" + records)
    return " ".join(texts)


def write_line(
    records: Sequence[Record],
    *,
    magic: int = 2,
    codec: Codec = Codec.NONE,
    append_time: bool = False,
    producer: BatchProducer = NOT_IDEMPOTENT,
    leader_epoch: int = -1,
) -> str:
    """The input line with which Java writes a batch."""
    fields: list[object] = [
        "write", magic, int(codec), "append" if append_time else "create", records[0].offset,
        *producer[:3], str(producer.transactional).lower(), leader_epoch,
    ]  # fmt: skip
    return " ".join([*(str(field) for field in fields), *(record_text(record) for record in records)])
