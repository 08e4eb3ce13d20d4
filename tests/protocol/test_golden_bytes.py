"""The codec's bytes equal those of Kafka's own serializers, and Kafka's bytes decode to the same fields.

6,000 random messages and more, over every (message, version) that Apache Kafka 3.9.2, 4.3.1 and 4.4.0 can write.
"""

import json
import random
import subprocess
import zlib
from pathlib import Path

import pytest

from linearizability.targets.artifacts import java, message_jars
from reference.protocol.codec import decode, encode
from reference.protocol.generate import read_release
from reference.protocol.schema import Message, Versions
from tests.protocol.random_messages import message_classes, random_message, to_json

SERIALIZE = Path(__file__).parent / "java" / "Serialize.java"
SAMPLES = 6
DESCRIBED_AGAIN = {
    ("StreamsGroupHeartbeatResponse", "4.3.1"),
    ("ReadShareGroupStateSummaryResponse", "3.9.2"),
    ("VoteRequest", "3.9.2"),
}
"""Messages that a later release described again (early access) or whose nested fields it renamed (Vote); the table follows
the newest, whose own serializers are asked about the same versions."""
RENAMED = {("TxnOffsetCommitRequest", "generationIdOrMemberEpoch"): "generationId"}
"""Fields that 4.4.0 gave another name; 3.9.2 and 4.3.1 know them by the old one."""
JAVA_PACKAGES = {
    "request": "org.apache.kafka.common.message.{}Data",
    "response": "org.apache.kafka.common.message.{}Data",
    "header": "org.apache.kafka.common.message.{}Data",
    "metadata": "org.apache.kafka.common.metadata.{}",
    "data": "org.apache.kafka.common.message.{}",
}


def java_class(cls: type[Message]) -> str:
    if cls.KIND in ("coordinator-key", "coordinator-value"):
        coordinator = "transaction" if cls.__name__.startswith("TransactionLog") else "group"
        return f"org.apache.kafka.coordinator.{coordinator}.generated.{cls.__name__}"
    return JAVA_PACKAGES[cls.KIND].format(cls.__name__)


def versions_written_by(release: str) -> dict[str, tuple[int, int]]:
    """Message name -> the versions that a release's serializers write, from its schemas."""
    found: dict[str, tuple[int, int]] = {}
    for name, schema in read_release(message_jars(release)[0].parent).items():
        span = Versions.parse(schema["validVersions"])
        found[name] = (span.lowest, span.highest)
    return found


def serialize_with_java(release: str, lines: list[str]) -> list[str]:
    class_path = ":".join(str(jar) for jar in message_jars(release))
    done = subprocess.run(
        [str(java()), "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", class_path, str(SERIALIZE)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stdout.splitlines()


def named_as_in(release: str, cls: type[Message], fields: dict[str, object]) -> dict[str, object]:
    if release == "4.4.0":
        return fields
    return {RENAMED.get((cls.__name__, name), name): value for name, value in fields.items()}


def first_difference(ours: str, kafkas: str) -> str:
    """The hexadecimal texts around the first place where they differ."""
    if kafkas.startswith("!"):
        return kafkas
    at = next((i for i, (a, b) in enumerate(zip(ours, kafkas, strict=False)) if a != b), min(len(ours), len(kafkas)))
    at -= at % 2
    around = slice(max(0, at - 8), at + 40)
    return f"at byte {at // 2} of {len(kafkas) // 2}: ours {ours[around]} Kafka's {kafkas[around]}"


@pytest.mark.java
@pytest.mark.parametrize("release", ["3.9.2", "4.3.1", "4.4.0"])
def test_bytes_equal_kafkas(release: str) -> None:
    written = versions_written_by(release)
    cases: list[tuple[type[Message], int, Message]] = []
    for cls in message_classes():
        kinds_differ = release == "3.9.2" and cls.KIND in ("coordinator-key", "coordinator-value")
        lowest, highest = written.get(cls.__name__, (0, -1))
        if kinds_differ or (cls.__name__, release) in DESCRIBED_AGAIN or (cls.KIND == "data" and release == "3.9.2"):
            continue  # 3.9 numbers these records otherwise; 4.x wrote the table
        for version in range(lowest, highest + 1):
            chance = random.Random(zlib.crc32(f"{cls.__name__} {version} {release}".encode()))
            cases += [(cls, version, random_message(chance, cls, version)) for _ in range(SAMPLES)]
    lines = [
        f"{java_class(cls)} {version} {json.dumps(named_as_in(release, cls, to_json(m, version)))}"
        for cls, version, m in cases
    ]
    answers = serialize_with_java(release, lines)
    assert len(answers) == len(cases) >= 2000
    wrong: list[str] = []
    for (cls, version, message), answer in zip(cases, answers, strict=True):
        ours = encode(message, version)
        if ours.hex() != answer:
            wrong.append(f"{cls.__name__} v{version}: {first_difference(ours.hex(), answer)}")
        elif decode(cls, version, bytes.fromhex(answer)) != message:
            wrong.append(f"{cls.__name__} v{version}: the fields differ after reading Kafka's bytes")
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong[:20])
